"""The golden stores: where they are, how one is unpacked, and what Java answered about it.

A case is a folder with `store.tar.gz`, `expected.json.gz` and HOW.md.  `stores/` holds what RocketMQ's bare message
store wrote (and its answers about it, in expected.json), `broker/` what whole brokers wrote under traffic.  names.txt
lists all, so that none goes missing.  The environment variable RMQSTORE_GOLDEN names another directory of case folders:
the same tests then run on stores that nobody has seen before.
"""

import base64
import functools
import gzip
import ipaddress
import json
import os
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(os.environ.get("RMQSTORE_GOLDEN") or Path(__file__).parent)

# sysFlag: transaction type (prepared and rollback are in no queue), and the marks of an inner batch.
TRANSACTION_MASK, PREPARED, ROLLBACK = 0xC, 0x4, 0xC
INNER_BATCH = 0xC0
COMPRESSION = 0x701  # is it compressed, and how: a row whose body is not any more does not say so

Row = dict[str, Any]


def _folders() -> dict[str, Path]:
    return {archive.parent.name: archive.parent for archive in sorted(ROOT.glob("**/store.tar.gz"))}


FOLDERS: dict[str, Path] = _folders()
BROKER_CASES: list[str] = [name for name, folder in FOLDERS.items() if (folder / "meta.json").exists()]
# Those that this engine opens for writing: the log of the others is a DLedger node's, or RocksDB has their queues.
OPENED_CASES: list[str] = [name for name in BROKER_CASES if "dledger" not in name and not name.startswith("rocksdb-")]
STORE_CASES: list[str] = [name for name in FOLDERS if name not in BROKER_CASES]


def base_name(case: str) -> str:
    """The case without the release that wrote it: `basic-nocq-4.9.8` -> `basic-nocq`."""
    return re.sub(r"-\d+\.\d+\.\d+$", "", case)


# Stores of another release that stand beside a store of 5.3.3 with the same layout and damage.  These few are in the
# quick tests, too: what differs between the releases is in each of them.
_ALL_RELEASES = {
    "basic-4.9.8", "killed-4.9.8", "batch-4.9.8", "broker-killed-4.9.8", "basic-5.5.1", "killed-5.5.1", "batch-5.5.1",
}  # fmt: skip
TWINS = {
    name
    for name in FOLDERS
    if name.endswith(("-4.9.8", "-5.5.1"))
    and FOLDERS.keys() & {base_name(name), f"{base_name(name)}-5.3.3"}
    and name not in _ALL_RELEASES
}
# Of what 5.5 keeps in RocksDB one store each is in the quick tests.
TWINS |= {
    f"{name}-5.5.1"
    for name in ("rip82-clean", "rip82-live", "rocksdb-killed", "rocksdb-live", "double-killed", "double-live")
}

# One store of each layout, and some damaged ones: enough for a test that is not about layouts and damage themselves.
_LAYOUTS = {
    "basic", "batch", "batchcq_mixed", "batchflags", "broker-killed-5.3.3", "cqext", "crcprop", "delay", "ipv6",
    "killed-midflip", "killed-nocq-noindex", "killed-torn", "lmq", "longtopic", "multipath", "sysflags",
    "broker-dledger-5.3.3", "crcprop-force",
}  # fmt: skip


def layouts(cases: Iterable[str]) -> list[Any]:
    """Parameters of a test: these cases, one of each layout for `make test` and all for `make deep`."""
    return [case if case in _LAYOUTS else pytest.param(case, marks=pytest.mark.deep) for case in cases]


# Stores that nothing can be read of, each with what the error says: their messages are not there.
REFUSED: dict[str, str] = {"basic-nocommitlog": "has entries, but there is no commitlog file"}
READ_CASES = [case for case in STORE_CASES if base_name(case) not in REFUSED]
REFUSED_CASES = [case for case in STORE_CASES if base_name(case) in REFUSED]


def unpack(case: str, directory: Path) -> Path:
    """Unpacks the store of `case` below `directory`, with its modification times and its holes; returns the store's
    path."""
    return unpack_folder(FOLDERS[case], directory)


