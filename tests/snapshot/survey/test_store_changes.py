"""A store that changes between planning and reading, or while it is read: a typed error, or the rest; never a crash."""

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import rmqstore
from rmqstore import Corrupt, DataLost, Message, StoreConfig, open_snapshot, open_store
from rmqstore.formats.names import format_start
from tests.snapshot.harmed_store import (
    COUNT,
    FILE_SIZE,
    LOG_FILES,
    TWO_WAYS,
    bodies,
    delete,
    empty,
    expected,
    log_file,
    overwrite,
    stored,
    truncate,
)
from tests.snapshot.small_store import SmallStore

pytestmark = pytest.mark.stores

ACCESS = pytest.mark.parametrize("access", ["mmap", "pread", "auto"])
MODES = pytest.mark.parametrize("mode", ["queue", "auto", "commitlog"])
Harm = Callable[[Path], None]


def replace_with_zeros(file: Path) -> None:
    """A new file of the same name and size."""
    fresh = file.with_name("fresh")
    fresh.write_bytes(bytes(FILE_SIZE))
    fresh.replace(file)


def replace_with_another(file: Path) -> None:
    """Records of another store: sound, but not of this place."""
    other = SmallStore(FILE_SIZE)
    for _ in range(20):
        other.add("other", body=b"somebody else's")
    fresh = file.with_name("fresh")
    fresh.write_bytes(other.data[0])
    fresh.replace(file)


HARMS = [delete, truncate, empty, replace_with_zeros, replace_with_another]


def queue_file(root: Path) -> Path:
    return root / "consumequeue" / "T" / "1" / format_start(0)


@TWO_WAYS
@MODES
@pytest.mark.parametrize("name", ["middle"])
@pytest.mark.parametrize("harm", HARMS)
def test_a_log_file_that_changed_after_planning_is_named(
    tmp_path: Path, harm: Harm, name: str, mode: str, access: str
) -> None:
    _, root = stored(tmp_path)
    stream = rmqstore.open_snapshot(root, access=access).scan(topics=["T"], scan_mode=mode)
    harm(log_file(root, name))
    with pytest.raises((DataLost, Corrupt)) as caught:
        stream.read_all()
    words = str(caught.value)
    if mode != "commitlog":
        assert re.search(r"T/[01]\b.*offset", words)
    assert "commitlog" in words
    assert "on_corrupt_record" in words or "fail_on_data_loss" in words


@ACCESS
@pytest.mark.parametrize("name", LOG_FILES)
@pytest.mark.parametrize("harm", HARMS)
def test_the_error_names_the_file_that_changed(tmp_path: Path, harm: Harm, name: str, access: str) -> None:
    _, root = stored(tmp_path)
    stream = rmqstore.open_snapshot(root, access=access).scan(topics=["T"], scan_mode="queue")
    file = log_file(root, name)
    harm(file)
    with pytest.raises((DataLost, Corrupt)) as caught:
        stream.read_all()
    gone = harm in (delete, empty, truncate)
    assert isinstance(caught.value, DataLost) == gone
    assert caught.value.path == str(file.parent if gone else file)


@pytest.mark.some(2)
@TWO_WAYS
@MODES
@pytest.mark.parametrize("name", LOG_FILES)
@pytest.mark.parametrize("harm", HARMS)
def test_going_on_gives_the_rest(tmp_path: Path, harm: Harm, name: str, mode: str, access: str) -> None:
    store, root = stored(tmp_path)
    how = {"fail_on_data_loss": False, "on_corrupt_record": "skip", "verify_crc": "always"}
    stream = rmqstore.open_snapshot(root, access=access).scan(topics=["T"], scan_mode=mode, **how)
    harm(log_file(root, name))
    begin = LOG_FILES[name]
    kept = max((at for at in store.offsets if begin <= at <= begin + 1000 - 110), default=begin)
    first_lost = kept + 1 if harm is truncate else begin
    assert bodies(stream.read_all()) == expected(store, first_lost, begin + FILE_SIZE)


@ACCESS
@pytest.mark.parametrize("harm", [delete, empty, truncate])
def test_a_queue_file_that_vanished_after_planning_is_not_needed(tmp_path: Path, harm: Harm, access: str) -> None:
    """The log has the messages, and a store that is opened now would bring them."""
    store, root = stored(tmp_path)
    snapshot = rmqstore.open_snapshot(root, access=access)
    streams = [snapshot.scan(topics=["T"], scan_mode="queue", fail_on_data_loss=fails) for fails in (True, False)]
    if harm is truncate:
        os.truncate(queue_file(root), 400)
    else:
        harm(queue_file(root))
    for stream in streams:
        assert bodies(stream.read_all()) == expected(store, 0, 0)


@ACCESS
@pytest.mark.parametrize("harm", [delete, empty])
def test_messages_that_went_with_their_queue_file_are_named(tmp_path: Path, harm: Harm, access: str) -> None:
    """The log's first file went as well: what began there is lost."""
    store, root = stored(tmp_path)
    snapshot = rmqstore.open_snapshot(root, access=access)
    strict = snapshot.scan(topics=["T"], scan_mode="queue")
    lenient = snapshot.scan(topics=["T"], scan_mode="queue", fail_on_data_loss=False)
    harm(queue_file(root))
    harm(log_file(root, "first"))
    with pytest.raises(DataLost) as caught:
        strict.read_all()
    error = caught.value
    assert error.queue.startswith("T/")
    assert error.wanted[0] == 0
    assert "open the store again for its current offsets, or set fail_on_data_loss=False" in str(error)
    assert bodies(lenient.read_all()) == expected(store, 0, FILE_SIZE)


