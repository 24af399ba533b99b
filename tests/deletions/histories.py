"""Lives of a topic that is deleted: what is done to a store, and which messages each observer finds afterwards."""

from collections import defaultdict
from itertools import product
from typing import Literal, NamedTuple

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message
from rmqstore.engine.engine import Engine
from rmqstore.engine.store import Store, open_store
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats.broker_json import TopicConfig
from rmqstore.testing import Probe
from tests.crash.disks import Choice, MemoryDisk, WatchedDisk

ROOT = "/store"
NOTE = f"{ROOT}/config/deletedTopics.json"
CONFIG = StoreConfig(
    flush="SYNC", log_file_size=4096, queue_file_size=200, index_slot_count=5, index_item_count=9, preallocate=False
)
Queue = tuple[str, int]


class History(NamedTuple):
    """What is done, as `Play` reads it, and the words that each observer finds in the queues; None: it is not asked.

    `engine`: who opens the store again, after a clean end or a crash.  `reader` and `killed`: who reads it where the
    note of the deletion is missing, as RocketMQ writes none: a store that is open or closed, and one after a crash.
    `replica`: a slave that takes the log.  Where only `make deep` takes each case, `some` says how many there are.
    """

    steps: str
    engine: str | None = None
    reader: str | None = None
    killed: str | None = None
    replica: str | None = None
    some: int = 1


def _made_again(old: int, new: int, count: int) -> History:
    """A topic has messages in so many queues, and again `count` in so many others."""
    queues = ["", "0", "0,1", "", "0,1,2,3"]
    steps = f"put other 3 o/0 | put old 10 t/{queues[old]} | flush | delete t | put new {count} t/{queues[new]}"
    return History(f"{steps} | put more 1 o/0", reader="other new more", some=3)


def _twice(queues: str, count: int) -> History:
    """After a crash nobody knows of a deletion without a note: what the topic had last is there."""
    turns = "".join(f"put turn{turn} {count} t/{queues} | flush | delete t | " for turn in range(3))
    return History(f"{turns}put other 2 o/0", "other", killed="turn2 other")


_LOST = "put other 3 o/0 | put old 10 t/0,1,2,3"
_SOME_LOST = "put old 20 t/0,1,2,3 | put more 1 o/0 | end"
_BACK = "put old 6 t/0,1 | put kept 3 o/0 | flush | keep consumequeue/t | delete t | close | back consumequeue/t | open"
_KINDS = {f"{old} and then {new}": History(
    f"kind t {old} | put old 9 t/0 | flush | delete t | kind t {new} | put new 9 t/0 | flush", "new", replica="new"
) for old, new in product(("BatchCQ", "SimpleCQ"), repeat=2) if "BatchCQ" in (old, new)}  # fmt: skip

