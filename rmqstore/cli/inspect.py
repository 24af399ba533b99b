"""`rmqstore inspect`: what a store holds, or one record field by field."""

from collections.abc import Iterator
from typing import Any

import click

from rmqstore import StoredMessage
from rmqstore.arguments import I64_MAX
from rmqstore.cli.output import (
    body_fields,
    body_text,
    byte_size,
    counted,
    fitted,
    iso,
    moment_of,
    open_stores,
    print_json,
    print_table,
    printable,
    store_arguments,
    utc,
    width,
    wrapped,
)
from rmqstore.directory.config_files import consumer_offsets, topics
from rmqstore.directory.index_files import index_files
from rmqstore.formats.message_id import offset_of_id
from rmqstore.snapshot.lookup.queue_times import queue_span_times
from rmqstore.snapshot.survey.extents import Damage, StoreExtent

Document = dict[str, Any]
_PERM = {0: "closed", 2: "write only", 4: "read only", 6: "read and write"}
_FILES_SHOWN = 12
_RECORD_FIELDS = (
    "topic", "broker_name", "queue_id", "queue_offset", "tags", "keys", "body", "properties", "flag", "sys_flag",
    "born_timestamp", "store_timestamp", "born_host", "store_host", "msg_id", "offset_msg_id", "reconsume_times",
    "prepared_transaction_offset", "physical_offset", "store_size", "body_crc",
)  # fmt: skip


class _Place(click.ParamType):  # type: ignore[type-arg]  # generic for type checkers only
    """Where a record begins, or its offset message id, which is longer than any offset."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value)
        if offset_of_id(text) is not None:
            return text
        if not (text.isascii() and text.isdigit()):
            self.fail(f"{text!r}: an offset of the commitlog, or an offset message id", param, ctx)
        if int(text) > I64_MAX:
            self.fail(f"{text}: beyond any commitlog, which ends before {I64_MAX}", param, ctx)
        return int(text)


@click.command()
@store_arguments
@click.option(
    "--record", type=_Place(), metavar="OFFSET|ID", help="One record: commitlog offset, or offset message id."
)
@click.option("--broker", help="Which store --record means, where there are several.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of tables.")
def inspect(stores: tuple[str, ...], record: int | str | None, broker: str | None, as_json: bool) -> None:
    """Show layout and version found, files, topics and queues, and how far consumer groups are behind.

    Times are UTC. A queue holds the messages from its first offset to before its end.
    """
    snapshot = open_stores(stores)
    if record is not None:
        _show_record(snapshot.message_at(record, broker), as_json)
        return
    documents = [_document(store) for store in snapshot.stores]
    if as_json:
        print_json({"stores": documents})
        return
    for number, document in enumerate(documents):
        if number:
            click.echo()
        _show_store(document)


def _document(store: StoreExtent) -> Document:
    return {
        "path": store.path,
        "brokerName": store.broker_name,
        "versionLine": store.version_line,
        "isLive": store.is_live,
        "abortPresent": store.abort_present,
        "lockHeld": store.lock_held,
        "queueLayout": store.queue_layout,
        "logStart": store.log_start,
        "logEnd": store.log_end,
        "logFiles": [{"path": file.path, "start": file.start, "size": file.size} for file in store.log_files],
        "undispatchedFrom": store.walk_from if any(queue.gap for queue in store.queues.values()) else None,
        "checkpoint": _checkpoint(store),
        "indexFiles": _index_files(store),
        "damage": [_damage(found) for found in store.damage],
        "tail": None if store.tail is None else _damage(store.tail),
        "dledger": _ledger(store),
        "topics": _topics(store),
        "groups": list(_groups(store)),
    }


def _damage(found: Damage) -> Document:
    return {"path": found.path, "position": found.position, "reason": found.reason}


def _ledger(store: StoreExtent) -> Document | None:
    ledger = store.ledger
    if ledger is None:
        return None
    return {
        "directory": ledger.node.directory,
        "selfId": ledger.node.self_id,
        "currTerm": None if ledger.term is None else ledger.term.number,
        "voteLeader": None if ledger.term is None else ledger.term.voted_for,
        "committedIndex": ledger.committed_index,
        "uncommittedFrom": ledger.uncommitted_from if ledger.uncommitted_count else None,
        "uncommittedEntries": ledger.uncommitted_count,
        "dividedCommitlogOffset": ledger.divided_at,
    }


def _checkpoint(store: StoreExtent) -> Document | None:
    known = store.checkpoint
    if known is None:
        return None
    return {
        "physicMsgTimestamp": known.physic_timestamp_ms,
        "logicsMsgTimestamp": known.logics_timestamp_ms,
        "indexMsgTimestamp": known.index_timestamp_ms,
        "masterFlushedOffset": known.master_flushed_offset,
        "confirmPhyOffset": known.confirm_offset,
    }


def _index_files(store: StoreExtent) -> list[Document]:
    return [
        {
            "path": file.file.path,
            "size": file.file.size,
            "slotCount": file.slot_count or None,
            "itemCount": file.header.index_count - 1,
            "oldest": iso(moment_of(file.header.begin_timestamp_ms or None)),
            "newest": iso(moment_of(file.header.end_timestamp_ms or None)),
        }
        for file in index_files(store.disk, store.path, store.maps_index)
    ]


def _topics(store: StoreExtent) -> list[Document]:
    """Topics with their queues: those of the files and those that the broker's configuration names."""
    configured = topics(store.disk, store.path)
    times = queue_span_times(store)
    queues: dict[str, list[Document]] = {name: [] for name in sorted({*configured, *(key[0] for key in store.queues)})}
    for (topic, queue_id), queue in store.queues.items():
        oldest, newest = times[topic, queue_id]
        queues[topic].append(
            {
                "queueId": queue_id, "queueType": queue.files.kind,
                "minOffset": queue.min_offset, "maxOffset": queue.max_offset,
                "messages": queue.max_offset - queue.min_offset,
                "oldest": iso(moment_of(oldest)), "newest": iso(moment_of(newest)),
                "oldestMs": oldest, "newestMs": newest,
            }
        )  # fmt: skip
    return [
        {
            "topic": name,
            "readQueueNums": configured[name].read_queue_nums if name in configured else None,
            "writeQueueNums": configured[name].write_queue_nums if name in configured else None,
            "perm": configured[name].perm if name in configured else None,
            "attributes": dict(configured[name].attributes) if name in configured else {},
            "messages": sum(queue["messages"] for queue in found),
            "queues": found,
        }
        for name, found in queues.items()
    ]


