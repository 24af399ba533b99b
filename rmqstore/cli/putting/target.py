"""The store that messages are put into: opened with the first of them, and counted exactly."""

from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.config import StoreConfig
from rmqstore.directory.store_root import found_store
from rmqstore.errors import NotAStore, NotNow, Rejected
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.files.reading import canonical_path, exists
from rmqstore.formats.names import is_system_topic
from rmqstore.log.encode.queue_choice import QueueChoice
from rmqstore.log.ledger_paths import with_found_member
from rmqstore.message import PutStatus
from rmqstore.replication.following.note import read_origin
from rmqstore.sink import require_free
from rmqstore.store import Store, open_store

_QUEUE_COLUMN = "queueId"
_ROWS_SAID = ": row"


class NotTaken(Rejected):
    """A message that the store does not take; those before it are put."""


class Target:
    """A store for one input after another; one thread.

    `put_count` messages are in it, of which `durable_count` are known to be on the disk.
    """

    def __init__(self, path: str, config: StoreConfig, *, makes: bool) -> None:
        """Looks whether the store can be put to, and makes nothing.  Raises NotAStore, UnsupportedLayout, StoreInUse,
        Rejected for a replica."""
        self._config = with_found_member(path, config)
        root = canonical_path(path)
        if not makes and not exists(root):
            raise NotAStore(root, "does not exist here; --create makes a new store")
        if not makes:
            found_store(path, self._config.named_log_paths(), may_be_ledger=self._config.dledger is not None)
        if self._config.dledger is None:
            require_free(path, self._config)
        origin = read_origin(RealFileSystem(), root)
        if origin is not None:
            raise Rejected(f"{root}: is a replica of {origin.broker_name}, which a message of its own would part from "
                           "its master: put it there, or into a copy without config/replica.json")  # fmt: skip
        self.path, self._store = root, None
        self._choices: dict[str, QueueChoice] = {}
        self.put_count = self.durable_count = 0

    _store: Store | None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._store is not None:
            self._store.close()
            self.durable_count = self.put_count

    def put(self, messages: pa.RecordBatch) -> None:
        """Puts messages, in their order.  Raises NotTaken for the first that is not taken, after those before it are
        put: `put_count` tells; NotNow likewise where there is no room; DurabilityLost."""
        if self._store is None:
            self._store = open_store(self.path, self._config)
        self._put(self._store, self._queued(self._store, messages))

    def sync(self) -> None:
        """Makes what was put durable.  Raises DurabilityLost, NotNow."""
        if self._store is not None and self.durable_count < self.put_count:
            self._store.flush()
            self.durable_count = self.put_count

    def _put(self, store: Store, messages: pa.RecordBatch) -> None:
        try:
            result = store.put_columns(messages)
        except Rejected as refusal:
            half = messages.num_rows // 2
            if not half:
                raise NotTaken(str(refusal).partition(_ROWS_SAID)[0]) from None
            self._put(store, messages.slice(0, half))
            self._put(store, messages.slice(half))
            return
        self.put_count += result.message_count
        if result.status is PutStatus.MESSAGE_ILLEGAL:
            rest = messages.slice(result.message_count)
            if rest.num_rows == 1:
                raise NotTaken(result.reason)
            half = rest.num_rows // 2
            self._put(store, rest.slice(0, half))
            self._put(store, rest.slice(half))
        elif result.status is not PutStatus.PUT_OK:
            raise NotNow(f"{result.status.name}: {result.reason}")

    def _queued(self, store: Store, messages: pa.RecordBatch) -> pa.RecordBatch:
        """The messages with a queue each: by their keys, or in turn, among those that their topic has."""
        if _QUEUE_COLUMN in messages.schema.names:
            return messages
        topics = messages.column("topic").dictionary_encode()
        names = topics.dictionary.to_pylist()
        if len(names) == 1:
            return self._choice(store, names[0]).queued(messages)
        of_topic = topics.indices.to_numpy()
        chosen = np.zeros(messages.num_rows, np.int32)
        for number, name in enumerate(names):
            rows = np.flatnonzero(of_topic == number)
            queued = self._choice(store, name).queued(messages.take(pa.array(rows)))
            chosen[rows] = pc.cast(queued.column(_QUEUE_COLUMN), pa.int32()).to_numpy()
        return messages.append_column(_QUEUE_COLUMN, pa.array(chosen))

    def _choice(self, store: Store, topic: str) -> QueueChoice:
        if topic not in self._choices:
            known = store.topics.find(topic)
            own = 1 if is_system_topic(topic) else self._config.default_queue_nums
            count = own if known is None else known.write_queue_nums
            self._choices[topic] = QueueChoice(max(count, 1))
        return self._choices[topic]
