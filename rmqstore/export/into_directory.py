"""Rows into files below a directory, Parquet or lines of JSON, each row in a file that counts or in none."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.errors import Rejected
from rmqstore.export.directory import ExportDirectory
from rmqstore.export.open_files import GROUP_BYTES, JsonLinesFile, Opener, ParquetFile, RowFile
from rmqstore.export.wish import ExportWish
from rmqstore.files.filesystem import join
from rmqstore.formats.message_columns import Ints
from rmqstore.snapshot.columns import schema_of
from rmqstore.snapshot.search.window import Window

# --- Rows sorted out by the directories that they go to: topic=NAME/day=YYYY-MM-DD, written as Spark writes them.

_DAY_US = 86_400_000_000
_NO_DAY = np.iinfo(np.int64).min
# Spark: ExternalCatalogUtils.escapePathName, and the name of a partition without a value.
_ESCAPED = re.compile("[\x01-\x1f\"#%'*/:=?\\\\\x7f{\\[\\]^]")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_NAME_SIZE_MAX = 255  # bytes, of a directory in common file systems


class Part(NamedTuple):
    """Rows that go to one directory, whose path from the export's is "" or ends without a slash."""

    directory: str
    rows: pa.RecordBatch


def parts_of(batch: pa.RecordBatch, by: Sequence[str], day_of: str) -> Iterator[Part]:
    """The rows of a batch by directory, in their order; the batch itself where all go to one."""
    if not batch.num_rows:
        return
    topics = batch.column("topic").dictionary_encode() if "topic" in by else None
    days = _days(batch.column(day_of)) if "day" in by else np.zeros(batch.num_rows, np.int64)
    numbers = np.zeros(batch.num_rows, np.int64)
    if topics is not None:
        numbers = topics.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    places, owners = _distinct(numbers, days)
    order = np.argsort(owners, kind="stable") if len(places) > 1 else None
    ends = np.cumsum(np.bincount(owners, minlength=len(places)))
    for place, (number, day) in enumerate(places):
        values = {"day": _day_text(day)}
        if topics is not None:
            values["topic"] = None if number < 0 else topics.dictionary[number].as_py()
        directory = "/".join(f"{name}={_escaped(values[name])}" for name in by)
        if order is None:
            yield Part(directory, batch)
        else:
            first = int(ends[place - 1]) if place else 0
            yield Part(directory, batch.take(pa.array(order[first : int(ends[place])])))


def require_room(topics: Iterable[str], by: Sequence[str]) -> None:
    """Raises Rejected for a topic whose name, escaped, is too long for a directory, where there is one for each."""
    for topic in topics if "topic" in by else ():
        if len(f"topic={_escaped(topic)}".encode("utf-8", "surrogatepass")) > _NAME_SIZE_MAX:
            raise Rejected(
                f"topic {topic[:60]}…: its name, escaped, is too long for a directory of its own; use "
                "partition_by=('day',) or () (--partition-by day, or none)"
            )


def _distinct(numbers: Ints, days: Ints) -> tuple[list[tuple[int, int]], Ints]:
    """The distinct pairs, and int64[n] which of them a row has; rows mostly agree."""
    if (numbers == numbers[0]).all() and (days == days[0]).all():
        return [(int(numbers[0]), int(days[0]))], np.zeros(len(numbers), np.int64)
    pairs, owners = np.unique(np.stack((numbers, days), axis=1), axis=0, return_inverse=True)
    return [(int(number), int(day)) for number, day in pairs], owners.reshape(-1).astype(np.int64)


def _days(times: pa.Array) -> Ints:
    """int64[n]: days since 1970 in UTC; _NO_DAY where there is no time."""
    days = times.cast(pa.int64()).fill_null(0).to_numpy() // _DAY_US
    return np.where(np.asarray(times.is_valid().to_numpy(zero_copy_only=False), bool), days, _NO_DAY)


def _day_text(day: int) -> str | None:
    if day == _NO_DAY:
        return None
    text = str(np.datetime64(day, "D"))
    return text if len(text) <= len("2026-11-25") else f"+{text}"


def _escaped(value: str | None) -> str:
    if not value:
        return _NO_VALUE
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", value)


# ---

# Rows of all directories together are held until they take so much.
_HELD_BYTES = 256 * 1024 * 1024
_OPEN_FILES_MAX = 32
# A step is made durable after so many full files, more where rows go to many directories, and after so many seconds:
# what a kill takes is done again.
_FILES_A_STEP, _FILES_A_STEP_MAX = 4, 32
_STEP_S = 60.0
# So many directories a step, whatever their sizes.
_DIRECTORIES_MAX = 1024
# Files are called by their numbers.
_FILE_NAME = re.compile(r"part-(\d{12})\.")
_ENDINGS = {"zstd": ".zst", "gzip": ".gz", "none": ""}


