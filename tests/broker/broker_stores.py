"""Stores that a real broker left, opened here."""

import json
from pathlib import Path

from rmqstore.clock import ManualClock
from rmqstore.config import StoreConfig
from rmqstore.core.message import Message
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.formats.stored_message import StoredMessage
from tests.broker.open_log import Opened
from tests.golden.cases import FOLDERS, read_json, unpack


def open_broker_store(case: str, directory: Path) -> Opened:
    path = unpack(case, directory)
    last_ms = max(send["ackMs"] for send in read_json(FOLDERS[case], "sent"))
    return Opened(RealFileSystem(), StoreConfig.broker(preallocate=False), clock=ManualClock(last_ms), path=str(path))


def differences(ours: Message, theirs: StoredMessage) -> list[str]:
    """Where a message that we would put differs from the one that a broker put."""
    pairs = {
        "topic": (ours.topic, theirs.topic),
        "queue id": (ours.queue_id, theirs.queue_id),
        "body": (ours.body, theirs.stored_body),
        "properties": (ours.properties, theirs.properties),
        "flag": (ours.flag, theirs.flag),
        "sysFlag": (ours.sys_flag, theirs.sys_flag),
        "born": ((ours.born_timestamp_ms, ours.born_host), (theirs.born_timestamp_ms, theirs.born_host)),
        "reconsumeTimes": (ours.reconsume_times, theirs.reconsume_times),
        "half": (ours.prepared_transaction_offset, theirs.prepared_transaction_offset),
    }
    return [f"{name}: {json.dumps(str(pair))}" for name, pair in pairs.items() if pair[0] != pair[1]]
