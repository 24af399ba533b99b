"""A replica that is fed the log of a history."""

from collections.abc import Sequence

from rmqstore.clock import ManualClock
from rmqstore.engine.engine import Attached, Engine
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats.names import format_start
from rmqstore.replica.following.follower import Follower, MasterQueues
from rmqstore.replica.following.note import Origin, write_origin
from rmqstore.replica.remoting.client import Refused
from rmqstore.replica.remoting.cluster import Runtime
from rmqstore.testing import Probe
from tests.crash.disks import MemoryDisk
from tests.deletions.histories import CONFIG, ROOT, Play, Queue


def log_of(play: Play, disk: MemoryDisk | None = None) -> bytes:
    """The log that a history left, or as much of it on another disk."""
    files = [content for path, content in sorted((disk or play.memory).image().items()) if "/commitlog/" in path]
    return b"".join(files)[: play.log_end]


def replica_on(disk: FileSystem, start: int = 0) -> Engine:
    """A replica whose log is empty and begins at `start`, or that goes on where it ended."""

    def prepare(fs: FileSystem, root: str) -> None:
        write_origin(fs, root, Origin("DefaultCluster", "broker-a", start))
        fs.make_directories(f"{root}/commitlog")
        fs.create(f"{root}/commitlog/{format_start(start)}", CONFIG.log_file_size).close()

    attached = Attached(follows="the master", prepare=prepare) if start else Attached(follows="the master")
    return Engine(ROOT, CONFIG, ManualClock(), disk, attached, threads=False)


def tell(engine: Engine, kinds: Sequence[tuple[str, str]]) -> None:
    """Hands it a table of topics with these kinds of queues, as its master's has them."""
    table = {
        topic: {"topicName": topic, "readQueueNums": 1, "writeQueueNums": 1, "attributes": {"queue.type": kind}}
        for topic, kind in kinds
    }
    if table:
        engine.features.topics.follow({"topicConfigTable": table, "dataVersion": {"counter": 1}})


def fed(follower: Follower, data: bytes, portion: int = 1 << 20, confirmed: int | None = None) -> None:
    for begin in range(0, len(data), portion):
        follower.take(data[begin : begin + portion])
        follower.append(confirmed)


def gone_on(engine: Engine, log: bytes, master: MasterQueues | None = None) -> None:
    """The rest of the master's log, as a new connection brings it."""
    follower = Follower(engine, lambda: None, master)
    end = follower.end
    assert engine.log.read(0, end) == log[:end]
    fed(follower, log[end:])
    assert follower.sync() == len(log)
    engine.catch_up()


class PlayedMaster:
    """A master whose log begins at `start`, and whose queues are those of the play by now."""

    def __init__(self, play: Play, start: int) -> None:
        self._play, self._start = play, start
        self.asked = 0
        self.refuses = False
        self.undispatched = 0
        self.confirmed: int | None = None  # under a controller: only so far do its queues go, and it does not say so

    def present(self) -> Runtime:
        return Runtime(self._start, self._play.log_end, "", self.undispatched)

    def place_of(self, topic: str, queue_id: int, number: int) -> int | None:
        self.asked += 1
        if self.refuses:
            raise Refused("127.0.0.1:1", 16, "no permission")
        if self.undispatched:
            return None
        Probe(self._play.store).catch_up()
        messages = self._play.store.get(topic, queue_id, number, 1).messages
        place = messages[0].physical_offset if messages else None
        return None if place is None or (self.confirmed is not None and place >= self.confirmed) else place


def followed(play: Play, master: PlayedMaster, portion: int = 1 << 20) -> tuple[Engine, MemoryDisk]:
    disk = MemoryDisk()
    engine = replica_on(disk)
    follower = Follower(engine, lambda: None, master)
    fed(follower, log_of(play), portion)
    assert follower.sync() == play.log_end
    engine.catch_up()
    return engine, disk


def held_by(engine: Engine) -> dict[Queue, list[bytes | None]]:
    """The bodies in each queue that has some."""
    found = {}
    for key, end in engine.parts.queues.next_offsets().items():
        first = engine.parts.queues.batches.find(*key) or engine.parts.queues.find(*key)
        assert first is not None
        places = range(first.min_offset, end)
        if bodies := [engine.fetch.get(*key, at, 1).messages[0].body for at in places]:
            found[key] = bodies
    return found