class DirectoryTarget:
    """The files of one run: rows are added, and counted from the next `commit` on; one thread."""

    def __init__(self, directory: ExportDirectory, wish: ExportWish) -> None:
        self._directory, self._wish = directory, wish
        self._schema = schema_of(wish.file_columns)
        is_parquet = wish.format == "parquet"
        self._opener: Opener = ParquetFile if is_parquet else JsonLinesFile
        self._compression = wish.compression or ("zstd" if is_parquet else "none")
        self._ending = ParquetFile.ending if is_parquet else JsonLinesFile.ending + _ENDINGS[self._compression]
        self._next_file = directory.manifest.next_file
        self._held: dict[str, _Held] = {}
        self._open: dict[str, tuple[int, RowFile]] = {}  # by directory; the one written last comes last
        self._whole: dict[int, str] = {}
        self._held_size = self._written = self._row_count = 0
        self._step_began_s = monotonic()
        self.left_out: Mapping[str, int] = {}  # files take all topics

    @property
    def manifest(self) -> Any:
        """The last that was committed."""
        return self._directory.manifest

    @property
    def is_full(self) -> bool:
        """Whether it is time to commit."""
        files = min(max(len(self._held), _FILES_A_STEP), _FILES_A_STEP_MAX)
        is_large = self._written + self._held_size >= files * self._wish.target_bytes
        is_late = self._row_count > 0 and monotonic() - self._step_began_s > _STEP_S
        return is_large or is_late or len(self._held) >= _DIRECTORIES_MAX

    @property
    def gone_file_count(self) -> int:
        """How many of the files that were committed are not there any more.  Lists all directories."""
        return self._directory.gone_count(_FILE_NAME, len(self._wish.partition_by))

    def add(self, rows: pa.RecordBatch) -> None:
        """Takes rows.  Raises Rejected for a topic that can have no directory, OSError."""
        if "topic" in self._wish.partition_by:
            require_room(pc.unique(rows.column("topic")).drop_null().to_pylist(), self._wish.partition_by)
        self._row_count += rows.num_rows
        for directory, part in parts_of(rows, self._wish.partition_by, self._wish.day_of):
            held = self._held.setdefault(directory, _Held())
            self._held_size += held.add(part.select(self._schema.names))
            if held.size >= min(GROUP_BYTES, self._wish.target_bytes):
                self._write(directory)
        while self._held_size > _HELD_BYTES:
            self._write(max(self._held, key=lambda name: self._held[name].size))

    def begin(self, offsets: Mapping[str, Any], window: Window) -> None:
        """Makes the directory this export's.  Raises Rejected for a topic that can have no directory, OSError."""
        require_room(offsets, self._wish.partition_by)
        begun = replace(
            self._directory.manifest, offsets=offsets, since_ms=window.since_ms, until_ms=window.until_ms
        )  # fmt: skip
        self._directory.commit({}, begun)

    def commit(self, offsets: Mapping[str, Any]) -> None:
        """Makes everything durable, with the offsets after it.  Raises OSError; then the last commit counts."""
        for directory in list(self._held):
            self._write(directory)
        for directory in list(self._open):
            self._finish(directory)
        before = self._directory.manifest
        self._directory.commit(
            self._whole,
            replace(
                before, offsets=offsets, next_file=self._next_file,
                message_count=before.message_count + self._row_count,
            ),
        )  # fmt: skip
        self._held.clear()
        self._whole = {}
        self._written = self._row_count = 0
        self._step_began_s = monotonic()

    def end(self) -> None:
        """Leaves the directory; rows that were not committed are forgotten."""
        for _, file in self._open.values():
            file.give_up()
        self._open.clear()
        self._directory.release()

    def _write(self, directory: str) -> None:
        """Writes what is held for a directory, a row group."""
        batches, size = self._held[directory].taken()
        self._held_size -= size
        if not batches:
            return
        number, file = self._open.pop(directory) if directory in self._open else self._begun()
        self._open[directory] = number, file
        before = file.size
        file.write(pa.Table.from_batches(batches, self._schema))
        self._written += file.size - before
        if file.size >= self._wish.target_bytes:
            self._finish(directory)

    def _begun(self) -> tuple[int, RowFile]:
        if len(self._open) >= _OPEN_FILES_MAX:
            self._finish(next(iter(self._open)))
        number = self._next_file
        self._next_file += 1
        path = self._directory.unfinished_path(number)
        return number, self._opener(self._directory.fs, path, self._schema, self._compression)

    def _finish(self, directory: str) -> None:
        """Makes the open file of a directory whole."""
        number, file = self._open[directory]
        file.finish()
        del self._open[directory]
        self._whole[number] = join(directory, f"part-{number:012}{self._ending}") if directory else (
            f"part-{number:012}{self._ending}"
        )  # fmt: skip


class _Held:
    """Rows of one directory that wait."""

    def __init__(self) -> None:
        self.size = 0
        self._batches: list[pa.RecordBatch] = []

    def add(self, rows: pa.RecordBatch) -> int:
        """Takes rows; their bytes."""
        size = int(rows.get_total_buffer_size()) if len(rows.schema) else 0
        self._batches.append(rows)
        self.size += size
        return size

    def taken(self) -> tuple[list[pa.RecordBatch], int]:
        """All of them, and their bytes; none are left."""
        batches, size = self._batches, self.size
        self._batches, self.size = [], 0
        return batches, size
