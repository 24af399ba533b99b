"""Detects what listens at an address that a user gave: a name server, a broker, or a replication port.

Each of the three has its own port, and does not answer, or misreads, a request for another.
"""

import socket
import time
from dataclasses import replace

from rmqstore.errors import Rejected
from rmqstore.formats.host import place_text
from rmqstore.replica.link.wire import REPORT, BlockReader, PeerError
from rmqstore.replica.remoting import cluster
from rmqstore.replica.remoting.client import Access, Refused, RemotingClient, Unreachable, host_and_port
from rmqstore.replica.remoting.cluster import BrokerSettings

# A master that has nothing to send says so after 5 s (haSendHeartbeatInterval).
_HEARTBEAT_S = 6.0
_QUICK_S = 3.0
_BLOCKS_READ_SIZE = 64 * 1024
_USUAL_LISTEN = "10911 by default"


def require_broker(address: str, access: Access) -> None:
    """Raises Rejected, with the port or the option that is meant, unless a broker answers at `address`; Unreachable,
    Refused where it is nobody that is known."""
    _require_no_replication_port(address, access, tls_only=True)
    try:
        _broker(address, access)
    except Refused:
        if _is_name_server(address, access):
            raise Rejected(f"{address} is a name server: give it with --namesrv") from None
        raise
    except Unreachable:
        _require_no_replication_port(address, access)
        raise


def require_name_server(address: str, access: Access) -> None:
    """The same for a name server."""
    _require_no_replication_port(address, access, tls_only=True)
    try:
        with RemotingClient(address, access) as client:
            cluster.require_name_server(client)
    except Refused:
        found = _broker_or_none(address, access)
        if found is not None:
            raise Rejected(
                f"{address} is the listen port of the broker {found.broker_name!r}: give it with --master, or its name "
                "server (9876 by default) with --namesrv"
            ) from None
        raise
    except Unreachable:
        _require_no_replication_port(address, access)
        raise


def require_replication_port(address: str, access: Access) -> None:
    """Raises Rejected where a broker or a name server answers at `address`; nothing for all else, which may be down."""
    try:
        found = _broker(address, replace(access, timeout_s=min(access.timeout_s, _QUICK_S)))
    except Refused:
        if _is_name_server(address, access):
            raise Rejected(f"{address} is a name server: give it with --namesrv") from None
        raise Rejected(f"{address} is a broker's listen port: give it with --master") from None
    except Unreachable:
        return
    raise Rejected(
        f"{address} is the listen port of the broker {found.broker_name!r}: give it with --master; slaves attach at "
        f"{found.ha_address}"
    )


def _require_no_replication_port(address: str, access: Access, *, tls_only: bool = False) -> None:
    """`tls_only`: looks before anything is asked, as the bytes that begin TLS cannot be chosen (`ask_stranger`)."""
    if (tls_only and access.tls is None) or not _serves_slaves(address):
        return
    host, port = host_and_port(address)
    before = place_text(host, port - 1)
    found = None
    if port > 1:
        found = _broker_or_none(before, replace(access, timeout_s=_QUICK_S))
    if found is not None and host_and_port(found.ha_address)[1] == port:
        what = f"of the broker {found.broker_name!r}: give its listen port, {before}"
    else:
        what = (
            f"of a master: give the broker's listen port ({_USUAL_LISTEN}), or, for an rmqstore master, --ha {address}"
        )
    raise Rejected(f"{address} is the replication port {what}")


def _broker(address: str, access: Access) -> BrokerSettings:
    with RemotingClient(address, access) as client:
        return cluster.settings(client, is_stranger=True)


def _broker_or_none(address: str, access: Access) -> BrokerSettings | None:
    try:
        return _broker(address, access)
    except (Unreachable, Refused):
        return None


def _is_name_server(address: str, access: Access) -> bool:
    try:
        with RemotingClient(address, access) as client:
            cluster.require_name_server(client)
    except (Unreachable, Refused):
        return False
    return True


def _serves_slaves(address: str) -> bool:
    """Whether a block of a log, or a heartbeat, comes to a new slave; a broker and a name server close at its report,
    whose first bytes are a frame of no size to them."""
    reader, deadline_s = BlockReader(), time.monotonic() + _HEARTBEAT_S
    try:
        with socket.create_connection(host_and_port(address), _QUICK_S) as connection:
            connection.sendall(REPORT.pack(0))
            while (left_s := deadline_s - time.monotonic()) > 0:
                connection.settimeout(left_s)
                came = connection.recv(_BLOCKS_READ_SIZE)
                if not came:
                    return False
                for _ in reader.read(came):
                    return True
    except (OSError, PeerError):
        pass
    return False