def _groups(store: StoreExtent) -> Iterator[Document]:
    """How many messages that the store holds a group has still to consume, by topic; queues that it never read are not
    counted."""
    for (group, topic), offsets in sorted(consumer_offsets(store.disk, store.path).items()):
        queues = []
        for queue_id, offset in sorted(offsets.items()):
            queue = store.queues.get((topic, queue_id))
            backlog = max(queue.max_offset - max(offset, queue.min_offset), 0) if queue else 0
            queues.append({"queueId": queue_id, "offset": offset, "backlog": backlog})
        backlog = sum(queue["backlog"] for queue in queues)
        yield {"group": group, "topic": topic, "backlog": backlog, "queues": queues}


def _show_store(document: Document) -> None:
    held, is_plain = document["logEnd"] - document["logStart"], document["queueLayout"] == "file"
    facts = [
        ("broker", f"{document['brokerName']}, as RocketMQ {document['versionLine']} writes"),
        ("state", _state(document)),
        ("commitlog", f"{document['logStart']} to {document['logEnd']}, {byte_size(held)}{_file_sizes(document)}"),
        ("queues", "consume queue files" if is_plain else "RocksDB, not read: scans walk the commitlog"),
        ("index", _index_line(document)),
        ("checkpoint", "none" if document["checkpoint"] is None else _checkpoint_line(document["checkpoint"])),
    ]
    if document["dledger"] is not None:
        facts.insert(3, ("DLedger", _ledger_line(document["dledger"])))
    if document["undispatchedFrom"] is not None:
        facts.append(("not in queues", f"some messages from commitlog offset {document['undispatchedFrom']} on"))
    click.echo(printable(document["path"]))
    for name, fact in facts:
        click.echo(wrapped(f"  {name:13}  ", fact))
    for found in document["damage"]:
        place = found["path"].removeprefix(document["path"] + "/")
        click.echo(wrapped("  damage         ", f"{place} @ {found['position']}: {found['reason']}"))
    _show_files(document)
    for topic in document["topics"]:
        _show_topic(topic)
    _show_groups(document["groups"])
    click.echo("\n`rmqstore cat STORE --topic T` prints messages, `rmqstore verify STORE` checks")


