"""Replicas of all masters of a cluster, each in its own directory below one directory."""

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Self

from rmqstore.core.locks import Bell
from rmqstore.errors import NotNow, Rejected
from rmqstore.formats import names
from rmqstore.replica.following.backoff import Backoff
from rmqstore.replica.following.masters import Broker
from rmqstore.replica.following.replica import Replica
from rmqstore.replica.following.state import ReplicaState
from rmqstore.replica.remoting.client import Access, Unreachable, host_and_port
from rmqstore.replica.remoting.cluster import ListedMaster, masters

_LOOK_S = 0.2
# How often new masters are looked for.
_NEWS_S = 30.0
# Connections that may fail before one that is to catch up once gives up.
_TRIES_ONCE = 3


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
            raise Rejected(
                f"the broker name {master.broker_name!r} cannot be the name of a directory: replicate "
                "this broker with --master"
            )
        try:
            host_and_port(master.address)
        except Rejected as wrong:
            raise Rejected(f"{name_servers} lists {master.broker_name!r} with an invalid address: {wrong}") from None
    return found


def named_broker(found: ListedMaster, name_servers: str, access: Access) -> Broker:
    """The master of that name at the address that the name server lists now: it may have moved to another host."""

    def find() -> str:
        for master in masters(name_servers, access):
            if master[:2] == found[:2]:
                try:
                    host_and_port(master.address)
                except Rejected as wrong:  # it may be set right
                    raise Unreachable(name_servers, f"the address of {found.broker_name!r}: {wrong}") from None
                return master.address
        raise Unreachable(name_servers, f"the name server lists no master {found.broker_name!r} at the moment")

    return Broker(found.address, access, find=find, name=found.broker_name)


Open = Callable[[], Replica]


class _Member:
    """One replica, from before it can be opened: until then its master does not answer."""

    def __init__(self, name: str, open_: Open) -> None:
        self.name = name
        self.replica: Replica | None = None
        self.thread: threading.Thread | None = None
        self._open = open_
        self._waiting = ReplicaState()
        self._bell, self._is_stopping = Bell(), False

    @property
    def state(self) -> ReplicaState:
        return self._waiting if self.replica is None else self.replica.state

    def begin(self) -> None:
        """Opens it, if its master answers.  Raises as Replica for all else."""
        try:
            self.replica = self._open()
        except Unreachable as silence:
            self._waiting = ReplicaState(phase="waiting", error=str(silence), last_error=str(silence))

    def run(self, *, once: bool) -> None:
        """Follows until it is stopped, or, `once`, has caught up.  Raises as Replica."""
        backoff = Backoff()
        while self.replica is None and not self._is_stopping:
            if once:
                self.replica = self._open()
            else:
                self._bell.wait(backoff.wait_s())
                self.begin()
        if self.replica is None or self._is_stopping:
            return
        goal = self.replica.state.master_end

        def has_caught_up(state: ReplicaState) -> bool:
            if once and state.phase == "waiting" and state.traffic.failures >= _TRIES_ONCE:
                raise NotNow(state.error)
            if not once or state.phase != "following":
                return False
            return state.is_level if goal is None else state.log_end >= goal

        self.replica.run(has_caught_up)
        if once and not self._is_stopping:
            self.replica.finish()

    def stop(self) -> None:
        """Ends `run` soon."""
        self._is_stopping = True
        self._bell.ring()
        if self.replica is not None:
            self.replica.stop()


class ReplicaGroup:
    """Replicas that run side by side, each in a thread; it is to be closed.

    `opens` says by name how each is opened: at once, or as soon as its master answers.  `more`, asked now and then,
    says the same of all that there are then.  One that fails for good ends, and the others go on: `failures` has its
    error by its name.  No more are opened once it `is_stopping`.  Raises as Replica, where one of `opens` cannot be
    opened at all; nothing is open then.
    """

    def __init__(
        self, opens: Mapping[str, Open], more: Callable[[], Mapping[str, Open]] | None = None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self.failures: dict[str, Exception] = {}
        self._more = more
        self._members: dict[str, _Member] = {}
        self._bell, self._news, self._is_over = Bell(), Bell(), False
        try:
            for name, open_ in opens.items():
                if is_stopping():
                    break
                self._members[name] = _Member(name, open_)
                self._members[name].begin()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all stores; `run` has ended.  Raises as Replica.close, once all are closed."""
        with ExitStack() as closing:
            for member in self._members.values():
                if member.replica is not None:
                    closing.callback(member.replica.close)

    def run(
        self, look: Callable[[dict[str, ReplicaState]], None], is_stopping: Callable[[], bool], *, once: bool = False
    ) -> None:
        """Runs them until each has ended, or `is_stopping`; calls `look` with their states now and then.

        `once`: each ends when it has what its master had at the beginning or, where that cannot be asked, when the
        master says that it has no more, as one does that gets nothing for 5 s.
        """
        watching = threading.Thread(target=self._watch, name="rmqstore-masters", daemon=True)
        try:
            for member in self._members.values():
                self._start(member, once=once)
            if self._more is not None and not once:
                watching.start()
            while self._is_running() and not is_stopping():
                self._bell.wait(_LOOK_S)
                look(self.states())
        finally:
            self._is_over = True
            self._news.ring()
            with suppress(RuntimeError):  # it was not started
                watching.join()
            for member in self._members.values():
                member.stop()
            for member in self._members.values():
                if member.thread is not None:
                    member.thread.join()
            look(self.states())

    def states(self) -> dict[str, ReplicaState]:
        """How they are, by name."""
        return {name: member.state for name, member in list(self._members.items())}

    def _is_running(self) -> bool:
        return any(member.thread is not None and member.thread.is_alive() for member in list(self._members.values()))

    def _start(self, member: _Member, *, once: bool = False) -> None:
        def run() -> None:
            try:
                member.run(once=once)
            except Exception as failure:  # noqa: BLE001  the others go on, and the caller is told
                self.failures[member.name] = failure
            finally:
                self._bell.ring()

        thread = threading.Thread(target=run, name=f"rmqstore-{member.name}", daemon=True)
        thread.start()
        member.thread = thread

    def _watch(self) -> None:
        """Adds replicas of new masters."""
        assert self._more is not None
        while True:
            self._news.wait(_NEWS_S)
            if self._is_over:
                return
            with suppress(NotNow, Rejected):  # whoever is asked is away, or knows none at the moment
                for name, open_ in self._more().items():
                    self._take_in(name, open_)

    def _take_in(self, name: str, open_: Open) -> None:
        if name in self._members or name in self.failures or self._is_over:
            return
        member = _Member(name, open_)
        try:
            member.begin()
        except Exception as failure:  # noqa: BLE001  as of those that run
            self.failures[name] = failure
            return
        self._members[name] = member
        self._start(member)
