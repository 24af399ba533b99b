"""The wish of an export: which messages, which of their columns, and how they are laid out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rmqstore.core.arguments import integer, word
from rmqstore.errors import Rejected
from rmqstore.formats.names import NOT_SENDABLE_TOPICS
from rmqstore.snapshot.columns import DEFAULT_COLUMNS, resolve_columns
from rmqstore.snapshot.request import BATCH_ROWS, AnyOf, OnCorruptRecord, ScanRequest, wanted_keys, wanted_tags
from rmqstore.snapshot.search.window import ALWAYS, WINDOW_COLUMNS, TimeColumn, Window

Format = Literal["parquet", "json-lines", "store"]
Compression = Literal["zstd", "snappy", "gzip", "none"]
PARTITIONS = ("topic", "day")
TARGET_BYTES = 128 * 1024 * 1024
_JSON_LINES = "json-lines"
# Of lines of JSON; Parquet has its own.
_LINE_COMPRESSIONS = ("zstd", "gzip", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportWish:
    """Which messages go where.  `topics` and `pattern` as in `Snapshot.select`; `columns`, `tags`, `keys` and
    `on_corrupt_record` as in `scan`; `window` chooses by time, row by row.

    Files are laid out by `partition_by`, "topic", "day" or both, as topic=NAME/day=YYYY-MM-DD; the day is that of
    `day_of`, in UTC.  `compression` None is zstd for Parquet and none for JSON lines; files have about `target_bytes`.
    With `skip_lost` messages that were deleted before they were read are left out instead of ending the export.
    `batch_rows` are read at once, at the most.  `time_words` are the times of the window as the user wrote them: by
    these it is known again.
    Raises Rejected for what makes no sense.
    """

    format: Format = "parquet"
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    include_system_topics: bool = False
    columns: Sequence[str] | str | None = None
    tags: AnyOf = ()
    keys: AnyOf = ()
    window: Window = ALWAYS
    time_words: tuple[str | None, str | None] = (None, None)
    partition_by: tuple[str, ...] = PARTITIONS
    day_of: TimeColumn = WINDOW_COLUMNS[0]
    compression: Compression | None = None
    target_bytes: int = TARGET_BYTES
    on_corrupt_record: OnCorruptRecord = "fail"
    skip_lost: bool = False
    batch_rows: int = BATCH_ROWS

    def __post_init__(self) -> None:
        word("format", self.format, get_args(Format))
        word("day_of", self.day_of, WINDOW_COLUMNS)
        if self.compression is not None:
            word("compression", self.compression, get_args(Compression))
        integer("target_bytes", self.target_bytes, 1)
        integer("batch_rows", self.batch_rows, 1)
        if len(set(self.partition_by)) != len(self.partition_by) or not set(PARTITIONS).issuperset(self.partition_by):
            raise Rejected(f"partition_by={', '.join(self.partition_by)}: write topic, day, or both, each once")
        object.__setattr__(self, "tags", wanted_tags(self.tags))
        object.__setattr__(self, "keys", wanted_keys(self.keys))
        self._require_fit()

    def _require_fit(self) -> None:
        if self.format == _JSON_LINES and self.compression not in (None, *_LINE_COMPRESSIONS):
            raise Rejected(f"compression={self.compression}: JSON lines take {', '.join(_LINE_COMPRESSIONS)}")
        if self.format == "store":
            if self.columns is not None or self.compression is not None:
                raise Rejected("columns and compression: leave them out, because a store takes whole messages")
            if self.on_corrupt_record == "null":
                raise Rejected("on_corrupt_record=null: a damaged message cannot be put into a store; skip it, or fail")
            for topic in sorted(NOT_SENDABLE_TOPICS.intersection(self.topics or ())):
                raise Rejected(
                    f"topics: no message can be put to {topic}; leave it out, or export it as parquet or json-lines"
                )
        elif self.file_columns == ():
            raise Rejected("columns: all of them are partitions; name one more")

    @property
    def reads_damage(self) -> bool:
        """Whether damaged messages are read as rows, to be kept or counted.  With these no index finds keys: so those
        that are skipped beside keys are not counted.
        """
        return self.on_corrupt_record == "null" or (self.on_corrupt_record == "skip" and not wanted_keys(self.keys))

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns that messages are read with."""
        chosen = resolve_columns(self.columns if self.columns is not None else DEFAULT_COLUMNS)
        needed = ["topic"] if "topic" in self.partition_by else []
        needed += [self.day_of] if "day" in self.partition_by else []
        needed += [] if self.window.is_open else [self.window.column]
        return tuple(dict.fromkeys((*chosen, *needed)))

    @property
    def file_columns(self) -> tuple[str, ...]:
        """The columns in the files: a topic that a directory tells is in no file of it."""
        chosen = resolve_columns(self.columns if self.columns is not None else DEFAULT_COLUMNS)
        return tuple(name for name in chosen if name != "topic" or "topic" not in self.partition_by)

    def request(self, columns: Sequence[str]) -> ScanRequest:
        """How the messages are read."""
        return ScanRequest(
            columns=tuple(columns), tags=wanted_tags(self.tags), keys=wanted_keys(self.keys),
            on_corrupt_record="null" if self.reads_damage else self.on_corrupt_record,
            fail_on_data_loss=not self.skip_lost, batch_rows=self.batch_rows,
        )  # fmt: skip

    def told(self, stores: Any) -> dict[str, Any]:
        """The part by which an export is known again, as JSON; what only changes the looks of files is not in it."""
        window = self.window
        times = [
            said if said is not None else at
            for said, at in zip(self.time_words, (window.since_ms, window.until_ms), strict=True)
        ]
        return {
            "stores": stores, "format": self.format, "topics": None if self.topics is None else sorted(self.topics),
            "pattern": self.pattern, "system topics": self.include_system_topics,
            "columns": None if self.format == "store" else list(self.file_columns), "tags": sorted(self.tags or ()),
            "keys": sorted(self.keys or ()), "since": times[0], "until": times[1], "times": window.column,
            "directories": None if self.format == "store" else list(self.partition_by),
            "day of": self.day_of if "day" in self.partition_by and self.format != "store" else None,
            "damaged messages": self.on_corrupt_record,
        }  # fmt: skip
