"""A log file that is deleted or cut while the log is read: an error that names queue, offsets and file, or the rest."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import rmqstore
from rmqstore import DataLost
from rmqstore.files.disk import ReadableDisk
from rmqstore.snapshot.survey.found_log import RootLook, look_at_root
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

Harm = Callable[[Path], None]
HARMS = pytest.mark.parametrize("harm", [delete, truncate, empty])
NOT_YET_READ = pytest.mark.parametrize("name", ["middle", "newest"])
MODES = pytest.mark.parametrize("mode", ["queue", "commitlog"])


def begun(root: Path, access: str, **how: object) -> tuple[set[bytes], pa.RecordBatchReader]:
    """The bodies of the first batch, and the stream of the others."""
    stream = rmqstore.open_snapshot(root, access=access).scan(topics=["T"], batch_rows=4, **how)
    return set(stream.read_next_batch()["body"].to_pylist()), stream


@TWO_WAYS
@HARMS
@NOT_YET_READ
def test_a_walk_goes_on_with_the_next_file(tmp_path: Path, harm: Harm, name: str, access: str) -> None:
    store, root = stored(tmp_path)
    seen, stream = begun(root, access, scan_mode="commitlog", fail_on_data_loss=False)
    harm(log_file(root, name))
    begin = LOG_FILES[name]
    assert seen | bodies(stream.read_all()) == expected(store, begin, begin + FILE_SIZE)


@pytest.mark.parametrize("harm", [truncate, empty])
def test_a_mapped_file_that_is_cut_between_two_batches_is_left(tmp_path: Path, harm: Harm) -> None:
    store, root = stored(tmp_path)
    seen, stream = begun(root, "mmap", scan_mode="commitlog", fail_on_data_loss=False)
    harm(log_file(root, "first"))
    rest = bodies(stream.read_all())
    assert seen
    assert rest == expected(store, 0, FILE_SIZE)


@TWO_WAYS
@HARMS
@NOT_YET_READ
def test_the_error_names_queue_offsets_and_file(tmp_path: Path, harm: Harm, name: str, access: str) -> None:
    store, root = stored(tmp_path)
    _, stream = begun(root, access, scan_mode="commitlog")
    file = log_file(root, name)
    harm(file)
    with pytest.raises(DataLost) as caught:
        stream.read_all()
    begin = LOG_FILES[name]
    lost = [number for number, at in enumerate(store.offsets) if begin <= at < begin + FILE_SIZE]
    of_queue_0 = [number // 2 for number in lost if number % 2 == 0]
    assert caught.value.queue == "T/0 and 1 more queue"
    assert caught.value.wanted == (of_queue_0[0], of_queue_0[-1] + 1)
    assert caught.value.path == str(file)
    assert str(caught.value).startswith(f"T/0 and 1 more queue: offsets [{of_queue_0[0]}, {of_queue_0[-1] + 1}) wanted")


@pytest.mark.parametrize("harm", [truncate, empty])
def test_the_error_of_a_mapped_file_cut_between_two_batches(tmp_path: Path, harm: Harm) -> None:
    _, root = stored(tmp_path)
    _, stream = begun(root, "mmap", scan_mode="commitlog")
    harm(log_file(root, "first"))
    with pytest.raises(DataLost, match=r"^T/0 and 1 more queue: offsets \[2, ") as caught:
        stream.read_all()
    assert caught.value.path == str(log_file(root, "first"))


@TWO_WAYS
def test_a_lost_file_without_wanted_messages_is_no_loss(tmp_path: Path, access: str) -> None:
    store = SmallStore(FILE_SIZE)
    for topic in ("T", "other", "T"):
        for number in range(30):
            store.add(topic, body=b"%s %d" % (topic.encode(), number))
        store.roll()
    root = store.write(tmp_path)
    seen, stream = begun(root, access, scan_mode="commitlog")
    delete(log_file(root, "middle"))
    assert seen | bodies(stream.read_all()) == {b"T %d" % number for number in range(30)}


def behind(tmp_path: Path) -> tuple[SmallStore, Path]:
    """Three log files, of which the queues know the first one's messages only."""
    store = SmallStore(FILE_SIZE)
    for number in range(COUNT):
        store.add("T", number % 2, body=b"body %d" % number, dispatched=store.end < FILE_SIZE - 200)
    return store, store.write(tmp_path)


@pytest.fixture
def harmed_when_listed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Harm, Path], None]:
    """Makes a file change right after the reader has listed the files of the log."""

    def arrange(harm: Harm, file: Path) -> None:
        def listed(disk: ReadableDisk, root: str, extra: tuple[str, ...] = ()) -> RootLook:
            found = look_at_root(disk, root, extra)
            harm(file)
            return found

        monkeypatch.setattr("rmqstore.snapshot.scan.split_reader.look_at_root", listed)

    return arrange