HISTORIES = {
    "deleted": History("put kept 6 o/0 | put old 6 t/0,1 | flush | delete t", "kept", killed="kept old"),
    "deleted before its queues had it all": History("put kept 6 o/0 | put old 6 t/0,1 | delete t", "kept"),
    "deleted from one queue": History("put kept 3 o/0 | put old 10 t/0 | flush | delete t | put more 1 o/0",
                                      reader="kept more"),
    "deleted from four queues": History("put kept 3 o/0 | put old 10 t/0,1,2,3 | flush | delete t | put more 1 o/0",
                                        reader="kept more"),
    "a group's own topic": History("put old 3 %RETRY%g/0 | put kept 1 o/0 | flush | delete %RETRY%g", "kept"),
    "made again": History("put old 6 t/0,1 | flush | delete t | put new 2 t/0 | flush", "new", "new", replica="new"),
    "made again and not dispatched": History("put old 6 t/0,1 | flush | delete t | put new 2 t/0", "new"),
    "deleted again and again": History("".join(f"put turn{turn} 5 t/0,1 | delete t | delete t | " for turn in range(4))
                                       + "put last 1 t/1", "last", "last", replica="last"),
    "in all queues": History("put old 9 t/0,1,2 | put x 2 o/0 | delete t | put z 1 o/0 | put new 4 t/0,1",
                             "x z new", "x z new", replica="x z new"),
    # Queues that are new have messages before the first of those that begin again comes.
    "in more queues": History("put old 3 t/0 | delete t | put new 7 t/1,2,0", "new", "new", replica="new"),
    # An old queue gets nothing any more, and one message of another shows that it went.
    "in other queues": History("put old 12 t/0,3,0 | put end 1 t/0 | delete t | put new 5 t/5,0", "new", "new",
                               replica="new"),
    **{f"from {old} to {new} queues with {count}": _made_again(old, new, count)
       for (old, new), count in product([(1, 1), (4, 4), (4, 2), (2, 4)], [3, 20])},
    **{f"twice, {count} in {queues}": _twice(queues, count)
       for queues, count in [("0", 2), ("0", 5), ("0,1", 4), ("0,1", 10)]},
    **_KINDS,
    # RocketMQ dispatches messages again after a crash, and queue files may be lost: nobody deleted these.
    "lost after a crash": History(f"{_LOST} | put more 1 o/0 | end | lose consumequeue/t | lose config",
                                  killed="other old more"),
    "lost with the table of topics": History(
        f"{_LOST} | put more 1 o/0 | end | lose consumequeue/t | lose config/topics.json", reader="other old more"),
    "lost, of a known topic": History(f"{_LOST} | put more 1 o/0 | end | lose consumequeue/t", reader="other old more"),
    "lost at the log's end": History(f"{_LOST} | end | lose consumequeue/t", reader="other old"),
    **{f"lost queues {gone}": History(" | ".join([_SOME_LOST, *(f"lose consumequeue/t/{each}" for each in gone)]),
                                      reader="old more") for gone in ("0", "1", "01", "23")},
    # The note knows of the first deletion alone.
    "deleted by a broker later": History(
        "put first 4 t/0,1 | flush | delete t | keep config/deletedTopics.json | put second 4 t/0,1 | flush | delete t"
        " | put new 2 t/0 | put more 1 o/0 | end | back config/deletedTopics.json", reader="new more"),
    # A power cut keeps some queue files and loses others: what stands in front of an entry may never have had one.
    "without entries after a crash": History(
        "put old 6 t/0,1 | flush | delete t | put lost 3 t/1 | put new 2 t/0 | end | lose consumequeue/t/1",
        killed="lost new"),
    # That one queue began again says nothing of another that came with the new topic, before that.
    "built from the log alone": History(
        "put old 3 t/0 | flush | delete t | put early 1 t/1 | put new 2 t/0 | end | lose consumequeue | lose index",
        reader="early new"),
    # RocketMQ knows nothing of the note: after an abnormal end of its own it brings back what it reads.
    "brought back": History(_BACK, "old kept"),
    "brought back and gone on with": History(f"{_BACK} | put more 1 t/0 | put late 1 t/1", "old kept more late"),
    "brought back and deleted": History(f"{_BACK} | put more 1 t/0 | crash killed | delete t", "kept"),
    "an old queue beside new ones": History(
        "put old 5 t/0 | put past 5 t/1 | flush | keep consumequeue/t/0 | delete t | put new 2 t/1 | put more 1 o/0"
        " | end | back consumequeue/t/0", reader="old new more"),
}  # fmt: skip


class OwnedDisk(MemoryDisk):
    """A disk that tells readers whether a store on it is open."""

    def is_locked(self, path: str) -> bool:
        return path in self.locks


def opened(disk: FileSystem, config: StoreConfig = CONFIG) -> Store:
    return open_store(ROOT, config, clock=ManualClock(), filesystem=disk, workers=False)


def held(store: Store) -> dict[Queue, list[bytes | None]]:
    """The bodies in each queue, which has to begin at 0 and have no hole."""
    found: dict[Queue, list[bytes | None]] = {}
    for key in store.queues():
        first, behind = store.bounds(*key)
        messages = [store.get(*key, at, 1).messages[0] for at in range(behind)]
        assert (first, [message.queue_offset for message in messages]) == (0, [*range(behind)])
        found[key] = [message.body for message in messages]
    return found


