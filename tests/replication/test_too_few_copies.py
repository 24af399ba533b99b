"""A store that wants more copies than there are stores nothing, and says so in words, whichever way in is taken."""

from pathlib import Path

import pyarrow as pa
import pytest

import rmqstore
from rmqstore import Message, StoreConfig
from rmqstore.config import HaConfig
from rmqstore.core.message import PutStatus

pytestmark = pytest.mark.stores


def test_every_way_in_refuses_with_words(tmp_path: Path) -> None:
    config = StoreConfig(ha=HaConfig(listen="127.0.0.1:0", min_in_sync_replicas=2))
    with rmqstore.open_store(tmp_path, config) as store:
        answers = [
            store.put(Message("t", b"x")),
            store.put_batch([Message("t", b"x"), Message("t", b"y")]),
            store.put_columns(pa.table({"topic": ["t"], "body": [b"x"]})),
        ]
        for answer in answers:
            assert answer.status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
            assert "min_in_sync_replicas" in answer.reason
            assert not answer.is_stored
        assert store.queues() == []
