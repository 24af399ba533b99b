"""A store that follows a master: made or gone on with, and kept up until it is told to stop."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Self

from rmqstore.clock import SYSTEM_CLOCK, Clock
from rmqstore.config import StoreConfig
from rmqstore.core.locks import Bell
from rmqstore.core.worker import Worker
from rmqstore.directory.store_root import found_store
from rmqstore.engine.broker.consumer_offsets import OffsetTable
from rmqstore.engine.engine import Attached, Engine
from rmqstore.errors import Corrupt, DurabilityLost, NotNow, StoreError, in_words
from rmqstore.files.filesystem import FileSystem, RealFileSystem
from rmqstore.files.reading import StorePath
from rmqstore.formats.delay_levels import tables_of
from rmqstore.replica.following.backoff import Backoff
from rmqstore.replica.following.connection import connected, follow
from rmqstore.replica.following.follower import COMPARED_SIZE, Follower, ForeignRecord
from rmqstore.replica.following.masters import KnownMaster
from rmqstore.replica.following.note import read_origin, require_same, with_levels, write_origin
from rmqstore.replica.following.preparation import From, Preparation
from rmqstore.replica.following.probe import MasterLog, wire_of
from rmqstore.replica.following.realign import Parting, cut_log, parting
from rmqstore.replica.following.session import MasterBeginsLater, SlaveSession
from rmqstore.replica.following.state import Doing, ReplicaState, TimeLag, Traffic
from rmqstore.replica.link.slave_link import Phase
from rmqstore.replica.remoting import cluster
from rmqstore.replica.remoting.client import Unreachable
from rmqstore.replica.remoting.cluster import BrokerSettings

# --- The tables of a master that its log does not hold: topics, groups, offsets, delay progress; each taken over
# whole.


class Tables:
    """The config/ of `engine`, kept as `master` has it; one thread at a time.

    Raises Unreachable, Refused; OSError as the disk fails: the files are as they were then.
    """

    def __init__(self, engine: Engine, master: KnownMaster) -> None:
        self._features, self._queues, self._master = engine.features, engine.parts.queues, master
        self._lock = threading.Lock()

    def fetch_topics(self) -> None:
        """The topics: what kinds of queues they have must be known before their first message is dispatched."""
        topics = self._master.topics()
        if topics is not None:
            self._follow(cluster.GET_ALL_TOPIC_CONFIG, topics)

    def fetch(self) -> None:
        """All tables."""
        for code, document in self._master.tables().items():
            self._follow(code, document)

    def _follow(self, code: int, document: dict[str, Any]) -> None:
        features = self._features
        try:
            with self._lock:
                if code == cluster.GET_ALL_TOPIC_CONFIG:
                    features.topics.follow(document)
                elif code == cluster.GET_ALL_SUBSCRIPTION_GROUP:
                    features.groups.follow(document)
                elif code == cluster.GET_ALL_CONSUMER_OFFSET:
                    features.offsets.follow(document, self._clipped)
                else:
                    features.delay_file.follow(document)
        except Corrupt as error:
            raise Unreachable(self._master.address, f"its answer to {code} is no table: {error.reason}") from None

    def _clipped(self, table: OffsetTable) -> OffsetTable:
        """No offset lies past the end of a queue that is here: the master's log may be ahead of this one, and if this
        one is ever written to by itself, whoever goes on there would pass over the messages that come first."""
        ends = self._queues.next_offsets()
        for (_, topic), offsets in table.items():
            for queue_id, offset in offsets.items():
                end = ends.get((topic, queue_id))
                if end is not None and offset > end:
                    offsets[queue_id] = end
        return table


# ---

# Java: BrokerController, slaves ask for the tables every 10 s.
_TABLES_S = 10.0
# How often a master is asked where its log ends: a block of it says only that there is so much.
_PRESENT_S = 2.0


class Replica:
    """The store at `path`, which follows `master`.

    A new one begins with the oldest message that the master has ("earliest"), with its newest file ("latest"), or is a
    copy of the master's store that goes on from where it ends ("backup").  It is open from the moment it is made: as a
    store that is open for writing, so that readers find a live one, but nothing can be put to it.  `settings` are
    fields of its StoreConfig.

    `run` follows until it is told to stop.  Raises Unreachable, Refused as the master answers; Rejected where
    directory and master do not belong together; and what `open_store` raises.
    """

    def __init__(
        self, path: StorePath, master: KnownMaster, *, start: From = "earliest",
        settings: Mapping[str, Any] | None = None, clock: Clock = SYSTEM_CLOCK, fs: FileSystem | None = None,
    ) -> None:  # fmt: skip
        self._state, self._lag = ReplicaState(), TimeLag()
        self._master, self._clock = master, clock
        self._changing = threading.Lock()  # held while what was seen is changed, and put together
        self._tables_s: float | None = None  # when the tables were taken over
        self._bell, self._is_stopping = Bell(), False
        self._backoff = Backoff()
        self._refused_at = -1  # where the last record stands that could not be taken
        self._begins_at = 0  # where the log of a master begins that cannot be asked, as far as it has said so
        try:
            self._open(path, start, settings or {}, fs or RealFileSystem())
        except BaseException:
            master.close()
            raise

    def _open(self, path: StorePath, start: From, settings: Mapping[str, Any], fs: FileSystem) -> None:
        master = self._master
        self._broker = master.settings()
        present = master.present()
        prepare = Preparation(self._broker, present, start, master.log_start)
        attached = Attached(follows=f"{self._broker.broker_name} ({master.address})", prepare=prepare)
        self._engine = Engine(path, replica_config(self._broker, settings), self._clock, fs, attached)
        self._tables = Tables(self._engine, master)
        self._follower = Follower(self._engine, self._tables.fetch_topics, master)
        self._worker = Worker("tables", self._ask, self._asking_failed)
        self._saw(master_end=None if present is None else present.log_end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def state(self) -> ReplicaState:
        """How it is now; any thread."""
        log, now_s = self._engine.log, self._clock.monotonic_s()
        newest_ms = log.newest_ms or self._engine.parts.checkpoint.values.physic_timestamp_ms or None
        newest_age_s = None if newest_ms is None else (self._clock.now_ms() - newest_ms) / 1000
        with self._changing:
            log_end = log.marks.flushed
            seen = replace(
                self._state,
                log_start=log.start,
                log_end=log_end,
                log_files=len(log.files.starts),
                newest_ms=newest_ms,
                behind_s=self._lag.behind_s(now_s, log_end, newest_age_s),
                tables_age_s=None if self._tables_s is None else now_s - self._tables_s,
            )
        size = self._follower.record_size
        if seen.behind_bytes == 0:
            return replace(seen, behind_messages=0)
        estimate = None if size is None or seen.behind_bytes is None else round(seen.behind_bytes / size)
        return replace(seen, behind_messages=estimate)

    @property
    def path(self) -> str:
        """The store's directory."""
        return self._engine.path

    @property
    def log_file_size(self) -> int:
        """Bytes of each commitlog file."""
        return self._engine.log.files.file_size

    def run(self, until: Callable[[ReplicaState], bool] = lambda _: False) -> None:
        """Follows the master, over as many connections as it takes, until `stop` or `until` say that it is enough; in
        the caller's thread, once.

        Raises LogsDiverged, HistoryGone, DurabilityLost: nothing that a new connection mends; and ForeignRecord, where
        a new one has brought the same.
        """

        def is_over() -> bool:
            if self._engine.reasons:  # queues and index are not written any more
                raise DurabilityLost("; ".join(self._engine.reasons))
            return self._is_stopping or until(self.state)

        self._worker.start()
        end: Doing = "stopped"
        try:
            while not is_over():
                try:
                    begin = self._follower.end
                    self._follow(is_over)
                except DurabilityLost:
                    raise
                except ForeignRecord as error:
                    if error.offset == self._refused_at:
                        raise
                    self._refused_at = error.offset
                    self._failed("waiting", error)
                    self._bell.wait(self._backoff.wait_s())
                except NotNow as error:
                    if isinstance(error, MasterBeginsLater):
                        self._begins_at = error.offset
                    self._failed("waiting", error)
                    if self._follower.end > begin:  # a short connection, but it brought data: reset the back-off
                        self._backoff.again()
                    self._bell.wait(self._backoff.wait_s())
        except Exception as error:
            end = "failed"
            self._failed(end, error)
            raise
        finally:
            self._worker.stop()
            self._saw(phase=end)

    def stop(self) -> None:
        """Ends `run` soon; any thread, also a signal's handler."""
        self._is_stopping = True
        self._bell.ring()

    def parting(self) -> Parting:
        """Where this log and the master's part; at its end where they do not.  Raises Rejected where they have nothing
        in common, ConnectionLost, Unreachable, Refused."""
        log, present = self._engine.log, self._master.present()
        master, own_end = MasterLog(self._broker, self._master.link_tls, self._clock), log.marks.appended
        if present is None:
            start = master.start()
            bounds = start, master.end(max(own_end - COMPARED_SIZE, log.start, start), own_end)
        else:
            bounds = present.log_start, present.log_end
        return parting(log, own_end, master.read, bounds, log.files.file_size)

    def finish(self, timeout_s: float = 60.0) -> None:
        """Makes all that came readable, takes the master's tables over as they are now, and deletes log files that are
        old enough, where there is retention; `run` has ended.

        Raises as Store.flush and Store.clean, Unreachable, Refused.
        """
        self._engine.flush(timeout_s)
        self._tables.fetch()
        while self._engine.config.retention and self._engine.retention.clean_now().has_more:
            pass  # a round takes a few files

    def close(self) -> None:
        """Ends the store cleanly; `run` has ended by then.  Raises as Store.close."""
        self._worker.stop()
        self._master.close()
        self._engine.close()

    def _follow(self, is_over: Callable[[], bool]) -> None:
        """One connection."""
        traffic = self._state.traffic
        self._saw(phase="connecting", traffic=replace(traffic, attempts=traffic.attempts + 1), is_level=False)
        broker = self._master.settings()  # it may be another process by now, at other ports
        require_same(self._broker, broker, self.path)
        self._broker = broker
        self._take_delay_levels(broker.delay_levels)
        self._tables.fetch_topics()
        present = self._master.present()
        with connected(broker.ha_address, self._master.link_tls) as connection:
            now_s, master_start = self._clock.monotonic_s(), self._begins_at if present is None else present.log_start
            session = SlaveSession(self._follower, now_s, wire_of(broker), master_start=master_start)

            before = self._state.traffic

            def looked() -> bool:
                link = session.link
                traffic = replace(before, received_size=before.received_size + session.received_size)
                if link.master_end is not None:  # it has sent something that fits
                    self._backoff.again()
                if link.phase is Phase.FOLLOWING:
                    self._saw(
                        phase="following", master_end=link.master_end, error="", traffic=traffic, is_level=link.is_level
                    )
                else:
                    self._saw(phase="comparing", master_end=link.master_end, traffic=traffic)
                if link.idle_s is not None and link.master_end is not None:
                    with self._changing:
                        self._lag.heard(link.idle_s, link.idle_s, link.master_end)
                return is_over()

            follow(connection, session, self._clock, looked, broker.ha_address)

    def _take_delay_levels(self, words: str | None) -> None:
        """Goes on with the master's delay levels, which may be others since it was started again: messages that wait
        keep their delivery times.  Raises Corrupt, OSError.
        """
        engine = self._engine
        origin = read_origin(engine.fs, engine.path)
        told = origin and with_levels(origin, engine.log.marks.appended, words)
        if told and told != origin:
            write_origin(engine.fs, engine.path, told)
            engine.parts.queues.levels = tables_of(told.delay_levels)

    def _ask(self) -> float:
        """Where the master's log ends now; and its tables, when it is time for them."""
        try:
            asked_s = self._clock.monotonic_s()
            present = self._master.present()
            if present is not None:
                with self._changing:
                    self._lag.heard(asked_s, self._clock.monotonic_s(), present.log_end)
                self._saw(master_end=present.log_end)
            if self._tables_s is None or asked_s - self._tables_s >= _TABLES_S:
                self._fetch_tables()
            self._saw(tables_error="")
        except (StoreError, OSError) as failure:
            self._saw(tables_error=f"the master's tables are not fetched: {failure}")
        return _PRESENT_S

    def _fetch_tables(self) -> None:
        self._tables.fetch()
        self._tables_s = self._clock.monotonic_s()

    def _asking_failed(self, name: str, failure: BaseException) -> None:
        self._engine.reasons.append(f"the worker {name!r} ended: {in_words(failure)}")

    def _failed(self, phase: Doing, error: Exception) -> None:
        traffic = self._state.traffic
        self._saw(phase=phase, error=str(error), traffic=replace(traffic, failures=traffic.failures + 1))
        with self._changing:
            self._state = replace(self._state, last_error=str(error), last_error_ms=self._clock.now_ms())

    def _saw(
        self, *, phase: Doing | None = None, master_end: int | None = None, error: str | None = None,
        tables_error: str | None = None, traffic: Traffic | None = None, is_level: bool | None = None,
    ) -> None:  # fmt: skip
        with self._changing:
            before = self._state
            self._state = replace(
                before,
                phase=phase or before.phase,
                master_end=before.master_end if master_end is None else max(master_end, before.master_end or 0),
                error=before.error if error is None else error,
                tables_error=before.tables_error if tables_error is None else tables_error,
                traffic=traffic or before.traffic,
                is_level=before.is_level if is_level is None else is_level,
            )


