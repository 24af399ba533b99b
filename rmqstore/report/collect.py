"""The figures of a snapshot, collected: what `inspect` has found already, the tables beside the messages, one scan."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from rmqstore.errors import StoreError, next_step
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.formats.java_text import java_text
from rmqstore.formats.names import is_light_queue, is_system_topic
from rmqstore.log.retention.plan import RetentionPolicy
from rmqstore.report import beside
from rmqstore.report.expiry import LogFileFacts, growth_of, levels_of, outlook_of
from rmqstore.report.figures import (
    DamageFigures,
    DiskFigures,
    Figures,
    GroupFigures,
    Missing,
    Part,
    StoreFigures,
    TopicFigures,
)
from rmqstore.report.traffic import TimeBins, TrafficCount, TrafficFigures, is_plausible, traffic_batches
from rmqstore.snapshot.finding import DAMAGE, Finding
from rmqstore.snapshot.reader import SnapshotReader
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.snapshot.tables.table_names import TableName
from rmqstore.snapshot.tables.tables import table_schema
from rmqstore.snapshot.verify import verify

# What `inspect --json` prints of one store.
Document = Mapping[str, Any]
# Is told what is being done, and how many bytes of the log more are done.
Tell = Callable[[str, int], None]
_FINDINGS_MAX = 500


@dataclass(frozen=True, slots=True)
class Wishes:
    """The wishes of whoever asks for a report: `top` topics get a line of their own in the plot of the traffic."""

    title: str
    now_ms: int
    made_by: str
    top: int = 10
    reads_traffic: bool = True
    verifies: bool = True
    policy: RetentionPolicy = field(default_factory=RetentionPolicy)


def collect(snapshot: SnapshotReader, documents: Sequence[Document], wishes: Wishes, tell: Tell) -> Figures:
    """The figures of a snapshot's stores; `documents` are what `inspect --json` prints of them, in their order.

    A part that cannot be read is left out and told in `missing`: damage never ends a report.
    """
    missing: list[Missing] = []
    tables = {name: _tables(snapshot, name, columns, wishes.now_ms, missing) for name, columns in _COLUMNS.items()}
    traffic = _traffic(snapshot, documents, wishes, tell, missing) if wishes.reads_traffic else None
    lags, times = beside.lags_of(tables["groups"]), beside.log_times(tables["files"])
    stores = [
        _store(store, document, wishes, tell, missing, times)
        for store, document in zip(snapshot.stores, documents, strict=True)
    ]
    return Figures(
        wishes.title, wishes.now_ms, wishes.made_by, wishes.policy, wishes.reads_traffic, wishes.verifies,
        tuple(stores),
        tuple(_topics(documents, traffic)),
        tuple(_groups(documents, lags)),
        traffic,
        beside.delayed_figures(tables["delayed"], wishes.now_ms),
        beside.transaction_figures(tables["transactions"]),
        beside.pending_transactions(tables["transactions"]),
        beside.kinds_of(tables["files"]),
        tuple(missing),
    )  # fmt: skip


_COLUMNS: dict[TableName, Sequence[str]] = {
    "groups": beside.GROUP_COLUMNS,
    "delayed": beside.DELAYED_COLUMNS,
    "transactions": beside.TRANSACTION_COLUMNS,
    "files": beside.FILE_COLUMNS,
}


def _tables(
    snapshot: SnapshotReader, name: TableName, columns: Sequence[str], now_ms: int, missing: list[Missing]
) -> pa.Table:
    """The table of all stores; one of a store that cannot be read is noted in `missing` and empty."""
    parts = [table_schema(name, columns).empty_table()]
    for store in snapshot.stores:
        with _noted(store.broker_name, name, missing):
            parts.append(SnapshotReader((store,), store.access).table(name, columns, now_ms))
    return pa.concat_tables(parts)


@contextmanager
def _noted(broker: str, part: Part, missing: list[Missing]) -> Iterator[None]:
    """Notes the reason when a store or its disk refuses something."""
    try:
        yield
    except StoreError as error:
        missing.append(Missing(broker, part, str(error)))
    except OSError as error:
        missing.append(Missing(broker, part, f"{error.filename}: {error.strerror}; {next_step(error)}"))


def _traffic(
    snapshot: SnapshotReader, documents: Sequence[Document], wishes: Wishes, tell: Tell, missing: list[Missing]
) -> TrafficFigures | None:
    """The traffic of all stores, with lines for the topics of most messages; None where no message has a time."""
    counts: dict[str, int] = {}
    times = []
    for topic in (topic for document in documents for topic in document["topics"]):
        counts[topic["topic"]] = counts.get(topic["topic"], 0) + topic["messages"]
        times += [queue[name] for queue in topic["queues"] for name in ("oldestMs", "newestMs")]
    held = [time for time in times if is_plausible(time, wishes.now_ms)]
    if not held:
        return None
    bins = TimeBins.between(min(held), max(held))
    named = [name for name, count in counts.items() if count and not is_light_queue(name)]
    lines = sorted(named, key=lambda name: (-counts[name], name))[: wishes.top]
    count = TrafficCount(bins, lines)
    for store in snapshot.stores:
        with _noted(store.broker_name, "traffic", missing):
            for batch in traffic_batches(store):
                tell("reading messages", count.add(store.broker_name, batch))
    return count.traffic()


def _topics(documents: Sequence[Document], traffic: TrafficFigures | None) -> Iterator[TopicFigures]:
    sizes = traffic.sizes if traffic is not None else {}
    for document in documents:
        for topic in document["topics"]:
            queues, key = topic["queues"], (document["brokerName"], topic["topic"])
            yield TopicFigures(
                *key, is_system_topic(topic["topic"]), topic["perm"], len(queues), topic["messages"], sizes.get(key),
                min((queue["oldestMs"] for queue in queues if queue["oldestMs"] is not None), default=None),
                max((queue["newestMs"] for queue in queues if queue["newestMs"] is not None), default=None),
            )  # fmt: skip


def _groups(documents: Sequence[Document], lags: Mapping[beside.GroupPlace, int | None]) -> Iterator[GroupFigures]:
    for document in documents:
        for group in document["groups"]:
            key = (document["brokerName"], group["group"], group["topic"])
            yield GroupFigures(*key, len(group["queues"]), group["backlog"], lags.get(key))


def _store(
    store: StoreExtent, document: Document, wishes: Wishes, tell: Tell, missing: list[Missing],
    times: Mapping[str, tuple[int | None, int | None]],
) -> StoreFigures:  # fmt: skip
    files = []
    for file in store.log_files:
        path = java_text(file.path.encode(errors="surrogateescape"))
        known = (time if is_plausible(time, wishes.now_ms) else None for time in times.get(path, (None, None)))
        used = min(max(store.log_end - file.start, 0), file.size)
        files.append(LogFileFacts(file.path, file.start, file.size, used, file.modified_ms, *known))
    growth = growth_of(files, store.log_end)
    outlook = outlook_of(files, store.log_end, growth, wishes.policy, wishes.now_ms)
    damage = None
    if wishes.verifies:
        with _noted(store.broker_name, "damage", missing):
            damage = _damage(store, tell)
    return StoreFigures(
        store.path, store.broker_name, document["versionLine"], document["lockHeld"], document["abortPresent"],
        store.queue_layout, store.log_start, store.log_end, tuple(outlook), growth,
        tuple(levels_of(outlook, store.log_end, growth, wishes.policy, wishes.now_ms)), _disk(store), damage,
    )  # fmt: skip


def _disk(store: StoreExtent) -> DiskFigures:
    """The host's disk, as a broker that runs here would see it."""
    fs, path = RealFileSystem(), store.log_files[0].path if store.log_files else store.path
    try:
        return DiskFigures(fs.used_ratio(path), fs.free_bytes(path))
    except OSError:
        return DiskFigures(-1.0, 0)  # gone since it was looked at


def _damage(store: StoreExtent, tell: Tell) -> DamageFigures:
    counts, listed, done = {True: 0, False: 0}, list[Finding](), 0

    def told(checked: int) -> None:
        nonlocal done
        tell("checking", checked - done)
        done = checked

    for finding in verify(store, told):
        is_damage = finding.severity == DAMAGE
        counts[is_damage] += 1
        if len(listed) < _FINDINGS_MAX:
            listed.append(finding)
    return DamageFigures(counts[True], counts[False], tuple(listed))
