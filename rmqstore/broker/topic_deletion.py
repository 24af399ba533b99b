"""Deleting topics, so that a crash does not bring them back: noted first, and only then removed."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from rmqstore.broker.consumer_offsets import ConsumerOffsets
from rmqstore.broker.topics import Topics
from rmqstore.directory.deleted_queues import HeldPlaces, held_places, of_before
from rmqstore.directory.queue_files import BATCH, SIMPLE
from rmqstore.errors import Rejected, StoreClosed
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats import names
from rmqstore.formats.deleted_topics import Deleted, DeletedTopic, DeletedTopics
from rmqstore.log.deleted_topics import save_deleted_topics
from rmqstore.log.derived.queue_table import QueueTable
from rmqstore.log.put.appender import Appender

# Of a queue whose messages have all expired.
_NOWHERE = HeldPlaces(-1, -1)
_NOT_NOTED = DeletedTopic(0)


class TopicDeletion:
    """Deletes topics of the open store at `root`; any thread.

    `noted` is what its recovery left noted; `sync` makes the log durable as far as it goes.
    """

    def __init__(
        self, place: tuple[FileSystem, str], noted: DeletedTopics, queues: QueueTable, appender: Appender,
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
            self._require_open()
            if not self._is_there(topic):
                return False
            under_way = threading.Lock()
            with under_way:
                self._offsets.begin_removal(topic, under_way)
                self._delete(topic)
        return True

    def _require_open(self) -> None:
        if self._is_closed:
            raise StoreClosed(f"{self._root} is closed")

    def _delete(self, topic: str) -> None:
        self._sync()  # the note speaks of what is on the disk
        failures: list[OSError] = []
        self._try(failures, lambda: self._queues.remove_topic(topic, lambda: self._forgotten(topic)))
        if failures and not self._noted.get(topic, _NOT_NOTED).is_pending:
            raise failures[0]
        self._complete(topic, failures)

    def held(self, topic: str) -> dict[int, HeldPlaces]:
        """Where in the log the messages of a topic's queues stand, by queue id; of the queues that have some."""
        return _held_places(self._queues, topic)

    def begin_again(self, topic: str, queue_id: int, *, is_alone: bool = False) -> None:
        """Removes what is in the queues of a topic that another store, which this one follows, has deleted and made
        again: of `queue_id` the next message begins it.

        All that the log holds is dispatched, and nobody else appends.  Queues stay of which all may have come since
        the topic was made again, and all others where the queue `is_alone`; the tables stay as they are.

        Raises OSError: a repetition, or the next opening, completes it.
        """
        with self._lock:
            self._require_open()
            self._sync()
            held = {queue_id: _NOWHERE} | self.held(topic)
            is_alone = is_alone and not self._noted.get(topic, _NOT_NOTED).is_pending
            of = (topic, queue_id) if is_alone else topic
            noted = self._noted.get(of, _NOT_NOTED)
            if not noted.is_pending:
                end = self._appender.log_end if is_alone else self._end_of_before(held, queue_id)
                noted = DeletedTopic(end, is_pending=True)
                self._note(of, noted)
            end = noted.log_end
            stay = [each for each, places in held.items() if each != queue_id and (is_alone or places.last >= end)]

            def forgotten() -> int:
                self._appender.forget_topic(topic, stay=stay)
                return end

            self._queues.remove_topic(topic, forgotten, stay)
            self._note(of, replace(noted, is_pending=False))

    def _end_of_before(self, held: Mapping[int, HeldPlaces], queue_id: int) -> int:
        """Where in the log the messages begin that a topic has since it was made again; the log's end if there are
        none yet."""
        goes = of_before(list(held.values()), list(held).index(queue_id))
        firsts = [places.first for places, is_gone in zip(held.values(), goes, strict=True) if not is_gone]
        return min([self._appender.log_end, *firsts])

    def finish(self) -> None:
        """Ends the deletions that a crash or a failing disk interrupted.  Raises OSError."""
        with self._lock:
            for of in [of for of, noted in self._noted.items() if noted.is_pending]:
                if isinstance(of, str):
                    self._complete(of, [])
                else:  # recovery has left its entries out
                    self._note(of, replace(self._noted[of], is_pending=False))

    def _is_there(self, topic: str) -> bool:
        was_begun = self._noted.get(topic, _NOT_NOTED).is_pending
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

    def _note(self, of: Deleted, deleted: DeletedTopic) -> None:
        noted = self._noted | {of: deleted}
        save_deleted_topics(self._fs, self._root, noted)
        self._noted = noted

    def _try(self, failures: list[OSError], step: Callable[[], object]) -> None:
        try:
            step()
        except OSError as failure:
            failures.append(failure)


def _held_places(queues: QueueTable, topic: str) -> dict[int, HeldPlaces]:
    """By queue id, of the queues of a topic that have messages."""
    found = {}
    for queue in queues.queues():
        if queue.topic == topic:
            found[queue.queue_id] = held_places(queue, SIMPLE, queue.min_offset, queue.max_offset)
    for batch_queue in queues.batches.queues():
        if batch_queue.topic == topic:
            found[batch_queue.queue_id] = held_places(batch_queue, BATCH, *batch_queue.slots)
    return {queue_id: places for queue_id, places in found.items() if places is not None}