class Play:
    """A history as it happens on a disk: steps between bars, of which an observer chooses what `end` is.

    put WORD COUNT TOPIC/QUEUES, to the queues in turn; delete TOPIC; slip TOPIC/QUEUE, as RocketMQ counts on from 0
    where the last message was being put while the topic was deleted; expire TOPIC/QUEUE, as RocketMQ cleans a queue
    of which all messages were deleted with the log's first files; kind TOPIC KIND, of its queues; flush; close;
    open; crash CHOICE; keep PATH of some files, and back PATH when they are there again; lose PATH.
    """

    def __init__(self, steps: str = "", disk: FileSystem | None = None, store: Store | None = None) -> None:
        """`store`: one that is open already, elsewhere than on `disk`."""
        self.disk = disk or OwnedDisk()
        self.store = store or opened(self.disk)
        self.put: defaultdict[Queue, list[bytes]] = defaultdict(list)
        self.log_end = 0
        self.kinds: list[tuple[str, str]] = []
        self.ends: dict[Queue, int] = {}  # of the queues that are there
        self.begins: dict[Queue, int] = {}  # of those that do not begin at 0
        self._kept: dict[str, bytes] = {}
        alive, _, self.later = steps.partition(" | end | ")
        self.go_on(alive)

    def go_on(self, steps: str) -> "Play":
        for step in filter(None, steps.split(" | ")):
            verb, *rest = step.split()
            getattr(self, f"_{verb}")(*rest)
        return self

    def wanted(self, words: str) -> dict[Queue, list[bytes]]:
        """What stands in the queues when it is the messages of these words."""
        chosen = {
            key: [body for body in put if body.split()[0].decode() in words.split()] for key, put in self.put.items()
        }
        return {key: bodies for key, bodies in chosen.items() if bodies}

    def end(self, ending: Choice | Literal["live", "closed"]) -> MemoryDisk:
        """The disk that a life leaves: "live", "closed", or what a crash keeps."""
        if ending == "closed":
            self.store.close()
        elif ending != "live":
            self.disk = self.memory.crash(ending)
        self.go_on(self.later)
        return self.memory

    @property
    def memory(self) -> MemoryDisk:
        """The disk itself, where another watches it or lets it fail."""
        disk = self.disk.inner if isinstance(self.disk, WatchedDisk) else self.disk
        assert isinstance(disk, MemoryDisk)
        return disk

    def _put(self, word: str, count: str, place: str) -> None:
        topic, _, ids = place.rpartition("/")
        queues = [(topic, int(each)) for each in ids.split(",")]
        first = sum(body.split()[0] == word.encode() for bodies in self.put.values() for body in bodies)
        messages = [Message(topic, f"{word} {first + at}".encode(), keys="k", queue_id=queues[at % len(queues)][1])
                    for at in range(int(count))]  # fmt: skip
        size = 3 if dict(self.kinds).get(topic) == "BatchCQ" else 1
        for batch in (messages[at : at + size] for at in range(0, len(messages), size)):
            answer = self.store.put_batch(batch) if size > 1 else self.store.put(batch[0])
            key = topic, batch[0].queue_id or 0
            assert answer.queue_offset == self.ends.get(key, 0)
            self.ends[key] = answer.queue_offset + len(batch)
            self.put[key] += [message.body for message in batch]
            self.log_end = answer.physical_offset + answer.size

    def _delete(self, topic: str) -> None:
        is_there = any(key[0] == topic for key in self.ends)
        assert self.store.delete_topic(topic) == is_there
        assert not any(queue[0] == topic for queue in self.store.queues())
        self.ends = {key: end for key, end in self.ends.items() if key[0] != topic}
        self.begins = {key: begin for key, begin in self.begins.items() if key[0] != topic}

    def _slip(self, place: str, number: str = "1") -> None:
        topic, _, queue_id = place.rpartition("/")
        key = topic, int(queue_id)
        self.inside().log.next_offsets[key] = self.ends[key] = int(number)
        self.begins[key] = int(number)

    def _expire(self, place: str) -> None:
        topic, _, queue_id = place.rpartition("/")
        others = [key[1] for key in self.ends if key[0] == topic and key[1] != int(queue_id)]
        engine = self.inside()
        engine.catch_up()
        engine.parts.queues.remove_topic(topic, engine.appender.forget_topic(topic, stay=others), others)
        del self.ends[topic, int(queue_id)]

    def inside(self) -> Engine:
        return Probe(self.store).engine

    def _kind(self, topic: str, kind: str) -> None:
        self.kinds.append((topic, kind))
        self.store.topics.put(TopicConfig(topic, 1, 1, attributes={"queue.type": kind}))

    def _flush(self) -> None:
        self.store.flush()

    def _close(self) -> None:
        self.store.close()

    def _open(self) -> None:
        self.store = opened(self.disk)
        self.ends = {key: self.store.bounds(*key)[1] for key in self.store.queues()}

    def _crash(self, choice: Literal["lost", "kept", "killed"]) -> None:
        self.disk = self.memory.crash(choice)
        self._open()

    def _files(self, path: str) -> dict[str, bytes]:
        image = self.memory.image()
        return {each: image[each] for each in image if each == f"{ROOT}/{path}" or each.startswith(f"{ROOT}/{path}/")}

    def _keep(self, path: str) -> None:
        self._kept |= self._files(path)

    def _back(self, path: str) -> None:
        for each, content in self._kept.items():
            self.memory.put_file(each, content)

    def _lose(self, path: str) -> None:
        _remove(self.memory, f"{ROOT}/{path}")


def _remove(disk: MemoryDisk, path: str) -> None:
    """A file, or a directory with all that is in it."""
    if disk.is_directory(path):
        for name in [entry.name for entry in disk.entries(path)]:
            _remove(disk, f"{path}/{name}")
        disk.remove_directory(path)
    else:
        disk.remove(path)
