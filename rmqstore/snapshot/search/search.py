"""Messages by what is in them: conditions that go together, answered by an index or a range where these are known to
be right, else by reading.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.formats.message_columns import Mask
from rmqstore.snapshot.columns import PROPERTY_PREFIX
from rmqstore.snapshot.plan.range_pruning import prune_ranges
from rmqstore.snapshot.reader import SnapshotReader
from rmqstore.snapshot.request import BODY_BYTES_MAX, QueueRange, ScanRequest, SplitBudget
from rmqstore.snapshot.scan.split_reader import read_split
from rmqstore.snapshot.search.body_text import BodyText
from rmqstore.snapshot.search.meant_topics import ALL_TOPICS, MeantTopics
from rmqstore.snapshot.search.window import ALWAYS, Window
from rmqstore.snapshot.split import Split

# Small enough that a bar moves.
_SPLIT_BYTES = 128 * 1024 * 1024
_BATCH_ROWS = 4096
_ID_COLUMNS = ("msgId", "offsetMsgId")
_BORN = "bornHost"

Tell = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Conditions of which a message fulfils all that are given: its topic, one of some `tags`, one of some `keys` (or
    message ids), one of some `ids` (unique key or offset message id) exactly, a `window` of time, a text in its body,
    all `properties`, each with a value, and one of some `born_hosts`, host or host:port, that it was sent from.
    """

    topics: MeantTopics = ALL_TOPICS
    include_system_topics: bool = False
    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    window: Window = ALWAYS
    text: BodyText | None = None
    properties: tuple[tuple[str, str], ...] = ()
    born_hosts: tuple[str, ...] = ()

    @property
    def has_conditions(self) -> bool:
        """Whether anything but its topic is asked of a message."""
        asked = (self.tags, self.keys, self.ids, self.text, self.properties, self.born_hosts, not self.window.is_open)
        return any(asked)

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that it is answered by."""
        named: list[str] = [] if self.window.is_open else [self.window.column]
        named += list(_ID_COLUMNS) if self.ids else []
        named += ["tags"] if self.tags else []
        named += ["body"] if self.text else []
        named += [f"{PROPERTY_PREFIX}{name}" for name, _ in self.properties]
        named += [_BORN] if self.born_hosts else []
        return tuple(named)

    def holds(self, batch: pa.RecordBatch) -> Mask:
        """bool[n]: which rows fulfil what columns tell; the keys were asked of the reader."""
        inside = self.window.holds(batch)
        if self.ids:
            given = pa.array(dict.fromkeys((*self.ids, *(one.upper() for one in self.ids))), pa.string())
            unique = pa.array(self.ids, pa.string())
            inside = inside & (_among(batch.column("msgId"), unique) | _among(batch.column("offsetMsgId"), given))
        if self.tags:
            inside = inside & _among(batch.column("tags"), pa.array(self.tags, pa.string()))
        for name, value in self.properties:
            inside = inside & _among(batch.column(f"{PROPERTY_PREFIX}{name}"), pa.array([value], pa.string()))
        if self.born_hosts:
            inside = inside & _sent_from(batch.column(_BORN), self.born_hosts)
        if self.text is not None and inside.any():
            inside = inside & self.text.is_in(batch.column("body"))
        return inside


class SearchRun:
    """The answer to a search of a snapshot, batch by batch; damaged messages are in none, and counted.

    Rows of a queue come in their order.  Raises UnknownTopic at once, and what a scan raises but for lost messages.
    """

    def __init__(
        self, snapshot: SnapshotReader, search: Search, columns: Sequence[str], tell: Tell | None = None, *,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:  # fmt: skip
        """`tell` hears how many parts were read, and of how many; `body_bytes_max` as in a scan."""
        self._search, self._tell = search, tell or _untold
        self._columns = tuple(dict.fromkeys(columns))
        wanted = _looked_up(search)
        self._request = ScanRequest(
            columns=tuple(dict.fromkeys((*columns, *search.columns, "corruptReason"))), tags=search.tags, keys=wanted,
            on_corrupt_record="null", fail_on_data_loss=False, batch_rows=_BATCH_ROWS, body_bytes_max=body_bytes_max,
        )  # fmt: skip
        topics = search.topics
        if topics.pattern is not None:
            held = sorted({topic for store in snapshot.stores for topic, _ in store.queues})
            topics.require_known(held, ", ".join(store.path for store in snapshot.stores))
        ranges: Sequence[QueueRange] = snapshot.select(
            topics.topics, topics.pattern, include_system_topics=search.include_system_topics, fail_on_data_loss=False
        )
        ranges = prune_ranges(snapshot.stores, ranges, search.window.conditions)
        # A plan for damage as rows looks no keys up in an index.  Damage where the index leads is a row all the same.
        planned = replace(self._request, on_corrupt_record="skip") if wanted else self._request
        self._splits: list[Split] = snapshot.plan(ranges, planned, SplitBudget(max_bytes=_SPLIT_BYTES))
        self.damaged_count = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for number, split in enumerate(self._splits):
            self._tell(number, len(self._splits))
            for batch in read_split(split, self._request):
                found = self._found(batch)
                if found.num_rows:
                    yield found
        self._tell(len(self._splits), len(self._splits))

    def _found(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        sound = np.asarray(batch.column("corruptReason").is_null().to_numpy(zero_copy_only=False), bool)
        self.damaged_count += int((~sound).sum())
        rows = sound & self._search.holds(batch) if self._search.has_conditions else sound
        kept = batch.select(self._columns)
        return kept if rows.all() else kept.filter(pa.array(rows))


def _looked_up(search: Search) -> tuple[str, ...]:
    """The keys that the reader is asked for: of keys and ids one kind, the other is judged by columns."""
    return search.keys or search.ids


def _untold(_done: int, _total: int) -> None:
    """Nobody wants to know."""


def _sent_from(addresses: pa.Array, wanted: Sequence[str]) -> Mask:
    """Which addresses, host:port, are one of those that are wanted: with any port, where these have none."""
    hosts = pc.replace_substring_regex(addresses, r":\d+$", "")
    wishes = pa.array(wanted, pa.string())
    return _among(addresses, wishes) | _among(hosts, wishes)


def _among(column: pa.Array, wanted: pa.Array) -> Mask:
    return np.asarray(pc.is_in(column, wanted).to_numpy(zero_copy_only=False), bool)