@TWO_WAYS
@HARMS
@MODES
def test_messages_without_entries_go_with_their_file(
    tmp_path: Path, harm: Harm, mode: str, access: str, harmed_when_listed: Callable[[Harm, Path], None]
) -> None:
    store, root = behind(tmp_path)
    snapshot = rmqstore.open_snapshot(root, access=access)
    harmed_when_listed(harm, log_file(root, "newest"))
    rows = snapshot.scan(topics=["T"], scan_mode=mode, fail_on_data_loss=False).read_all()
    assert bodies(rows) == expected(store, LOG_FILES["newest"], LOG_FILES["newest"] + FILE_SIZE)


@TWO_WAYS
@HARMS
@MODES
@pytest.mark.parametrize("corrupt", ["fail", "skip"])
def test_the_error_for_messages_without_entries(
    tmp_path: Path, harm: Harm, mode: str, access: str, corrupt: str,
    harmed_when_listed: Callable[[Harm, Path], None],
) -> None:  # fmt: skip
    store, root = behind(tmp_path)
    stream = rmqstore.open_snapshot(root, access=access).scan(topics=["T"], scan_mode=mode, on_corrupt_record=corrupt)
    file = log_file(root, "newest")
    harmed_when_listed(harm, file)
    with pytest.raises(DataLost) as caught:
        stream.read_all()
    assert caught.value.path == str(file)
    if mode == "queue":
        assert caught.value.queue == "T/0"
        assert caught.value.wanted[1] == COUNT // 2
    else:
        assert caught.value.queue == "commitlog of T/0 and 1 more queue"
        assert caught.value.wanted == (LOG_FILES["newest"], store.end)


@TWO_WAYS
@MODES
def test_the_newest_file_may_be_gone_before_reading(tmp_path: Path, mode: str, access: str) -> None:
    _, root = behind(tmp_path)
    how = {"topics": ["T"], "scan_mode": mode, "on_corrupt_record": "skip"}
    stream = rmqstore.open_snapshot(root, access=access).scan(**how)
    delete(log_file(root, "newest"))
    with pytest.raises(DataLost, match="commitlog files are missing") as caught:
        stream.read_all()
    assert caught.value.path == str(root / "commitlog")


@pytest.mark.parametrize("harm", [truncate, empty])
def test_a_file_that_is_read_in_parts_and_cut_is_lost_and_not_corrupt(tmp_path: Path, harm: Harm) -> None:
    store, root = stored(tmp_path)
    _, strict = begun(root, "pread", scan_mode="queue")
    seen, lenient = begun(root, "pread", scan_mode="queue", fail_on_data_loss=False)
    harm(log_file(root, "newest"))
    with pytest.raises(DataLost, match="the file shrank") as caught:
        strict.read_all()
    assert caught.value.path == str(log_file(root, "newest"))
    left = seen | bodies(lenient.read_all())
    assert expected(store, LOG_FILES["newest"], LOG_FILES["newest"] + FILE_SIZE) <= left


@TWO_WAYS
@pytest.mark.parametrize("harm", [delete, empty])
def test_a_lost_file_behind_damage(
    tmp_path: Path, harm: Harm, access: str, harmed_when_listed: Callable[[Harm, Path], None]
) -> None:
    store, root = stored(tmp_path)
    snapshot = rmqstore.open_snapshot(root, access=access)
    overwrite(log_file(root, "middle"))
    harmed_when_listed(lambda file: harm(file) if file.exists() else None, log_file(root, "newest"))
    how = {"topics": ["T"], "scan_mode": "commitlog", "on_corrupt_record": "skip"}
    with pytest.raises(DataLost, match="T/0 and 1 more queue"):
        snapshot.scan(**how).read_all()
    lenient = bodies(snapshot.scan(**how, fail_on_data_loss=False).read_all())
    assert lenient == expected(store, FILE_SIZE, 3 * FILE_SIZE)


@MODES
def test_rows_of_entries_alone_are_those_of_records_where_a_file_is_missing(tmp_path: Path, mode: str) -> None:
    _, root = stored(tmp_path)
    whole = rmqstore.open_snapshot(root).scan(topics=["T"], columns=["queueOffset"], scan_mode=mode).read_all()
    delete(log_file(root, "middle"))
    snapshot = rmqstore.open_snapshot(root)
    with pytest.raises((rmqstore.Corrupt, DataLost)):
        snapshot.scan(topics=["T"], columns=["queueOffset"], scan_mode=mode).read_all()
    how = {"scan_mode": mode, "on_corrupt_record": "skip", "fail_on_data_loss": False}
    counts = [snapshot.scan(["T"], columns=[name], **how).read_all().num_rows for name in ("queueOffset", "body")]
    assert 0 < counts[0] == counts[1] < whole.num_rows
