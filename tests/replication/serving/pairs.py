"""A master of ours with a slave that follows it, and figures of how both fare while others attack."""

import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rmqstore
from rmqstore import Message, StoreConfig
from rmqstore.config import HaConfig, HaTls
from rmqstore.core.message import PutStatus
from rmqstore.replica.following.connection import LinkTls
from rmqstore.replica.following.masters import BareMaster
from rmqstore.replica.following.replica import Replica
from tests.patience import until

FILE_SIZE = 1 << 20
SLAVES_MAX = 16
# A put waits for the healthy slave; the goal is that it lags less than this, whoever else comes.
LAG_MAX_S = 2.0


@contextmanager
def pair(
    root: Path, tls: HaTls | None = None, slave_tls: LinkTls | None = None
) -> Iterator[tuple[rmqstore.Store, tuple[str, int]]]:
    """A master of ours whose puts wait for a slave that follows it; and where it listens."""
    serving = HaConfig(
        listen="127.0.0.1:0", in_sync_replicas=2, slave_timeout_ms=10_000, slaves_max=SLAVES_MAX, tls=tls
    )
    with rmqstore.open_store(root / "m", StoreConfig(log_file_size=FILE_SIZE, ha=serving)) as store:
        assert store.ha_address is not None
        host, _, port = store.ha_address.rpartition(":")
        with Replica(root / "r", BareMaster(store.ha_address, FILE_SIZE, tls=slave_tls)) as replica:
            thread = threading.Thread(target=replica.run)
            thread.start()
            try:
                until(lambda: store.put(Message("t", b"first")).status is PutStatus.PUT_OK, lambda: str(replica.state))
                yield store, (host, int(port))
            finally:
                replica.stop()
                thread.join()


def slowest_put_s(store: rmqstore.Store, count: int = 20) -> float:
    """How long the slowest of some puts waited for the slave."""
    times = []
    for number in range(count):
        began_s = time.monotonic()
        assert store.put(Message("t", b"%d" % number)).status is PutStatus.PUT_OK
        times.append(time.monotonic() - began_s)
    return max(times)


def descriptors() -> int:
    """How many this process has."""
    return len(os.listdir("/proc/self/fd"))


def peak_kib() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
