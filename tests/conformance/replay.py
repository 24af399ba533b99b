"""Java's store written once more here: the same messages at the same times, then every file byte for byte."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message, PutStatus
from rmqstore.engine.store import Store, open_store
from rmqstore.formats import message as layouts
from rmqstore.formats.host import decode_host
from rmqstore.formats.index import read_header
from rmqstore.formats.message import Blank, Record, Torn, read_record
from rmqstore.formats.properties import CRC32
from tests.conformance.our_answers import checkpoint_of
from tests.conformance.workload import JAVA_SIZES, LOG_FILE_SIZE, Json, as_table

# What may differ, and why; everything else is equal to the byte.
CANNOT_BE_EQUAL = {
    "commitlog: files of zeros behind the last record":
        "RocketMQ makes the next log files ahead of time and leaves them; we remove what was never used",
    "index: file names": "the local time of their making",
    "checkpoint: confirm_offset, master_flushed_offset":
        "RocketMQ sets them by its replication and its last recovery; no part of a store of one",
    "checkpoint: physic_timestamp_ms":
        "RocketMQ notes the last append of the last file that a thorough flush touched, which may be behind the end",
    "checkpoint: logics_timestamp_ms":
        "RocketMQ notes the newest message that is in a queue; we also newer ones that belong in none",
    "checkpoint: index_timestamp_ms":
        "RocketMQ notes a full index file when it makes the next one, in a thread of its own; we when it is durable",
    "lock, abort.bak, config/": "RocketMQ's process id and the broker's own files",
}  # fmt: skip


@dataclass(frozen=True)
class Sent:
    """What one request of Java's put: its messages as ours, and the time it stored them."""

    messages: tuple[Message, ...]
    store_ms: int
    is_batch: bool


def sent_by_java(directory: Path, requests: Sequence[Json]) -> list[Sent]:
    """The messages in the log that Java wrote for these requests, in its own order of properties."""
    records = records_of(directory)
    found = []
    for request in requests:
        count = len(request["messages"]) if request["op"] == "putBatch" else 1
        mine = list(itertools.islice(records, count))
        messages = tuple(_as_message(record) for record in mine)
        found.append(Sent(messages, mine[0].store_timestamp, request["op"] == "putBatch"))
    assert next(records, None) is None, "the log has more than was asked for"
    return found


def records_of(directory: Path) -> Iterator[Record]:
    """The records of a store's log, in order."""
    for path in sorted((directory / "commitlog").iterdir()):
        data, position = path.read_bytes(), 0
        while True:
            found = read_record(data, position)
            if isinstance(found, Torn):
                assert found.reason == layouts.NO_DATA, found
                return
            if isinstance(found, Blank):
                break
            yield found
            position = found.end


def _as_message(record: Record) -> Message:
    pairs = [piece.split(b"\1", 1) for piece in record.properties.split(b"\2")[:-1]]
    properties = {name.decode(): value.decode() for name, value in pairs if name != CRC32.encode()}
    return Message(
        record.topic.decode(), record.body, properties=properties, queue_id=record.queue_id, flag=record.flag,
        sys_flag=record.sys_flag, born_timestamp_ms=record.born_timestamp,
        born_host=decode_host(record.born_host, 0, len(record.born_host)), reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
    )  # fmt: skip


def replay(directory: Path, config: StoreConfig, sent: Sequence[Sent], in_columns: bool) -> None:
    """Puts everything again, one by one, or as tables of what was stored in the same millisecond."""
    clock = ManualClock(sent[0].store_ms)
    with open_store(str(directory), config, clock=clock) as store:
        if in_columns:
            runs = itertools.groupby(sent, lambda one: (one.store_ms, one.is_batch))
            for (store_ms, is_batch), run in runs:
                clock.ms = store_ms
                _put_run(store, list(run), is_batch)
        else:
            for one in sent:
                clock.ms = one.store_ms
                _put_run(store, [one], one.is_batch or None)
        store.flush(10)


def _put_run(store: Store, run: Sequence[Sent], is_batch: bool | None) -> None:
    if is_batch is None:
        results = [store.put(run[0].messages[0])]
    elif is_batch:
        results = [store.put_batch(one.messages) for one in run]
    else:
        results = [store.put_columns(as_table([one.messages[0] for one in run]))]
    assert all(result.status is PutStatus.PUT_OK for result in results), results


def file_differences(ours: Path, javas: Path) -> list[str]:
    """Where the log, queue and index files of two stores differ."""
    lines = _differing("commitlog", _log_files(ours), _log_files(javas))
    lines += _differing("consumequeue", _queue_files(ours), _queue_files(javas))
    return lines + _differing("index", _index_files(ours), _index_files(javas))


def _log_files(directory: Path) -> dict[str, bytes]:
    files = {path.name: path.read_bytes() for path in sorted((directory / "commitlog").iterdir())}
    while files and not any(files[last := max(files)]):
        del files[last]
    return files


def _queue_files(directory: Path) -> dict[str, bytes]:
    root = directory / "consumequeue"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def _index_files(directory: Path) -> dict[str, bytes]:
    files = sorted((directory / "index").iterdir())
    return {f"the {number + 1}. file": path.read_bytes() for number, path in enumerate(files)}


def _differing(kind: str, ours: dict[str, bytes], javas: dict[str, bytes]) -> list[str]:
    lines = [f"{kind} {name}: only here" for name in sorted(ours.keys() - javas.keys())]
    lines += [f"{kind} {name}: only in Java's" for name in sorted(javas.keys() - ours.keys())]
    for name in sorted(ours.keys() & javas.keys()):
        left, right = ours[name], javas[name]
        if left == right:
            continue
        if len(left) != len(right):
            lines.append(f"{kind} {name}: {len(left)} bytes, Java's has {len(right)}")
            continue
        at = next(place for place, pair in enumerate(zip(left, right, strict=True)) if pair[0] != pair[1])
        where = _place_in(javas, name, at) if kind == "commitlog" else ""
        lines.append(f"{kind} {name} @{at}{where}: {left[at : at + 16].hex()}, Java's {right[at : at + 16].hex()}")
    return lines


def _place_in(files: dict[str, bytes], name: str, at: int) -> str:
    """Which byte of which record that is."""
    position = 0
    while position < LOG_FILE_SIZE:
        found = read_record(files[name], position)
        if not isinstance(found, Record) or found.end > at:
            break
        position = found.end
    return f" (byte {at - position} of what begins at {position})"


def checkpoint_differences(ours: Path, javas: Path) -> list[str]:
    """Where the checkpoints of two stores differ, but for what cannot be equal; ours says all that is true."""
    mine, theirs = checkpoint_of(ours), checkpoint_of(javas)
    headers = [read_header(data) for data in _index_files(javas).values()]
    full = [header for header in headers if header and header.index_count >= JAVA_SIZES["maxIndexNum"]]
    newest_ms = max(record.store_timestamp for record in records_of(javas))
    wanted = {
        "physic_timestamp_ms": newest_ms,
        "logics_timestamp_ms": newest_ms,
        "index_timestamp_ms": full[-1].end_timestamp_ms if full else 0,
    }
    lines = [f"checkpoint {name}: {mine[name]} instead of {ms}" for name, ms in wanted.items() if mine[name] != ms]
    beyond = [name for name in wanted if theirs[name] > mine[name]]
    return lines + [f"checkpoint {name}: Java says more, {theirs[name]}" for name in beyond]
