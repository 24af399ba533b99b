"""The power goes, the disk is full, or Ctrl-C comes, before each operation of an export in turn: the next run ends it,
and each message is there once."""

import errno
import io
import json
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rmqstore import open_snapshot
from rmqstore.errors import StoreError
from rmqstore.export import ExportWish, export_messages
from tests.crash.disks import CrashAt, FailingDisk, MemoryDisk, Operation, PowerCut, WatchedDisk
from tests.crash.strides import ROUNDS, every
from tests.export.stores import filled

pytestmark = [pytest.mark.stores, pytest.mark.crash]

PLACE = "/data/out"
Row = tuple[str, int, int]


def wish(form: str, target_bytes: int) -> ExportWish:
    return ExportWish(
        format=form, columns=("topic", "queueId", "queueOffset"), batch_rows=2, target_bytes=target_bytes,
        partition_by=("topic",),
    )  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("export") / "store", 12, ["orders", "pay"])


@pytest.fixture(scope="module")
def wanted(store: Path) -> Counter[Row]:
    return Counter(_rows(open_snapshot(store).scan(columns=["topic", "queueId", "queueOffset"]).read_all()))


def _rows(table) -> list[Row]:
    return list(zip(*(table[name].to_pylist() for name in ("topic", "queueId", "queueOffset")), strict=True))


def exported(disk: MemoryDisk, form: str) -> Counter[Row]:
    """The rows of all files that have their names."""
    found: Counter[Row] = Counter()
    for path, content in disk.image().items():
        inside = path.removeprefix(PLACE).strip("/")
        if not path.startswith(PLACE) or inside.startswith("."):
            continue
        topic = inside.split("/")[0].removeprefix("topic=")
        if form == "parquet":
            rows = pq.read_table(io.BytesIO(content)).to_pylist()
        else:
            rows = [json.loads(line) for line in content.decode().splitlines()]
        found.update((topic, row["queueId"], row["queueOffset"]) for row in rows)
    return found


def run(disk, form: str, store: Path, target_bytes: int = 50) -> None:
    export_messages(store, PLACE, wish(form, target_bytes), filesystem=disk)


def go_on(disk: MemoryDisk, form: str, store: Path) -> None:
    """The next run, which ends its steps elsewhere, so that a number is that of a file with other rows in another
    directory; files that have their names stay as they are."""
    before = {path: content for path, content in disk.image().items() if "/part-" in path}
    run(disk, form, store, 1)
    after = disk.image()
    assert {path: after.get(path) for path in before} == before


@pytest.mark.some(3)
@pytest.mark.parametrize("choice", ["lost", "kept", "killed", *(f"torn {number}" for number in range(ROUNDS))])
@pytest.mark.parametrize("form", ["parquet", "json-lines"])
def test_the_power_goes_before_any_operation(form: str, choice: str, store: Path, wanted: Counter[Row]) -> None:
    whole = CrashAt(MemoryDisk())
    run(whole, form, store)
    assert exported(whole.inner, form) == wanted
    for at in every(7, range(1, whole.operations + 1)):
        disk = CrashAt(MemoryDisk(), at)
        with pytest.raises(PowerCut):
            run(disk, form, store)
        torn = random.Random(f"{choice} {at}")
        left = disk.inner.crash(torn if choice.startswith("torn") else choice)  # type: ignore[arg-type]
        assert exported(left, form) <= wanted, at  # a file that has its name is whole, and none comes twice
        go_on(left, form, store)
        assert exported(left, form) == wanted, at
        assert [path for path in left.image() if path.endswith(".tmp")] == [], at


@pytest.mark.parametrize("error", [errno.EIO, "short"])
def test_the_disk_fails_at_any_operation(error, store: Path, wanted: Counter[Row]) -> None:
    whole = WatchedDisk(MemoryDisk())
    run(whole, "parquet", store)
    for at in every(7, range(1, whole.operations + 1)):
        inner = MemoryDisk()
        disk = FailingDisk(inner, at, error)
        with suppress(OSError, StoreError):
            run(disk, "parquet", store)
        go_on(inner, "parquet", store)
        assert exported(inner, "parquet") == wanted, at