@pytest.mark.some(2)
@TWO_WAYS
@MODES
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("name", ["first", "newest"])
def test_a_file_may_change_between_two_batches(tmp_path: Path, harm: Harm, name: str, mode: str, access: str) -> None:
    """Sound rows, or an error that says so: a mapping of a truncated file must not be touched (SIGBUS)."""
    _, root = stored(tmp_path)
    stream = rmqstore.open_snapshot(root, access=access).scan(topics=["T"], scan_mode=mode, batch_rows=4)
    seen = bodies(pa.Table.from_batches([stream.read_next_batch()]))
    harm(log_file(root, name))
    with contextlib.suppress(DataLost, Corrupt):
        seen |= bodies(stream.read_all())
    assert seen <= {b"body %d" % number for number in range(COUNT)}


@pytest.mark.parametrize("access", ["mmap", "auto"])
def test_a_file_that_shrinks_under_its_mapping_is_refused_by_its_size(tmp_path: Path, access: str) -> None:
    _, root = stored(tmp_path)
    stream = rmqstore.open_snapshot(root, access=access).scan(topics=["T"], scan_mode="queue", batch_rows=4)
    stream.read_next_batch()
    truncate(log_file(root, "first"))
    with pytest.raises(DataLost, match="the file shrank below 4096 bytes while it was read"):
        stream.read_all()


@TWO_WAYS
@MODES
@pytest.mark.parametrize("harm", [delete, truncate, empty, overwrite])
def test_what_was_read_stays_as_it_was(tmp_path: Path, harm: Harm, mode: str, access: str) -> None:
    _, root = stored(tmp_path)
    stream = rmqstore.open_snapshot(root, access=access).scan(columns="*", topics=["T"], scan_mode=mode, batch_rows=4)
    batch = stream.read_next_batch()
    before = batch.to_pylist()
    harm(log_file(root, "first"))
    assert batch.to_pylist() == before


def test_messages_that_came_later_are_not_read(tmp_path: Path) -> None:
    store, root = stored(tmp_path)
    snapshot = rmqstore.open_snapshot(root)
    streams = [snapshot.scan(topics=["T"], scan_mode=mode) for mode in ("queue", "auto", "commitlog")]
    for number in range(COUNT, 150):
        store.add("T", number % 2, body=b"body %d" % number)
    for file in (root / "consumequeue" / "T").glob("*/*"):
        file.unlink()
        if not any(file.parent.iterdir()):
            file.parent.rmdir()
    store.write(root)
    assert [stream.read_all().num_rows for stream in streams] == [COUNT] * 3
    assert rmqstore.open_snapshot(root).scan(topics=["T"]).read_all().num_rows == 150


def test_the_whole_store_may_vanish(tmp_path: Path) -> None:
    _, root = stored(tmp_path)
    stream = rmqstore.open_snapshot(root).scan(topics=["T"])
    root.rename(tmp_path.with_name(f"{tmp_path.name}-moved"))
    with pytest.raises(rmqstore.NotAStore, match="does not exist here"):
        stream.read_all()


@MODES
@pytest.mark.parametrize("fails", [True, False])
def test_what_a_queue_file_that_went_had_is_read_from_the_log(tmp_path: Path, mode: str, fails: bool) -> None:
    config = StoreConfig(queue_file_size=400, preallocate=False)
    with open_store(tmp_path / "store", config, workers=False) as store:
        for number in range(60):
            store.put(Message("T", b"%d" % number, queue_id=0))
    snapshot = open_snapshot(tmp_path / "store")
    min((tmp_path / "store" / "consumequeue" / "T" / "0").iterdir()).unlink()
    found = snapshot.scan(["T"], scan_mode=mode, fail_on_data_loss=fails).read_all()["body"].to_pylist()
    assert found == [b"%d" % number for number in range(60)]


@MODES
def test_what_is_left_is_read_when_a_queue_file_went_and_loss_is_taken(tmp_path: Path, mode: str) -> None:
    """Of one queue of several, in front of where a new look at the store would search the log."""
    config = StoreConfig(queue_file_size=400, log_file_size=4096, preallocate=False)
    with open_store(tmp_path / "store", config, workers=False) as store:
        for number in range(240):
            store.put(Message("T", b"%d" % number, queue_id=number % 2))
    snapshot = open_snapshot(tmp_path / "store")
    min((tmp_path / "store" / "consumequeue" / "T" / "1").iterdir()).unlink()
    with pytest.raises(DataLost):
        snapshot.scan(["T"], scan_mode=mode).read_all()
    found = snapshot.scan(["T"], scan_mode=mode, fail_on_data_loss=False).read_all()["body"].to_pylist()
    assert sorted(found) == sorted(b"%d" % number for number in range(240) if number % 2 == 0 or number >= 40)
