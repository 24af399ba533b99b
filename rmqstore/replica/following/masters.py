"""The questions of a replica to its master: over RocketMQ's remoting; an rmqstore master cannot be asked."""

import threading
from collections.abc import Callable
from typing import Any, Protocol

from rmqstore.clock import SYSTEM_CLOCK, Clock
from rmqstore.errors import Rejected
from rmqstore.formats.delay_levels import LEVELS_SETTING, parse_levels
from rmqstore.replica.following.connection import LinkTls
from rmqstore.replica.following.probe import MasterLog
from rmqstore.replica.following.session import ConnectionLost
from rmqstore.replica.remoting import cluster
from rmqstore.replica.remoting.client import UNSIGNED, Access, RemotingClient, Unreachable, host_and_port
from rmqstore.replica.remoting.cluster import BrokerSettings, Runtime

_TABLES = (
    cluster.GET_ALL_TOPIC_CONFIG,
    cluster.GET_ALL_SUBSCRIPTION_GROUP,
    cluster.GET_ALL_CONSUMER_OFFSET,
    cluster.GET_ALL_DELAY_OFFSET,
)


class KnownMaster(Protocol):
    """The things that a replica has to know of its master; any thread.  Raises Unreachable, Refused."""

    @property
    def address(self) -> str:
        """Where it is asked, for people."""

    @property
    def link_tls(self) -> LinkTls | None:
        """How its replication port is spoken to; None for RocketMQ's way, without TLS."""

    def settings(self) -> BrokerSettings:
        """Its names, where slaves attach, and how large its log files are."""

    def present(self) -> Runtime | None:
        """Where its log begins and ends now; None where it cannot be asked."""

    def log_start(self) -> int:
        """Where its log begins, as far as that can be learned."""

    def place_of(self, topic: str, queue_id: int, number: int) -> int | None:
        """Where in its log a message of a plain queue stands; None where the queue has none of that number."""

    def topics(self) -> dict[str, Any] | None:
        """Its table of topics; None where it cannot be asked."""

    def tables(self) -> dict[int, dict[str, Any]]:
        """Its tables by the code that they are asked for with."""

    def close(self) -> None:
        """Ends the connection to it."""


class Broker:
    """A broker of RocketMQ's, which answers at its listen port.

    `find`, where given, says where that is now; `name` what it has to call itself there.
    """

    link_tls: LinkTls | None = None

    def __init__(
        self, address: str, access: Access = UNSIGNED, clock: Clock = SYSTEM_CLOCK,
        find: Callable[[], str] | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        self.address, self._name = address, name
        self._access, self._clock, self._find = access, clock, find
        self._client = RemotingClient(address, access, clock)
        self._lock = threading.Lock()  # one question at a time

    def settings(self) -> BrokerSettings:
        """As KnownMaster; asks first where the broker is."""
        with self._lock:
            if self._find is not None:
                self._go_to(self._find())
            found = cluster.settings(self._client)
        if self._name not in (None, found.broker_name):
            reason = (
                f"the broker at this address calls itself {found.broker_name!r}, but the name server lists it as "
                f"{self._name!r}"
            )
            raise Unreachable(self.address, reason)
        return found

    def _go_to(self, address: str) -> None:
        if address != self.address:
            self._client.close()
            self._client, self.address = RemotingClient(address, self._access, self._clock), address

    def present(self) -> Runtime:
        """As KnownMaster."""
        with self._lock:
            return cluster.runtime(self._client)

    def log_start(self) -> int:
        """As KnownMaster."""
        return self.present().log_start

    def place_of(self, topic: str, queue_id: int, number: int) -> int | None:
        """As KnownMaster."""
        with self._lock:
            return cluster.queue_place(self._client, topic, queue_id, number)

    def topics(self) -> dict[str, Any]:
        """As KnownMaster."""
        with self._lock:
            return cluster.table(self._client, cluster.GET_ALL_TOPIC_CONFIG)

    def tables(self) -> dict[int, dict[str, Any]]:
        """As KnownMaster."""
        with self._lock:
            return {code: cluster.table(self._client, code) for code in _TABLES}

    def close(self) -> None:
        """As KnownMaster."""
        with self._lock:
            self._client.close()


class BareMaster:
    """A master of which only the replication port is known, as a store of ours is.  Topics become known by their
    messages: which have batch queues is not known at all.  `delay_levels` are its StoreConfig's, where they are known.
    Raises Rejected where it cannot be connected to like this.
    """

    def __init__(
        self, ha_address: str, log_file_size: int, broker_name: str = "default", tls: LinkTls | None = None,
        delay_levels: str | None = None,
    ) -> None:  # fmt: skip
        host_and_port(ha_address)
        if tls is not None:
            tls.side(ha_address)
        self.address, self.link_tls = ha_address, tls
        try:
            parse_levels(delay_levels or "")
        except ValueError as wrong:
            raise Rejected(f"delay_levels: {wrong}") from None
        told = {} if delay_levels is None else {LEVELS_SETTING: delay_levels}
        self._settings = BrokerSettings(broker_name, "", ha_address, log_file_size, False, told)

    def settings(self) -> BrokerSettings:
        """As KnownMaster."""
        return self._settings

    def present(self) -> None:
        """As KnownMaster."""

    def log_start(self) -> int:
        """As KnownMaster, of a store of ours: it answers whoever asks for what it has not any more.  0 of one that is
        away."""
        try:
            return MasterLog(self._settings, self.link_tls).start()
        except ConnectionLost:
            return 0

    def place_of(self, topic: str, queue_id: int, number: int) -> None:
        """As KnownMaster: it cannot be asked."""

    def topics(self) -> None:
        """As KnownMaster."""

    def tables(self) -> dict[int, dict[str, Any]]:
        """As KnownMaster: none."""
        return {}

    def close(self) -> None:
        """As KnownMaster."""
