"""The tables of a master that its log does not hold: topics, groups, offsets, delay progress; each taken over whole."""

import threading
from typing import Any

from rmqstore.broker.consumer_offsets import OffsetTable
from rmqstore.engine import Engine
from rmqstore.errors import Corrupt
from rmqstore.remoting import cluster
from rmqstore.remoting.client import Unreachable
from rmqstore.replication.following.masters import KnownMaster


class Tables:
    """The config/ of `engine`, kept as `master` has it; one thread at a time.

    Raises Unreachable, Refused; OSError as the disk fails: the files are as they were then.
    """

    def __init__(self, engine: Engine, master: KnownMaster) -> None:
        self._features, self._queues, self._master = engine.features, engine.parts.queues, master
        self._lock = threading.Lock()

    def fetch_topics(self) -> None:
        """The topics: what kinds of queues they have must be known before their first message is dispatched."""
        topics = self._master.topics()
        if topics is not None:
            self._follow(cluster.GET_ALL_TOPIC_CONFIG, topics)

    def fetch(self) -> None:
        """All tables."""
        for code, document in self._master.tables().items():
            self._follow(code, document)

    def _follow(self, code: int, document: dict[str, Any]) -> None:
        features = self._features
        try:
            with self._lock:
                if code == cluster.GET_ALL_TOPIC_CONFIG:
                    features.topics.follow(document)
                elif code == cluster.GET_ALL_SUBSCRIPTION_GROUP:
                    features.groups.follow(document)
                elif code == cluster.GET_ALL_CONSUMER_OFFSET:
                    features.offsets.follow(document, self._clipped)
                else:
                    features.delay_file.follow(document)
        except Corrupt as error:
            raise Unreachable(self._master.address, f"its answer to {code} is no table: {error.reason}") from None

    def _clipped(self, table: OffsetTable) -> OffsetTable:
        """No offset lies past the end of a queue that is here: the master's log may be ahead of this one, and if this
        one is ever written to by itself, whoever goes on there would pass over the messages that come first."""
        ends = self._queues.next_offsets()
        for (_, topic), offsets in table.items():
            for queue_id, offset in offsets.items():
                end = ends.get((topic, queue_id))
                if end is not None and offset > end:
                    offsets[queue_id] = end
        return table
