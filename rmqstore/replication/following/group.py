"""All masters of a cluster, each with a replica in a directory of its own, below one directory."""

import threading
from collections.abc import Callable
from contextlib import suppress

from rmqstore.errors import Rejected
from rmqstore.formats import names
from rmqstore.locks import Bell
from rmqstore.remoting.client import Access, Unreachable, host_and_port
from rmqstore.remoting.cluster import ListedMaster, masters
from rmqstore.replication.following.masters import Broker
from rmqstore.replication.following.replica import Replica
from rmqstore.replication.following.state import ReplicaState

_LOOK_S = 0.2


def chosen_masters(name_servers: str, cluster: str | None, access: Access) -> list[ListedMaster]:
    """The masters that a name server lists, of one cluster if it is named.

    Raises Rejected where there is none, or where two would share a directory; Unreachable, Refused.
    """
    found = masters(name_servers, access)
    clusters = sorted({master.cluster for master in found})
    if cluster is not None:
        found = [master for master in found if master.cluster == cluster]
    elif len(clusters) > 1:
        raise Rejected(f"the name server knows several clusters: name one of {', '.join(clusters)} (--cluster)")
    if not found:
        known = f"it knows {', '.join(clusters)}" if clusters else "no broker has registered"
        raise Rejected(f"{name_servers} lists no master{f' of {cluster!r}' if cluster else ''}: {known}")
    for master in found:
        if not names.is_topic_name(master.broker_name):  # it becomes a directory's name
            raise Rejected(f"the broker name {master.broker_name!r} can be no directory: replicate it with --master")
    return found


def named_broker(found: ListedMaster, name_servers: str, access: Access) -> Broker:
    """The master of that name, wherever a name server says that it is: after a change, another process or host."""

    def find() -> str:
        for master in masters(name_servers, access):
            if master[:2] == found[:2]:
                try:
                    host_and_port(master.address)
                except Rejected as wrong:  # it may be set right
                    raise Unreachable(name_servers, f"the address of {found.broker_name!r}: {wrong}") from None
                return master.address
        raise Unreachable(name_servers, f"it lists no master {found.broker_name!r} at the moment")

    return Broker(found.address, access, find=find)


class ReplicaGroup:
    """Replicas that run side by side, each in a thread; made by the caller, who also closes them.

    One that fails for good ends, and the others go on: `failures` has its error by its name.
    """

    def __init__(self, replicas: dict[str, Replica]) -> None:
        self.replicas = replicas
        self.failures: dict[str, Exception] = {}
        self._bell = Bell()

    def run(
        self, look: Callable[[dict[str, ReplicaState]], None], is_stopping: Callable[[], bool], *, once: bool = False
    ) -> None:
        """Runs them until each has ended, or `is_stopping`; calls `look` with their states now and then.

        `once`: each ends when it has what its master had at the beginning or, where that cannot be asked, when the
        master says that it has no more, as one does that gets nothing for 5 s.
        """
        threads = [
            threading.Thread(target=self._run, args=(name, replica, once), name=f"rmqstore-{name}", daemon=True)
            for name, replica in self.replicas.items()
        ]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads) and not is_stopping():
                self._bell.wait(_LOOK_S)
                look(self.states())
        finally:
            for replica in self.replicas.values():
                replica.stop()
            for thread in threads:
                with suppress(RuntimeError):  # it was not started
                    thread.join()
            look(self.states())

    def states(self) -> dict[str, ReplicaState]:
        """How they are, by name."""
        return {name: replica.state for name, replica in self.replicas.items()}

    def _run(self, name: str, replica: Replica, once: bool) -> None:
        goal = replica.state.master_end

        def has_caught_up(state: ReplicaState) -> bool:
            if not once or state.phase != "following":
                return False
            return state.is_level if goal is None else state.log_end >= goal

        try:
            replica.run(has_caught_up)
            if once:
                replica.finish()
        except Exception as failure:  # noqa: BLE001  the others go on, and the caller is told
            self.failures[name] = failure
        finally:
            self._bell.ring()