def _ledger_line(ledger: Document) -> str:
    term = "no term" if ledger["currTerm"] is None else f"term {ledger['currTerm']}"
    said = f"node {ledger['selfId'] or '(no name)'}, {term}, checkpoint at entry {ledger['committedIndex']}"
    if ledger["dividedCommitlogOffset"]:
        said += f", from {ledger['dividedCommitlogOffset']} on"
    if ledger["uncommittedEntries"]:
        said += f"; uncommitted, left out: {ledger['uncommittedEntries']:,} from index {ledger['uncommittedFrom']} on"
    return said


def _state(document: Document) -> str:
    if document["lockHeld"]:
        return "open: a broker or another program of this host holds the lock"
    if document["abortPresent"]:
        return "not stopped cleanly, or running elsewhere: the file abort is there"
    return "stopped"


def _file_sizes(document: Document) -> str:
    sizes = {file["size"] for file in document["logFiles"]}
    files = counted(len(document["logFiles"]), "file")
    return f" in {files} of {byte_size(sizes.pop())}" if len(sizes) == 1 else f" in {files}"


def _index_line(document: Document) -> str:
    files = document["indexFiles"]
    item_count = sum(file["itemCount"] for file in files)
    return f"{counted(len(files), 'file')}, {counted(item_count, 'item')}" if files else "none"


def _checkpoint_line(checkpoint: Document) -> str:
    return f"commitlog {utc(checkpoint['physicMsgTimestamp'])}, queues {utc(checkpoint['logicsMsgTimestamp'])}"


def _show_files(document: Document) -> None:
    files = document["logFiles"]
    click.echo("\ncommitlog files")
    rows = [(str(file["start"]), byte_size(file["size"]), file["path"]) for file in files]
    left_out = len(rows) - _FILES_SHOWN
    if left_out > 1:
        half = _FILES_SHOWN // 2
        rows = [*rows[:half], ("…", "", f"{counted(left_out, 'more file')} (--json lists all)"), *rows[-half:]]
    room = max(width() - 36, 20)
    rows = [(start, size, path if len(path) <= room else "…" + path[1 - room :]) for start, size, path in rows]
    print_table(("start", "size", "path"), rows, right="start,size")


def _show_topic(topic: Document) -> None:
    facts = [counted(topic["messages"], "message")]
    if topic["perm"] is not None:
        facts += [f"queues to read {topic['readQueueNums']}, to write {topic['writeQueueNums']}"]
        facts += [_PERM.get(topic["perm"] & 6, str(topic["perm"]))]
    facts += [f"{name}={value}" for name, value in topic["attributes"].items()]
    click.echo(f"\ntopic {printable(topic['topic'])}")
    click.echo(wrapped("  ", ", ".join(facts)))
    rows = [
        (
            str(queue["queueId"]), str(queue["minOffset"]), str(queue["maxOffset"]), utc(queue["oldestMs"]),
            utc(queue["newestMs"]), "" if queue["queueType"] == "SimpleCQ" else queue["queueType"],
        )
        for queue in topic["queues"]
    ]  # fmt: skip
    if rows:
        print_table(("queue", "first", "end", "oldest (UTC)", "newest (UTC)", ""), rows, right="queue,first,end")


def _show_groups(groups: list[Document]) -> None:
    if not groups:
        return
    click.echo("\nconsumer groups (messages still to consume)")
    half = max((width() - 14) // 2, 20)
    rows = [(fitted(group["group"], half), fitted(group["topic"], half), f"{group['backlog']:,}") for group in groups]
    print_table(("group", "topic", "backlog"), rows, right="backlog")


def _show_record(message: StoredMessage, as_json: bool) -> None:
    values = {name: getattr(message, name) for name in _RECORD_FIELDS}
    if message.corrupt_reason is not None:
        values["corrupt_reason"] = message.corrupt_reason
    if as_json:
        body = body_fields(values.pop("body"))
        document = {_camel(name): value for name, value in values.items()}
        for name in ("bornTimestamp", "storeTimestamp"):
            document[name] = iso(document[name])
        print_json(document | body)
        return
    body_shown, properties = body_text(values.pop("body"), "\n  "), values.pop("properties")
    for name, value in values.items():
        shown = iso(value) if name.endswith("_timestamp") else value
        click.echo(f"{_camel(name):25}  {printable('' if shown is None else str(shown))}".rstrip())
    click.echo("properties")
    for name, value in properties.items():
        click.echo(printable(f"  {name:23}  {value}"))
    click.echo(f"body\n  {body_shown}")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