class Interrupting(WatchedDisk):
    """Ctrl-C comes before the `at`-th operation, once."""

    def __init__(self, inner: MemoryDisk, at: int) -> None:
        super().__init__(inner)
        self._at = at

    def before(self, operation: Operation) -> None:
        if operation.number == self._at:
            raise KeyboardInterrupt


def test_ctrl_c_comes_before_any_operation(store: Path, wanted: Counter[Row]) -> None:
    whole = WatchedDisk(MemoryDisk())
    run(whole, "parquet", store)
    for at in every(7, range(1, whole.operations + 1)):
        inner = MemoryDisk()
        with pytest.raises(KeyboardInterrupt):
            run(Interrupting(inner, at), "parquet", store)
        go_on(inner, "parquet", store)  # the lock was given back
        assert exported(inner, "parquet") == wanted, at


def test_ctrl_c_comes_when_a_manifest_counts_files_that_have_no_names_yet(store: Path, wanted: Counter[Row]) -> None:
    whole = WatchedDisk(MemoryDisk(), keep_trace=True)
    run(whole, "parquet", store)
    assert whole.trace is not None
    counted = [each.number for each in whole.trace if each.verb == "rename" and "manifest.json" in each.path]
    assert len(counted) > 1
    for number in counted:
        for at in (number + 1, number + 2):  # before the directory is synced, and after
            inner = MemoryDisk()
            with pytest.raises(KeyboardInterrupt):
                run(Interrupting(inner, at), "parquet", store)
            go_on(inner, "parquet", store)
            assert exported(inner, "parquet") == wanted, at


class ManifestFails(WatchedDisk):
    """The power goes when the manifest that counts files is to be replaced, that of the beginning not."""

    def __init__(self, inner: MemoryDisk) -> None:
        super().__init__(inner)
        self.replaced = 0

    def rename(self, source: str, target: str) -> None:
        if target.endswith("/manifest.json"):
            self.replaced += 1
            if self.replaced > 1:
                raise PowerCut
        super().rename(source, target)


@pytest.mark.parametrize("form", ["parquet", "json-lines"])
def test_files_without_a_manifest_that_counts_them_are_no_part_of_it(
    form: str, store: Path, wanted: Counter[Row]
) -> None:
    disk = ManifestFails(MemoryDisk())
    with pytest.raises(PowerCut):
        run(disk, form, store)
    left = disk.inner.crash("kept")
    assert exported(left, form) == Counter()
    go_on(left, form, store)
    assert exported(left, form) == wanted


class LooksAtManifests(WatchedDisk):
    """Notes what a power cut would leave of the files that a manifest is about to count, and what they hold."""

    def __init__(self, inner: MemoryDisk) -> None:
        super().__init__(inner)
        self.inner: MemoryDisk
        self.unfinished: list[tuple[dict[str, bytes], dict[str, bytes]]] = []

    def rename(self, source: str, target: str) -> None:
        if target.endswith("/manifest.json"):
            durable, seen = (
                {path: data for path, data in image.items() if "/unfinished-" in path}
                for image in (self.inner.crash("lost").image(), self.inner.image())
            )
            self.unfinished.append((durable, seen))
        super().rename(source, target)


@pytest.mark.parametrize("form", ["parquet", "json-lines"])
def test_files_and_their_names_are_on_the_disk_before_a_manifest_counts_them(
    form: str, store: Path, wanted: Counter[Row]
) -> None:
    disk = LooksAtManifests(MemoryDisk())
    run(disk, form, store)
    assert exported(disk.inner.crash("lost"), form) == wanted
    assert sum(len(seen) for _, seen in disk.unfinished) >= 2
    for durable, seen in disk.unfinished:
        assert durable == seen
