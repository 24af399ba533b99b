"""Deleting topics, so that a crash does not bring them back: noted first, and only then removed."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from rmqstore.broker.consumer_offsets import ConsumerOffsets
from rmqstore.broker.topics import Topics
from rmqstore.errors import Rejected, StoreClosed
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats import names
from rmqstore.formats.deleted_topics import DeletedTopic
from rmqstore.log.derived.deleted_topics import save_deleted_topics
from rmqstore.log.derived.queue_table import QueueTable
from rmqstore.log.put.appender import Appender


class TopicDeletion:
    """Deletes topics of the open store at `root`; any thread.

    `noted` is what its recovery left noted; `sync` makes the log durable as far as it goes.
    """

    def __init__(
        self, place: tuple[FileSystem, str], noted: Mapping[str, DeletedTopic], queues: QueueTable, appender: Appender,
        tables: tuple[Topics, ConsumerOffsets], sync: Callable[[], None],
    ) -> None:  # fmt: skip
        self._fs, self._root = place
        self._noted = dict(noted)
        self._queues, self._appender = queues, appender
        self._topics, self._offsets = tables
        self._sync = sync
        self._lock = threading.Lock()
        self._is_closed = False

    def close(self) -> None:
        """Ends deleting, once what is under way is done: the directory may be somebody else's from now on."""
        with self._lock:
            self._is_closed = True

    def delete(self, topic: str) -> bool:
        """Deletes a topic; False if there is none.  As Store.delete_topic."""
        if names.is_bookkeeping_topic(topic):
            raise Rejected(f"{topic} holds what the store itself goes by: it cannot be deleted, nor in RocketMQ")
        with self._lock:
            if self._is_closed:
                raise StoreClosed(f"{self._root} is closed")
            if not self._is_there(topic):
                return False
            under_way = threading.Lock()
            with under_way:
                self._offsets.begin_removal(topic, under_way)
                self._delete(topic)
        return True

    def _delete(self, topic: str) -> None:
        self._sync()  # the note speaks of what is on the disk
        failures: list[OSError] = []
        self._try(failures, lambda: self._queues.remove_topic(topic, lambda: self._forgotten(topic)))
        if failures and not self._noted.get(topic, DeletedTopic(0)).is_pending:
            raise failures[0]
        self._complete(topic, failures)

    def finish(self) -> None:
        """Ends the deletions that a crash or a failing disk interrupted.  Raises OSError."""
        with self._lock:
            for topic in [topic for topic, noted in self._noted.items() if noted.is_pending]:
                self._complete(topic, [])

    def _is_there(self, topic: str) -> bool:
        was_begun = self._noted.get(topic, DeletedTopic(0)).is_pending
        return was_begun or topic in self._topics.all() or self._appender.knows_topic(topic)

    def _forgotten(self, topic: str) -> int:
        """Where the topic ends, noted, with its next queue offsets forgotten.  Raises OSError with nothing changed."""
        return self._appender.forget_topic(topic, lambda end: self._note(topic, DeletedTopic(end, is_pending=True)))

    def _complete(self, topic: str, failures: list[OSError]) -> None:
        """Takes the topic out of the tables, and notes that all is done.  Raises the first failure, after all was
        tried: what is missing then, a repetition does, or the next opening."""
        if not self._appender.knows_topic(topic):  # nothing was put meanwhile
            self._try(failures, lambda: self._topics.remove(topic))
        self._offsets.remove_topic(topic)
        self._try(failures, self._offsets.persist)
        if failures:
            raise failures[0]
        self._note(topic, replace(self._noted[topic], is_pending=False))

    def _note(self, topic: str, deleted: DeletedTopic) -> None:
        noted = self._noted | {topic: deleted}
        save_deleted_topics(self._fs, self._root, noted)
        self._noted = noted

    def _try(self, failures: list[OSError], step: Callable[[], object]) -> None:
        try:
            step()
        except OSError as failure:
            failures.append(failure)
