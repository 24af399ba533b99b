"""The first screen of `rmqstore inspect`: short for stores of any size, and made from little that is read."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import click

from rmqstore.cli.inspection.document import (
    Document,
    checkpoint_document,
    group_documents,
    index_documents,
    ledger_document,
)
from rmqstore.cli.output import byte_size, counted, fitted_rows, print_table, printable, utc, wrapped
from rmqstore.directory.config_files import topics
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.formats.names import QueueKey
from rmqstore.report.words import span_of
from rmqstore.snapshot.lookup.end_times import log_times, queue_span_times
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.snapshot.tables.file_rows import file_rows

# Rows of a list on the first screen.
_SHOWN = 10
_DAMAGE_SHOWN = 5


class _Topic(NamedTuple):
    name: str
    message_count: int
    queues: tuple[QueueKey, ...]


def show_store(store: StoreExtent) -> None:
    """Prints the first screen of one store."""
    click.echo(printable(store.path))
    found = _topics(store)
    for name, fact in _facts(store, found):
        click.echo(wrapped(f"  {name:13}  ", fact))
    for first, end in store.log_holes:
        click.echo(wrapped("  lost           ", f"no commitlog file holds bytes {first} to {end}"))
    _show_damage(store)
    _show_topics(store, found)
    _show_groups(store)


def _facts(store: StoreExtent, found: Sequence[_Topic]) -> Iterable[tuple[str, str]]:
    yield "broker", f"{store.broker_name}, as RocketMQ {store.version_line} writes"
    yield "state", _state(store)
    yield "messages", _messages_line(found)
    yield "stored (UTC)", _age_line(store)
    yield "commitlog", _log_line(store)
    ledger = ledger_document(store)
    if ledger is not None:
        yield "DLedger", _ledger_line(ledger)
    is_plain = store.queue_layout == "file"
    in_rocksdb = (
        "RocksDB, not read: scans walk the commitlog" if store.database is None else "RocksDB, read by rocksdict"
    )
    yield "queues", "consume queue files" if is_plain else in_rocksdb
    yield "index", _index_line(index_documents(store))
    known = checkpoint_document(store)
    yield "checkpoint", "none" if known is None else _checkpoint_line(known)
    yield "disk", _disk_line(store)
    if is_plain and any(queue.gap for queue in store.queues.values()):
        yield "not in queues", f"some messages from commitlog offset {store.walk_from} on"


def _state(store: StoreExtent) -> str:
    if store.lock_held:
        return "open: a broker or another program of this host holds the lock"
    if store.abort_present:
        return "not stopped cleanly, or running elsewhere: the file abort is there"
    return "stopped"


def _topics(store: StoreExtent) -> list[_Topic]:
    """Topics that have messages or a configuration, the largest first."""
    queues: dict[str, list[QueueKey]] = {name: [] for name in topics(store.disk, store.path)}
    counts = Counter[str]()
    for key, queue in store.queues.items():
        queues.setdefault(key[0], []).append(key)
        counts[key[0]] += queue.max_offset - queue.min_offset
    found = [_Topic(name, counts[name], tuple(keys)) for name, keys in queues.items()]
    return sorted(found, key=lambda topic: (-topic.message_count, topic.name))


def _messages_line(found: Sequence[_Topic]) -> str:
    queue_count = sum(len(topic.queues) for topic in found)
    total = sum(topic.message_count for topic in found)
    return f"{counted(total, 'message')} in {counted(len(found), 'topic')} and {counted(queue_count, 'queue')}"


def _age_line(store: StoreExtent) -> str:
    oldest, newest = log_times(store)
    if oldest is None or newest is None:
        return "no message that can be read"
    return f"{utc(oldest)} to {utc(newest)}, {span_of(newest - oldest)}"


def _log_line(store: StoreExtent) -> str:
    held = byte_size(store.log_end - store.log_start)
    sizes = {file.size for file in store.log_files}
    files = counted(len(store.log_files), "file")
    of = f" of {byte_size(sizes.pop())}" if len(sizes) == 1 else ""
    return f"{store.log_start} to {store.log_end}, {held} in {files}{of}"


def _ledger_line(ledger: Document) -> str:
    term = "no term" if ledger["currTerm"] is None else f"term {ledger['currTerm']}"
    said = f"node {ledger['selfId'] or '(no name)'}, {term}, checkpoint at entry {ledger['committedIndex']}"
    if ledger["dividedCommitlogOffset"]:
        said += f", from {ledger['dividedCommitlogOffset']} on"
    if ledger["uncommittedEntries"]:
        said += f"; uncommitted, left out: {ledger['uncommittedEntries']:,} from index {ledger['uncommittedFrom']} on"
    return said


def _index_line(files: Sequence[Document]) -> str:
    item_count = sum(file["itemCount"] for file in files)
    return f"{counted(len(files), 'file')}, {counted(item_count, 'item')}" if files else "none"


def _checkpoint_line(checkpoint: Document) -> str:
    times = {"commitlog": checkpoint["physicMsgTimestamp"], "queues": checkpoint["logicsMsgTimestamp"]}
    return ", ".join(f"{what} {utc(time_ms) if time_ms else 'never written'}" for what, time_ms in times.items())


def _disk_line(store: StoreExtent) -> str:
    """Bytes on the disk by kind of file, the largest first, and what is free where the log lies.  A timer wheel is a
    hole of 37 MB until there are timers."""
    sizes = Counter[str]()
    rows = file_rows(store, "auto", frozenset())
    for kind, size, allocated in zip(rows["kind"], rows["size"], rows["allocated"], strict=True):
        sizes[kind] += size if allocated is None else allocated
    said = ", ".join(f"{kind} {byte_size(size)}" for kind, size in sizes.most_common() if size) or "nothing"
    try:
        free = RealFileSystem().free_bytes(store.log_files[-1].path if store.log_files else store.path)
    except OSError:  # gone since it was looked at
        return said
    return f"{said}; {byte_size(free)} free"


def _show_damage(store: StoreExtent) -> None:
    for found in store.damage[:_DAMAGE_SHOWN]:
        place = found.path.removeprefix(store.path + "/")
        click.echo(wrapped("  damage         ", f"{place} @ {found.position}: {found.reason}"))
    left_out = len(store.damage) - _DAMAGE_SHOWN
    if left_out > 0:
        click.echo(f"  {'':13}  and {counted(left_out, 'more place')}: --json and `rmqstore verify` list all")


def _show_topics(store: StoreExtent, found: Sequence[_Topic]) -> None:
    if not found:
        return
    shown = found[:_SHOWN]
    click.echo(f"\n{_headline('largest topics', len(shown), len(found))}")
    times = queue_span_times(store, [key for topic in shown for key in topic.queues])
    rows = []
    for topic in shown:
        spans = [times[key] for key in topic.queues]
        oldest = min((time for time, _ in spans if time is not None), default=None)
        newest = max((time for _, time in spans if time is not None), default=None)
        rows.append((topic.name, f"{topic.message_count:,}", str(len(topic.queues)), utc(oldest), utc(newest)))
    heads = ("topic", "messages", "queues", "oldest (UTC)", "newest (UTC)")
    print_table(heads, fitted_rows(heads, rows, "topic"), right="messages,queues")


def _show_groups(store: StoreExtent) -> None:
    groups = sorted(group_documents(store), key=lambda group: (-group["backlog"], group["group"], group["topic"]))
    if not groups:
        return
    shown = groups[:_SHOWN]
    click.echo(f"\n{_headline('consumer groups by backlog, messages still to consume', len(shown), len(groups))}")
    rows = [(group["group"], group["topic"], f"{group['backlog']:,}") for group in shown]
    heads = ("group", "topic", "backlog")
    print_table(heads, fitted_rows(heads, rows, "group,topic"), right="backlog")


def _headline(what: str, shown: int, total: int) -> str:
    return what if shown == total else f"{what} ({shown} of {total:,})"
