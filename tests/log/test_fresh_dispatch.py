"""Dispatch from what the puts know: queues and index are those that dispatch from the log makes, byte for byte."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.formats import names, sys_flag
from rmqstore.log.fresh_dispatch import COUNT_MAX, FreshRecords
from rmqstore.log.record_batch import RecordBatch
from rmqstore.message import Message
from rmqstore.store import Store, open_store
from tests.crash.disks import MemoryDisk

ROOT = "/store"
CONFIG = StoreConfig(
    log_file_size=16 * 1024,
    queue_file_size=400,
    index_slot_count=7,
    index_item_count=40,
    preallocate=False,
    append_property_crc=True,
)
Action = Message | list[Message] | None  # a put, a batch, or a step of the workers


class Unconcerned:
    """A caller's dispatcher, because of which the store dispatches from the log."""

    def dispatch(self, batch: RecordBatch) -> None:
        """Takes no notice."""

    def flush(self) -> None:
        """Nothing to do."""


def derived(actions: Sequence[Action], dispatchers: Sequence[Unconcerned]) -> dict[str, bytes]:
    """The queue and index files after the actions and a last step."""
    disk, clock = MemoryDisk(), ManualClock()
    store = open_store(ROOT, CONFIG, clock=clock, filesystem=disk, workers=False, dispatchers=dispatchers)
    for action in actions:
        clock.advance(700)
        if isinstance(action, Message):
            store.put(action)
        elif action:
            store.put_batch(action)
        else:
            store.step()
    while store.health().dispatch_behind_bytes:
        store.step()
    return {path: data for path, data in files_of(disk, ROOT).items() if "/consumequeue/" in path or "/index/" in path}


def files_of(disk: MemoryDisk, directory: str) -> dict[str, bytes]:
    """Every file below a directory."""
    found: dict[str, bytes] = {}
    for entry in disk.entries(directory):
        path = f"{directory}/{entry.name}"
        if entry.is_directory:
            found |= files_of(disk, path)
        else:
            found[path] = disk.open(path).read(0, entry.size)
    return found


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x01\x02"), max_size=12)
MESSAGES = st.builds(
    Message,
    topic=st.sampled_from(["a", "b", "orders", names.SCHEDULE_TOPIC]),
    body=st.binary(max_size=40),
    tags=st.none() | WORDS,
    keys=st.lists(WORDS, max_size=3),
    queue_id=st.integers(0, 2),
    sys_flag=st.sampled_from([0, 0, 0, sys_flag.PREPARED, sys_flag.COMMIT, sys_flag.ROLLBACK]),
    properties=st.dictionaries(st.sampled_from(["UNIQ_KEY", "TAGS", "KEYS", "DELAY", "x"]), WORDS, max_size=3),
)
BATCHES = st.lists(
    st.builds(Message, topic=st.just("a"), body=st.binary(max_size=9), tags=st.none() | WORDS), min_size=1, max_size=3
)


@settings(deadline=None)
@given(st.lists(st.none() | MESSAGES | MESSAGES | MESSAGES | BATCHES, max_size=40))
def test_the_files_are_those_of_dispatch_from_the_log(actions: list[Action]) -> None:
    assert derived(actions, []) == derived(actions, [Unconcerned()])


def test_many_at_once_and_then_few_again() -> None:
    many = [Message("a", b"x", tags="T", keys=f"k{number}") for number in range(COUNT_MAX + 50)]
    few = [Message("b", b"x", keys=f"k{number}") for number in range(5)]
    actions: list[Action] = [*few, None, *many, None, *few, None, None, *few]
    assert derived(actions, []) == derived(actions, [Unconcerned()])


def opened(disk: MemoryDisk) -> Store:
    return open_store(ROOT, CONFIG, clock=ManualClock(), filesystem=disk, workers=False)


def test_single_puts_are_not_read_back() -> None:
    store = opened(MemoryDisk())
    store._log.read = None  # type: ignore[assignment,method-assign]
    for number in range(3):
        assert store.put(Message("a", b"x", tags="T", keys=f"k{number}")).is_stored
        store.step()
    assert store.health().is_writable
    assert store.bounds("a", 0) == (0, 3)


def test_after_a_batch_the_log_is_read_and_then_no_longer() -> None:
    store = opened(MemoryDisk())
    store.put_batch([Message("a", b"1"), Message("a", b"2")])
    store.put(Message("a", b"3"))
    store.step()
    assert store.bounds("a", 0) == (0, 3)
    store._log.read = None  # type: ignore[assignment,method-assign]
    store.put(Message("a", b"4"))
    store.step()
    assert store.bounds("a", 0) == (0, 4)


def test_a_failed_step_is_made_up_for_from_the_log() -> None:
    """The first try takes the records and fails: the rest is done from the log, and nothing twice."""
    store = opened(MemoryDisk())
    for number in range(3):
        store.put(Message("a", b"x", queue_id=number, keys=f"k{number}"))
    index = store._parts.index
    assert index is not None
    put, index.put = index.put, None  # type: ignore[assignment,method-assign]
    try:
        store._dispatch.step()
        raise AssertionError("the index is broken")
    except TypeError:
        index.put = put  # type: ignore[method-assign]
    assert store._dispatch.position == 0
    store._dispatch.step()
    assert store.queues() == [("a", 0), ("a", 1), ("a", 2)]
    assert [store.bounds(*queue) for queue in store.queues()] == [(0, 1)] * 3
    assert [len(store.query("a", f"k{number}")) for number in range(3)] == [1, 1, 1]


def test_what_is_not_at_the_position_is_not_given() -> None:
    records = FreshRecords()
    assert records.take(0, 100) == []