def realign(path: StorePath, master: KnownMaster, *, may_cut: bool = False) -> Parting:
    """Where the replica at `path` and its master part; what is to be cut is cut off, if it `may_cut`.

    Afterwards the replica can follow again.  Raises NotAStore where there is none, and as Replica and its `parting`.
    """
    root = found_store(path)
    with Replica(root, master) as replica:
        found, file_size = replica.parting(), replica.log_file_size
    if may_cut and found.cut_bytes:

        def cut(fs: FileSystem, root: str) -> None:
            cut_log(fs, root, found.offset, file_size)

        config = StoreConfig(log_file_size=file_size)
        attached = Attached(follows=master.address, prepare=cut)
        Engine(root, config, SYSTEM_CLOCK, RealFileSystem(), attached).close()
    return found


def replica_config(broker: BrokerSettings, settings: Mapping[str, Any]) -> StoreConfig:
    """That of the master as far as it decides what files look like; a store of its own otherwise.

    Old files go at any hour: RocketMQ waits for four in the morning to spare its clients, of which a replica has none.
    """
    same: dict[str, Any] = {"log_file_size": broker.log_file_size, "broker_name": broker.broker_name}
    same["delete_when"] = ";".join(f"{hour:02d}" for hour in range(24))
    return StoreConfig(**({**same, "cluster_name": broker.cluster} | dict(settings)))