def unpack_folder(folder: Path, directory: Path) -> Path:
    """As `unpack`, of a case's folder."""
    with tarfile.open(folder / "store.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    return directory / "store"


def read_json(folder: Path, name: str) -> Any:
    """`name`.json of a case folder, packed with gzip or not."""
    packed = folder / f"{name}.json.gz"
    if packed.exists():
        return json.loads(gzip.decompress(packed.read_bytes()))
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


@functools.lru_cache(maxsize=128)
def topic_prefix(case: str) -> str:
    """What the names of a broker case's topics begin with, and its groups' end with: `G101`."""
    match = re.match(r"G\d+", read_json(FOLDERS[case], "sent")[0]["topic"])
    assert match
    return match[0]


@functools.lru_cache(maxsize=128)
def load_expected(case: str) -> dict[str, Any]:
    """Java's answers about `case`, with the records and confirmed puts that a variant shares with its base case
    filled in.

    Shared, so not to be changed.  `records` are what RocketMQ holds after its own recovery ([] where it refused to
    open); `baseRecords` all of the base case.
    """
    expected: dict[str, Any] = read_json(FOLDERS[case], "expected")
    if "recordsFrom" in expected:
        base = load_expected(expected["recordsFrom"])
        records = {record["physicalOffset"]: record for record in base["records"]}
        expected["baseRecords"] = base["records"]
        records.update((record["physicalOffset"], record) for record in expected.get("recordsChanged", ()))
        expected["records"] = [records[offset] for offset in expected.get("recordOffsets", ())]
    before = expected.get("before")
    if before and isinstance(before["acked"], str):
        before["acked"] = load_expected(before["acked"])["before"]["acked"]
    expected.setdefault("records", [])
    expected.setdefault("baseRecords", expected["records"])
    return expected


def java_rows(records: list[dict[str, Any]]) -> list[Row]:
    """The rows that `records`, as Java describes them, mean: one a message and queue, ordered by queue and queue
    offset.

    Prepared and rolled back messages are in no queue; an inner batch is one row a message; a record with
    INNER_MULTI_DISPATCH has one more row in each %LMQ% queue.  Values are plain Python, times in milliseconds.
    """
    return sorted((row for record in records for row in _rows_of(record)), key=row_order)


def row_order(row: Row) -> tuple[str, int, int, int]:
    """The sort key of rows: topic, queue, queue offset, physical offset."""
    return row["topic"], row["queueId"], row["queueOffset"], row["physicalOffset"]


def _rows_of(record: Mapping[str, Any]) -> Iterator[Row]:
    if record["sysFlag"] & TRANSACTION_MASK in (PREPARED, ROLLBACK):
        return
    row = _row(record)
    if _is_inner_batch(record):
        yield from _inner_rows(row)
    else:
        yield row
    names = record["properties"].get("INNER_MULTI_DISPATCH", "").split(",")
    offsets = record["properties"].get("INNER_MULTI_QUEUE_OFFSET", "").split(",")
    for name, offset in zip(names, offsets, strict=False):
        if name.startswith("%LMQ%"):
            yield row | {"topic": name, "queueId": 0, "queueOffset": int(offset)}


def _is_inner_batch(record: Mapping[str, Any]) -> bool:
    """Whether a record has all that RocketMQ 5 gives an inner batch; INNER_BASE only where a batch queue numbers it."""
    said = record["properties"]
    is_marked = record["sysFlag"] & INNER_BATCH == INNER_BATCH and "INNER_NUM" in said
    return is_marked and said.get("INNER_BASE") == str(record["queueOffset"])


def _row(record: Mapping[str, Any]) -> Row:
    stored = base64.b64decode(record["body"])
    body = base64.b64decode(record["bodyUncompressed"]) if "bodyUncompressed" in record else stored
    same = (
        "topic",
        "queueId",
        "queueOffset",
        "physicalOffset",
        "storeSize",
        "sysFlag",
        "flag",
        "bodyCrc",
        "bornTimestamp",
    )
    same += ("storeTimestamp", "reconsumeTimes", "preparedTransactionOffset", "tags", "keys", "properties")
    is_unpacked = "bodyUncompressed" in record
    return {name: record[name] for name in same} | {
        "sysFlag": record["sysFlag"] & ~COMPRESSION if is_unpacked else record["sysFlag"],
        "storedFlags": record["sysFlag"],
        "bornHost": host(record["bornHost"]),
        "storeHost": host(record["storeHost"]),
        "msgId": record["properties"].get("UNIQ_KEY", record["msgId"]),
        "offsetMsgId": record["msgId"],
        "body": body,
        "storedBody": stored,
        "tagsCode": record["dispatchTagsCode"],
    }


def host(shown: str) -> str:
    """`address:port` or `/address:port` as Java prints it, in the shortest form: an IPv6 address in brackets."""
    address, _, port = shown.lstrip("/").rpartition(":")
    parsed = ipaddress.ip_address(address.strip("[]"))
    return f"[{parsed}]:{port}" if parsed.version == 6 else f"{parsed}:{port}"


def _inner_rows(row: Row) -> Iterator[Row]:
    """The messages of an inner batch: i32 size, magic, CRC, flag, body size, body, i16 properties size, properties."""
    data, position, step = row["body"], 0, 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        flag = int.from_bytes(data[position + 12 : position + 16], "big", signed=True)
        body_end = position + 20 + int.from_bytes(data[position + 16 : position + 20], "big")
        pairs = data[body_end + 2 : position + size].decode().split("\2")
        properties = dict(pair.split("\1", 1) for pair in pairs if "\1" in pair)
        body = data[position + 20 : body_end]
        yield row | {
            "queueOffset": row["queueOffset"] + step,
            "sysFlag": row["sysFlag"] & ~INNER_BATCH,
            "storedFlags": row["sysFlag"] & ~INNER_BATCH,
            "flag": flag,
            "body": body,
            "storedBody": body,
            "properties": properties,
            "tags": properties.get("TAGS"),
            "keys": properties.get("KEYS"),
            "msgId": properties.get("UNIQ_KEY", row["offsetMsgId"]),
        }
        position, step = position + size, step + 1
