"""RocketMQ's own stores with queues of further kinds: their queues built again, and their messages put again."""

import shutil
from pathlib import Path

from rmqstore.clock import ManualClock
from rmqstore.core.message import Message
from rmqstore.directory.queue_kinds import QueueKinds
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.formats.host import decode_host
from rmqstore.formats.message import Blank, Record, Torn, read_record
from tests.crash.disks import MemoryDisk
from tests.golden.cases import load_expected, unpack
from tests.log.queue_kinds_store import DERIVED, ROOT, KindsStore
from tests.log.replay import golden_files

_COMPARED = ("commitlog/", *(f"{name}/" for name in DERIVED))


def sizes_of(case: str) -> dict[str, int]:
    """The sizes that a case was written with, in our names."""
    config = load_expected(case)["config"]
    return {
        "log_file_size": config["mappedFileSizeCommitLog"], "queue_file_size": config["mappedFileSizeConsumeQueue"],
        "index_slot_count": config["maxHashSlotNum"], "index_item_count": config["maxIndexNum"],
    }  # fmt: skip


def rebuilt_golden(case: str, kinds: QueueKinds, directory: Path) -> list[str]:
    """Which files differ once all queues were deleted from a case, and a recovery built them again."""
    store = unpack(case, directory)
    for name in DERIVED:
        shutil.rmtree(store / name, ignore_errors=True)
    (store / "abort").touch()
    KindsStore(RealFileSystem(), kinds, root=str(store), **sizes_of(case))
    found = {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}
    return _differing(case, found)


def put_again(case: str, kinds: QueueKinds) -> list[str]:
    """Which files differ when the messages of a case are put into a store of ours at the same times."""
    records = records_of(case)
    clock = ManualClock(records[0].store_timestamp)
    disk = MemoryDisk()
    store = KindsStore(disk, kinds, clock=clock, **sizes_of(case))
    for number, record in enumerate(records):
        clock.ms = record.store_timestamp
        host = decode_host(record.store_host, 0, len(record.store_host))  # RocketMQ was given another for each
        store.put_from(host)
        result = store.appender.put(as_message(record))
        assert (result.physical_offset, result.queue_offset) == (record.physical_offset, record.queue_offset)
        if number % 7 == 0:
            store.dispatch.step()
    store.close()
    return _differing(case, {path.removeprefix(f"{ROOT}/"): data for path, data in disk.image().items()})


def records_of(case: str) -> list[Record]:
    """The records of a case, in the order of its log."""
    files = golden_files(case)
    found: list[Record] = []
    for name in sorted(name for name in files if name.startswith("commitlog/")):
        position = 0
        while not isinstance(standing := read_record(files[name], position), Blank | Torn):
            found.append(standing)
            position = standing.end
    return found


def as_message(record: Record) -> Message:
    """What was put for a record, in its order of properties."""
    pairs = [piece.split(b"\1", 1) for piece in record.properties.split(b"\2")[:-1]]
    return Message(
        record.topic.decode(), record.body, properties={name.decode(): value.decode() for name, value in pairs},
        queue_id=record.queue_id, flag=record.flag, sys_flag=record.sys_flag,
        born_timestamp_ms=record.born_timestamp, born_host=decode_host(record.born_host, 0, len(record.born_host)),
        reconsume_times=record.reconsume_times, prepared_transaction_offset=record.prepared_transaction_offset,
    )  # fmt: skip


def _differing(case: str, found: dict[str, bytes]) -> list[str]:
    """Names of queue and log files that are not RocketMQ's; log files made ahead, all zero, do not count."""
    javas = {name: data for name, data in golden_files(case).items() if name.startswith(_COMPARED)}
    ours = {name: data for name, data in found.items() if name.startswith(_COMPARED)}
    used = {name for name in {*ours, *javas} if any(ours.get(name, b"")) or any(javas.get(name, b""))}
    assert len(used) > 3
    return sorted(name for name in used if ours.get(name) != javas.get(name))
