"""A record that lies about its queue is refused, served as before, or told: never dispatched as it says in silence."""

import random
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from rmqstore import Corrupt, Message, StoreConfig, open_snapshot, open_store
from rmqstore.cli.recover import dry_plan
from rmqstore.clock import ManualClock
from rmqstore.engine.store import Store
from rmqstore.errors import StoreDamaged
from rmqstore.formats.checkpoint import Checkpoint, encode_checkpoint
from rmqstore.formats.message import FRONT_V4
from rmqstore.formats.names import CHECKPOINT_FILE, format_start
from rmqstore.formats.queue_entry import PRE_BLANK_SIZE
from rmqstore.snapshot.finding import DAMAGE
from rmqstore.snapshot.verify import verify
from rmqstore.testing import Probe

pytestmark = pytest.mark.stores

CONFIG = StoreConfig(
    log_file_size=65536, queue_file_size=2000, index_slot_count=7, index_item_count=50, preallocate=False
)
SMALL = replace(CONFIG, log_file_size=8192, queue_file_size=400)
COUNT = 6
FIELDS = {"queue_id": 4, "queue_offset": 8}


def made(root: Path, queues: int, *, is_closed: bool) -> tuple[list[int], dict[tuple[int, int], bytes]]:
    """Where the records stand, and what is to be had at which place."""
    store = open_store(root, CONFIG, workers=False)
    placed = [store.put(Message("T", b"body %d" % number, queue_id=number % queues)) for number in range(COUNT)]
    store.flush()
    store.close() if is_closed else store.abandon()
    return [result.physical_offset for result in placed], {
        (number % queues, number // queues): b"body %d" % number for number in range(COUNT)
    }


def by_slot(store: Store) -> dict[tuple[int, int], bytes | None]:
    return {
        (queue_id, low + step): message.body
        for _, queue_id in store.queues()
        for low in [store.bounds("T", queue_id)[0]]
        for step, message in enumerate(store.get("T", queue_id, low, 100).messages)
    }


def files(root: Path) -> dict[Path, bytes]:
    """What an opening may not change when it refuses; the mark of a writer apart."""
    return {
        path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name not in ("lock", "abort")
    }


@pytest.mark.parametrize("queues", [1, 2])
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("number", [0, 1, COUNT - 2, COUNT - 1])
def test_no_bit_of_a_record_s_queue_moves_a_message_without_a_word(
    tmp_path: Path, number: int, is_closed: bool, queues: int
) -> None:
    whole, root = tmp_path / "whole", tmp_path / "store"
    places, wanted = made(whole, queues, is_closed=is_closed)
    told = 0
    for field, size in FIELDS.items():
        for bit in (0, 1, 2, 9, 8 * size - 8):
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(whole, root)
            path = root / "commitlog" / format_start(0)
            data = bytearray(path.read_bytes())
            data[places[number] + FRONT_V4.offset[field] + size - 1 - bit // 8] ^= 1 << bit % 8
            path.write_bytes(data)
            before = files(root)
            try:
                with open_store(root, CONFIG, workers=False) as store:
                    found, warnings = by_slot(store), store.warnings
            except Corrupt:
                assert files(root) == before
                told += 1
            else:
                assert found == wanted or warnings, (field, bit)
                told += bool(warnings)
    assert told > 5


def test_a_record_that_moved_is_named_with_the_queue_that_lacks_it(tmp_path: Path) -> None:
    places, _ = made(tmp_path, 1, is_closed=True)
    path = tmp_path / "commitlog" / format_start(0)
    data = bytearray(path.read_bytes())
    data[places[3] + FRONT_V4.offset["queue_id"] + 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corrupt, match="says that it is of T/1, and queue offset 3 of T/0 points at it") as caught:
        open_store(tmp_path, CONFIG, workers=False)
    assert (caught.value.path, caught.value.offset) == (str(path), places[3])


@pytest.mark.parametrize("number", range(1, COUNT))
def test_a_record_that_takes_another_queue_s_number_is_refused_in_a_closed_store(tmp_path: Path, number: int) -> None:
    """The other queue has that number already, so that the record looks like a second one there."""
    places, _ = made(tmp_path, 2, is_closed=True)
    path = tmp_path / "commitlog" / format_start(0)
    data = bytearray(path.read_bytes())
    data[places[number] + FRONT_V4.offset["queue_id"] + 3] ^= 1
    path.write_bytes(data)
    before = files(tmp_path)
    own, other = number % 2, 1 - number % 2
    said = f"says that it is of T/{other}, and queue offset {number // 2} of T/{own} points at it"
    with pytest.raises(Corrupt, match=said):
        open_store(tmp_path, CONFIG, workers=False)
    assert files(tmp_path) == before


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("number", range(COUNT))
def test_a_negative_queue_id_ends_the_log_like_a_broken_record(tmp_path: Path, number: int, is_closed: bool) -> None:
    """No queue has one.  The last record of a killed store is given up, any other is damage."""
    places, _ = made(tmp_path, 2, is_closed=is_closed)
    path = tmp_path / "commitlog" / format_start(0)
    data = bytearray(path.read_bytes())
    data[places[number] + FRONT_V4.offset["queue_id"]] |= 0x80
    path.write_bytes(data)
    before = files(tmp_path)
    if is_closed or number < COUNT - 1:
        for opening in (dry_plan, open_store):
            with pytest.raises(Corrupt):
                opening(str(tmp_path), CONFIG)
        assert files(tmp_path) == before
        return
    assert dry_plan(str(tmp_path), CONFIG).log_end == places[number]
    with open_store(tmp_path, CONFIG, workers=False) as store:
        assert sum(store.bounds("T", queue_id)[1] for queue_id in range(2)) == COUNT - 1
        assert any("says queue id -2147483647, which no queue has" in warning for warning in store.warnings)
    assert dry_plan(str(tmp_path), CONFIG).changes_nothing
    assert not [each for store in open_snapshot(tmp_path).stores for each in verify(store) if each.severity == DAMAGE]


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("number", range(COUNT))
def test_a_reader_names_a_negative_queue_id(tmp_path: Path, number: int, is_closed: bool) -> None:
    places, _ = made(tmp_path, 2, is_closed=is_closed)
    path = tmp_path / "commitlog" / format_start(0)
    data = bytearray(path.read_bytes())
    data[places[number] + FRONT_V4.offset["queue_id"]] |= 0x80
    path.write_bytes(data)
    with pytest.raises(Corrupt):
        open_snapshot(tmp_path).scan().read_all()
    assert all(queue_id >= 0 for store in open_snapshot(tmp_path).stores for _, queue_id in store.queues)


def shuffled(root: Path, seed: int, count: int = 200, topics: str = "AB", *, has_keys: bool = False) -> None:
    """A closed store of `count` messages, in an order that `seed` chooses."""
    chance = random.Random(seed)
    with open_store(root, SMALL, workers=False) as store:
        for number in range(count):
            body = b"%d" % number + bytes(chance.randrange(60))
            keys = f"{root.name}-{number}" if has_keys else ""
            store.put(Message(chance.choice(topics), body, keys=keys, queue_id=chance.randrange(2)))


@pytest.mark.parametrize("place", [1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_a_log_file_of_another_store_is_refused_before_anything_is_changed(
    tmp_path: Path, seed: int, place: int
) -> None:
    """Its records stand where they say, and entries of the store lead into them."""
    shuffled(tmp_path / "own", seed)
    shuffled(tmp_path / "other", seed + 1000)
    name = format_start(place * SMALL.log_file_size)
    shutil.copy(tmp_path / "other" / "commitlog" / name, tmp_path / "own" / "commitlog" / name)
    before = {path: path.read_bytes() for path in (tmp_path / "own").rglob("*") if path.is_file()}
    with pytest.raises(StoreDamaged):
        dry_plan(str(tmp_path / "own"), SMALL)
    with pytest.raises(StoreDamaged):
        open_store(tmp_path / "own", SMALL, workers=False)
    after = {path: path.read_bytes() for path in (tmp_path / "own").rglob("*") if path.is_file()}
    assert after == before


def places(root: Path) -> set[int]:
    """Where the messages stand that a reader gives which passes over what is damaged."""
    found = open_snapshot(root).scan(
        columns=["physicalOffset", "body"], on_corrupt_record="skip", fail_on_data_loss=False
    )
    return set(found.read_all()["physicalOffset"].to_pylist())


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize(("topics", "seed"), [*(("AB", seed) for seed in range(4)), ("ABC", 1)])
def test_what_a_cut_takes_out_of_the_queues_is_told_before(
    tmp_path: Path, topics: str, seed: int, place: int, is_closed: bool
) -> None:
    """A log file of another store: its records leave numbers out, or give them twice; a queue's first file may begin
    with a number that an older record says behind it.
    """
    own = tmp_path / "own"
    shuffled(own, seed, topics=topics)
    shuffled(tmp_path / "other", seed + 1000, topics=topics)
    if not is_closed:
        (own / "abort").touch()
    name = format_start(place * SMALL.log_file_size)
    shutil.copy(tmp_path / "other" / "commitlog" / name, own / "commitlog" / name)
    before = places(own)
    cut = replace(SMALL, on_middle_damage="cut")
    plan = dry_plan(str(own), cut)
    told = sum(each.count for each in (*plan.lost, *plan.unqueued))
    open_store(own, cut, workers=False).close()
    after = places(own)
    assert len(before - after) <= told
    assert dry_plan(str(own), SMALL).changes_nothing


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_what_a_cut_leaves_in_the_queues_is_found_by_its_keys(tmp_path: Path, place: int, is_closed: bool) -> None:
    """The index of the store says nothing of a log file of another store, although it reaches beyond that."""
    own = tmp_path / "own"
    shuffled(own, 0, has_keys=True)
    shuffled(tmp_path / "other", 1000, has_keys=True)
    if not is_closed:
        (own / "abort").touch()
    name = format_start(place * SMALL.log_file_size)
    shutil.copy(tmp_path / "other" / "commitlog" / name, own / "commitlog" / name)
    with pytest.raises(StoreDamaged):
        open_store(own, SMALL, workers=False)
    with open_store(own, replace(SMALL, on_middle_damage="cut"), workers=False) as store:
        for topic, queue_id in store.queues():
            messages = store.get(topic, queue_id, store.bounds(topic, queue_id)[0], 200).messages
            assert messages
            found = [[one.body for one in store.query(topic, each.properties["KEYS"])] for each in messages]
            assert all(each.body in bodies for each, bodies in zip(messages, found, strict=True))


@pytest.mark.parametrize("is_exchanged", [True, False], ids=["exchanged", "copied"])
@pytest.mark.parametrize(
    ("first", "second"),
    [("A/0/0", "B/1/0"), ("A/0/400", "A/0/0"), ("A/0/800", "B/1/800"), ("A/0/400", "B/1/800"), ("B/0/1200", "A/1/800")],
)
def test_no_message_goes_where_queue_files_are_another_queue_s(
    tmp_path: Path, first: str, second: str, is_exchanged: bool
) -> None:
    """Refused as a contradiction in a closed store, where the scan does not show that entries are missing; a cut writes
    the queues again, and leaves the log as it is.
    """
    shuffled(tmp_path, 3)
    before = places(tmp_path)
    one, other = (
        tmp_path / "consumequeue" / Path(name).parent / format_start(int(Path(name).name)) for name in (first, second)
    )
    content, moved = one.read_bytes(), other.read_bytes()
    one.write_bytes(moved)
    if is_exchanged:
        other.write_bytes(content)
    unchanged = files(tmp_path)
    if is_exchanged and first[:3] != second[:3]:
        with pytest.raises(StoreDamaged, match="writes the queues again from this log"):
            open_store(tmp_path, SMALL, workers=False)
        assert files(tmp_path) == unchanged
    require_nothing_goes(tmp_path, before)


@pytest.mark.parametrize("count", [1, 21])
def test_no_message_goes_where_a_queue_file_was_moved_to_another_queue(tmp_path: Path, count: int) -> None:
    """Its last entries stand alone there, and the queue that they are of has none; but it has its own records."""
    with open_store(tmp_path, SMALL, workers=False) as store:
        for number in range(count):
            for topic in "ABC":
                store.put(Message(topic, b"%d" % number, queue_id=0))
    before = places(tmp_path)
    name = format_start((count - 1) // 20 * 400)
    (tmp_path / "consumequeue" / "A" / "0" / name).replace(tmp_path / "consumequeue" / "B" / "0" / name)
    with pytest.raises(StoreDamaged, match=r"queue offset .* of B/0 leads to queue offset .* of A/0"):
        open_store(tmp_path, SMALL, workers=False)
    require_nothing_goes(tmp_path, before)


@pytest.mark.parametrize(("first", "second"), [("A/0/0", "%LMQ%a/0/0"), ("A/0/400", "%LMQ%a/0/400")])
def test_no_message_goes_where_a_light_queue_s_file_is_exchanged(tmp_path: Path, first: str, second: str) -> None:
    """A light queue lacks records then that are of other queues, which have them."""
    config = replace(SMALL, multi_dispatch=True)
    with open_store(tmp_path, config, workers=False) as store:
        for number in range(60):
            light = {"INNER_MULTI_DISPATCH": "%LMQ%a"} if number % 3 else {}
            store.put(Message("AB"[number % 2], b"%d" % number, properties=light, queue_id=0))
    before = places(tmp_path)
    one, other = (
        tmp_path / "consumequeue" / Path(name).parent / format_start(int(Path(name).name)) for name in (first, second)
    )
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    with pytest.raises(StoreDamaged, match="writes the queues again from this log"):
        open_store(tmp_path, config, workers=False)
    require_nothing_goes(tmp_path, before, config)


def test_a_queue_file_that_names_no_message_hides_none(tmp_path: Path) -> None:
    """It has room for all numbers that the log has: none of these was given before the queue's first message."""
    with open_store(tmp_path, SMALL, workers=False) as store:
        for number in range(38):
            store.put(Message("A", b"%d" % number + bytes(200), queue_id=0))
    min((tmp_path / "commitlog").iterdir()).unlink()
    queue = tmp_path / "consumequeue" / "A" / "0"
    (queue / format_start(0)).unlink()
    (queue / format_start(400)).write_bytes(struct.pack(">qiq", 0, PRE_BLANK_SIZE, 0) * 20)
    with open_store(tmp_path, SMALL, workers=False) as store:
        first, behind = store.bounds("A", 0)
        assert (behind, len(store.get("A", 0, first, 100).messages)) == (38, 38 - first)
        assert 20 < first < 38


def require_nothing_goes(root: Path, before: set[int], config: StoreConfig = SMALL) -> None:
    """With a cut the queues are written again from the log, and all messages are there."""
    cut = replace(config, on_middle_damage="cut")
    plan = dry_plan(str(root), cut)
    assert (plan.lost, plan.unqueued) == ((), ())
    open_store(root, cut, workers=False).close()
    assert places(root) == before
    assert dry_plan(str(root), config).changes_nothing
    assert not [each for store in open_snapshot(root).stores for each in verify(store) if each.severity == DAMAGE]


def with_two_directories(root: Path, *, is_closed: bool) -> StoreConfig:
    """The configuration of a store with 40 messages, whose log files lie in two directories in turn."""
    directories = tuple(str(root / name) for name in ("one", "two"))
    config = replace(CONFIG, log_paths=directories)
    clock = ManualClock()
    store = open_store(root / "store", config, workers=False, clock=clock)
    for number in range(40):
        clock.ms += 1
        store.put(Message("T", bytes(3000), queue_id=number % 2))
    store.flush()
    store.close() if is_closed else store.abandon()
    return config


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
def test_a_log_without_its_last_file_is_refused(tmp_path: Path, is_closed: bool) -> None:
    config = with_two_directories(tmp_path, is_closed=is_closed)
    last = max((path for name in ("one", "two") for path in (tmp_path / name).iterdir()), key=lambda path: path.name)
    aside = last.rename(tmp_path / "aside")
    before = files(tmp_path)
    rest = str(tmp_path / ("two" if last.parent.name == "one" else "one"))
    for paths in (config.log_paths, (rest,)):
        with pytest.raises(StoreDamaged, match="name all directories of the log") as caught:
            open_store(tmp_path / "store", replace(config, log_paths=paths), workers=False)
        assert caught.value.offset == int(last.name)
        assert files(tmp_path) == before
    aside.rename(last)
    with open_store(tmp_path / "store", config, workers=False) as store:
        assert [store.bounds("T", number) for number in (0, 1)] == [(0, 20), (0, 20)]
        assert store.warnings == []


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
def test_a_lost_last_file_is_told_by_the_checkpoint_where_no_queue_is_left(tmp_path: Path, is_closed: bool) -> None:
    config = with_two_directories(tmp_path, is_closed=is_closed)
    last = max((path for name in ("one", "two") for path in (tmp_path / name).iterdir()), key=lambda path: path.name)
    last.unlink()
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    before = files(tmp_path)
    with pytest.raises(StoreDamaged, match="the checkpoint tells of a later message; name all directories"):
        open_store(tmp_path / "store", config, workers=False)
    assert files(tmp_path) == before
    for mode in ("auto", "commitlog"):
        with pytest.raises(Corrupt, match="is missing or empty, and messages were in it"):
            open_snapshot([[tmp_path / "store", *config.log_paths]]).scan(scan_mode=mode).read_all()
    with open_store(tmp_path / "store", replace(config, on_middle_damage="cut"), workers=False) as store:
        assert store.bounds("T", 0)[1] < 20


def test_readers_need_no_checkpoint_to_miss_the_last_file_of_a_closed_store(tmp_path: Path) -> None:
    config = with_two_directories(tmp_path, is_closed=True)
    max((path for name in ("one", "two") for path in (tmp_path / name).iterdir()), key=lambda path: path.name).unlink()
    (tmp_path / "store" / CHECKPOINT_FILE).unlink()
    with pytest.raises(Corrupt, match="is missing or empty, and messages were in it"):
        open_snapshot([[tmp_path / "store", *config.log_paths]]).scan().read_all()


def test_a_last_file_that_is_given_up_is_told(tmp_path: Path) -> None:
    config = with_two_directories(tmp_path, is_closed=True)
    last = max((path for name in ("one", "two") for path in (tmp_path / name).iterdir()), key=lambda path: path.name)
    last.unlink()
    with open_store(tmp_path / "store", replace(config, on_middle_damage="cut"), workers=False) as store:
        assert store.bounds("T", 0)[1] < 20
        (warning,) = store.warnings
    assert "consumequeue/T/0: entries " in warning
    assert warning.endswith("of 1 other queue are dropped though the store was closed: they lead nowhere in the log, "
                            f"which ends at {int(last.name)}; is a commitlog file missing?")  # fmt: skip


def killed_unflushed(root: Path, count: int) -> StoreConfig:
    """The configuration of a store with two log directories and `count` messages of 7 KB, nine to a log file, that was
    killed when nothing had been dispatched or flushed; the next file is there before it is needed."""
    directories = tuple(str(root / name) for name in ("one", "two"))
    config = replace(CONFIG, log_paths=directories, preallocate=True)
    store = open_store(root / "store", config, workers=False)
    for number in range(count):
        store.put(Message("T", bytes(7000), queue_id=number % 2))
    store.abandon()
    for number, directory in enumerate(directories * 2):
        path = Path(directory, format_start(number * CONFIG.log_file_size))
        if number * CONFIG.log_file_size <= (count // 9 + 1) * CONFIG.log_file_size and not path.exists():
            path.write_bytes(bytes(CONFIG.log_file_size))
    return config


def test_a_file_that_was_made_later_proves_one_before_it(tmp_path: Path) -> None:
    config = killed_unflushed(tmp_path, 12)
    gone, ahead = (path for path in sorted(tmp_path.glob("*/0*"), key=lambda path: path.name) if int(path.name))
    gone.unlink()
    assert not any(ahead.read_bytes())
    before = files(tmp_path)
    with pytest.raises(StoreDamaged, match=f"{ahead}, which was made later, is there; name all directories"):
        open_store(tmp_path / "store", config, workers=False)
    assert files(tmp_path) == before
    with pytest.raises(Corrupt, match="is missing or empty, and messages were in it"):
        open_snapshot([[tmp_path / "store", *config.log_paths]]).scan().read_all()
    with open_store(tmp_path / "store", replace(config, on_middle_damage="cut"), workers=False) as store:
        assert [store.bounds("T", number) for number in (0, 1)] == [(0, 5), (0, 4)]


def test_queue_offsets_are_not_given_again_where_only_the_next_log_file_is_named(tmp_path: Path) -> None:
    config = killed_unflushed(tmp_path, 6)
    before = files(tmp_path)
    with pytest.raises(StoreDamaged, match=r"no file holds what comes before 65536.*name all directories"):
        open_store(tmp_path / "store", replace(config, log_paths=config.log_paths[1:]), workers=False)
    assert files(tmp_path) == before
    with open_store(tmp_path / "store", config, workers=False) as store:
        assert [store.bounds("T", number) for number in (0, 1)] == [(0, 3), (0, 3)]


@pytest.mark.parametrize("told", [Checkpoint(5, 5), Checkpoint(5, 0, logics_physical_offset=65536)])
def test_a_log_whose_messages_all_expired_goes_on(tmp_path: Path, told: Checkpoint) -> None:
    """Their topics were deleted; only the checkpoint knows that they were in queues."""
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / format_start(65536)).write_bytes(bytes(65536))
    (root / CHECKPOINT_FILE).write_bytes(encode_checkpoint(Checkpoint(5)))
    with pytest.raises(StoreDamaged, match="no file holds what comes before 65536"):
        open_store(root, CONFIG, workers=False)
    (root / CHECKPOINT_FILE).write_bytes(encode_checkpoint(told))
    with open_store(root, CONFIG, workers=False) as store:
        assert store.put(Message("T", b"first")).physical_offset == 65536


def test_two_files_for_one_part_of_the_log_are_told(tmp_path: Path) -> None:
    config = with_two_directories(tmp_path, is_closed=True)
    last = max((path for name in ("one", "two") for path in (tmp_path / name).iterdir()), key=lambda path: path.name)
    other = tmp_path / ("two" if last.parent.name == "one" else "one") / last.name
    shutil.copy(last, other)
    with pytest.raises(StoreDamaged, match="holds the same part of the log"):
        open_store(tmp_path / "store", config, workers=False)
    (store,) = open_snapshot([[tmp_path / "store", *config.log_paths]]).stores
    (found,) = [finding for finding in verify(store) if "same part of the log" in finding.reason]
    assert {found.path, found.reason.split(" is for ")[0]} == {str(last), str(other)}


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("number", [-1, -2], ids=["the-last", "the-one-before"])
def test_no_log_file_goes_that_has_another_ones_bytes(tmp_path: Path, number: int, is_closed: bool) -> None:
    """Two files whose names were exchanged; the other one is the next file, made in advance, or the one before."""
    config = with_two_directories(tmp_path, is_closed=is_closed)
    own = sorted((path for name in ("one", "two") for path in (tmp_path / name).iterdir()), key=lambda path: path.name)
    start = int(own[-1].name) + CONFIG.log_file_size
    ahead = own[-2].parent / format_start(start)
    ahead.write_bytes(bytes(CONFIG.log_file_size))
    chosen = (ahead, own[-1]) if number == -1 else (own[-2], own[-1])
    first, second = (path.read_bytes() for path in chosen)
    chosen[0].write_bytes(second)
    chosen[1].write_bytes(first)
    before = files(tmp_path)
    with pytest.raises(
        StoreDamaged, match=r"names offset [0-9]+ of the log as its place; give each file the name"
    ) as caught:
        open_store(tmp_path / "store", config, workers=False)
    assert Path(caught.value.path) in chosen
    assert files(tmp_path) == before
    for mode in ("auto", "commitlog"):
        with pytest.raises(Corrupt, match="of the log as its place"):
            open_snapshot([[tmp_path / "store", *config.log_paths]]).scan(scan_mode=mode).read_all()
    (store,) = open_snapshot([[tmp_path / "store", *config.log_paths]]).stores
    assert [each for each in verify(store) if each.severity == DAMAGE and "as its place" in each.reason]
    cut = replace(config, on_middle_damage="cut")
    told = sum(each.count for each in dry_plan(str(tmp_path / "store"), cut).lost)
    with open_store(tmp_path / "store", cut, workers=False) as opened:
        assert opened.bounds("T", 0)[1] < 20
        assert opened.bounds("T", 0)[1] + opened.bounds("T", 1)[1] == 40 - told


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize(("first", "second"), [(0, 1), (0, -1), (1, -1), (0, -2)])
def test_a_cut_of_exchanged_files_is_one_and_tells_all_that_goes(
    tmp_path: Path, first: int, second: int, is_closed: bool
) -> None:
    """Recovery of a closed store begins at the third file from the end, and the earlier file is another one, too."""
    count = 280
    shuffled(tmp_path, 3, count)
    if not is_closed:
        (tmp_path / "abort").touch()
    own = sorted((tmp_path / "commitlog").iterdir())
    assert len(own) == 5
    one, other = own[first].read_bytes(), own[second].read_bytes()
    own[first].write_bytes(other)
    own[second].write_bytes(one)
    cut = replace(SMALL, on_middle_damage="cut")
    told = sum(each.count for each in dry_plan(str(tmp_path), cut).lost)
    open_store(tmp_path, cut, workers=False).close()
    assert len(places(tmp_path)) == count - told
    assert dry_plan(str(tmp_path), SMALL).changes_nothing


@pytest.mark.parametrize("flush", ["SYNC", "ASYNC"])
@pytest.mark.parametrize("missing", ["gone", "empty", "not named"])
@pytest.mark.parametrize("dispatched", [0, 20, 50])
def test_a_killed_store_of_which_only_the_file_made_in_advance_is_left_is_refused(
    tmp_path: Path, dispatched: int, missing: str, flush: Literal["SYNC", "ASYNC"]
) -> None:
    directories = tuple(str(tmp_path / name) for name in ("one", "two"))
    config = replace(CONFIG, log_paths=directories, flush=flush)
    store = open_store(tmp_path / "store", config, workers=False)
    for number in range(50):
        store.put(Message("T", b"%d" % number))
        if number + 1 == dispatched:
            Probe(store).catch_up()
            store.flush()
    store.abandon()
    ahead = tmp_path / "two" / format_start(CONFIG.log_file_size)
    ahead.write_bytes(bytes(CONFIG.log_file_size))
    aside = (tmp_path / "one").rename(tmp_path / "aside")
    if missing == "empty":
        (tmp_path / "one").mkdir()
    before = files(tmp_path)
    found = replace(config, log_paths=directories[1:]) if missing == "not named" else config
    with pytest.raises(StoreDamaged, match=r"no file holds what comes before 65536.*name all directories"):
        open_store(tmp_path / "store", found, workers=False)
    assert files(tmp_path) == before
    if missing == "empty":
        (tmp_path / "one").rmdir()
    aside.rename(tmp_path / "one")
    with open_store(tmp_path / "store", config, workers=False) as store:
        assert store.bounds("T", 0) == (0, 50)
        assert store.warnings == []


@pytest.mark.parametrize("lost", [1, 2])
def test_a_closed_store_whose_newest_files_hold_zeros_is_refused(tmp_path: Path, lost: int) -> None:
    """As where the file is missing: entries lead there, and the checkpoint knows of later messages."""
    config = with_two_directories(tmp_path, is_closed=True)
    own = sorted((path for name in ("one", "two") for path in (tmp_path / name).iterdir()), key=lambda path: path.name)
    for path in own[-lost:]:
        path.write_bytes(bytes(CONFIG.log_file_size))
    before = files(tmp_path)
    with pytest.raises(Corrupt):
        open_store(tmp_path / "store", config, workers=False)
    assert files(tmp_path) == before
    with open_store(tmp_path / "store", replace(config, on_middle_damage="cut"), workers=False) as store:
        assert store.bounds("T", 0)[1] < 20
        assert store.warnings


def test_messages_that_the_checkpoint_of_a_killed_store_knows_are_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = with_two_directories(tmp_path, is_closed=False)
    last = max((path for name in ("one", "two") for path in (tmp_path / name).iterdir()), key=lambda path: path.name)
    data = last.read_bytes()
    last.write_bytes(bytes(len(data)))
    open_snapshot([[tmp_path / "store", *config.log_paths]])
    (said,) = [record.getMessage() for record in caplog.records if "a message was on the disk" in record.getMessage()]
    with open_store(tmp_path / "store", config, workers=False) as store:
        newest = store.bounds("T", 1)[1]
        *_, warning = store.warnings
    assert 0 < newest < 20
    told = f"{tmp_path / 'store' / CHECKPOINT_FILE}: a message was on the disk that is {40 - 2 * newest - 1} ms later"
    assert warning.startswith(told)
    assert said.startswith(told)
