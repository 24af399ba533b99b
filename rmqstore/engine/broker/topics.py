"""The topics of a store, config/topics.json: what may be put where, and topics made on demand."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rmqstore.clock import Clock
from rmqstore.core.annotations import checked
from rmqstore.core.arguments import I32_MAX, integer
from rmqstore.core.locks import let_go
from rmqstore.core.message import Message, PutStatus
from rmqstore.engine.broker.config_file import ConfigFile
from rmqstore.engine.log.encode.record_frame import may_be_stored
from rmqstore.engine.log.put.refusal_reasons import topic_reason
from rmqstore.errors import Rejected, StoreClosed
from rmqstore.files.filesystem import FileSystem, join
from rmqstore.formats import broker_json, names
from rmqstore.formats.broker_json import (
    BATCH_QUEUES,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    PLAIN_QUEUES,
    QUEUE_TYPE,
    DataVersion,
    TopicConfig,
)
from rmqstore.formats.broker_json_text import storable_fields, topics_text
from rmqstore.formats.names import CONFIG_ROOM

_TABLE = "topicConfigTable"
_ANY_QUEUE = I32_MAX + 1
_PERM_MAX = 15
# How many queues a topic gets because messages ask for them.  Nobody has so many: it is a hash, or a user's id, that
# asks for more.
GROWN_QUEUE_NUMS_MAX = 65_536

# Queues of the topics that a broker makes for itself (Java: TopicConfigManager); all others have one.
_OWN_QUEUE_NUMS = {names.SCHEDULE_TOPIC: 18, names.BENCHMARK_TOPIC: 1024, names.AUTO_CREATE_TOPIC: 8}
_REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
_REVIVE_QUEUE_NUMS = 8
_OWN_PERMS = {names.AUTO_CREATE_TOPIC: PERM_READ | PERM_WRITE | PERM_INHERIT}
_SYNC_MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"


@dataclass(frozen=True)
class _Document:
    """The contents of topics.json."""

    configs: Mapping[str, TopicConfig]
    version: DataVersion
    others: Mapping[str, Any] = field(default_factory=dict)


class Topics:
    """The table of topics; a PutHook; any thread.

    `auto_create` False refuses messages for topics that are not in it, but those of a broker's own: system topics,
    %RETRY%, %DLQ% and %LMQ% may always be put to, into any queue, and are made when first seen (%LMQ% topics stand in
    no table, as in RocketMQ).  With it a topic also gets more queues when a message asks for one, where RocketMQ
    refuses it: a program that embeds a store has nobody else to ask.  `retry_queue_nums` says how many queues the retry
    topic of a group gets, else it is one.  Messages of a topic whose entry in the file nobody can read are refused
    until it is mended, or `put` replaces it: another entry in its place might let in what it keeps out.
    `last_failure` is why the last topic on demand could not be saved, None since one could.
    """

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        clock: Clock,
        *,
        auto_create: bool = True,
        default_queue_nums: int = 8,
        retry_queue_nums: Callable[[str], int] | None = None,
    ) -> None:
        self.last_failure: OSError | None = None
        self._clock = clock
        self._auto_create = auto_create
        self._default_queue_nums = default_queue_nums
        self._retry_queue_nums = retry_queue_nums
        self._lock = threading.RLock()  # guards what follows; _limits is read without it
        self._configs: dict[str, TopicConfig] = {}
        self._limits: dict[str, int] = {}  # topic -> queue ids below this take messages
        self._batch_topics: set[str] = set()  # read without it too
        self._version = DataVersion(0, clock.now_ms())
        self._others: Mapping[str, Any] = {}
        self._file = ConfigFile(fs, join(root, CONFIG_ROOM, "topics.json"), _parse, _text)

    def load(self) -> list[str]:
        """Reads the file; returns warnings.  Raises OSError where the disk fails to read it."""
        with self._lock:
            found, warnings = self._file.load()
            if found is not None:
                self._configs = dict(found.configs)
                for config in found.configs.values():
                    self._know(config)
                self._version = found.version
                self._others = found.others
        return warnings

    def close(self) -> None:
        """Ends writing: later changes raise StoreClosed, and topics on demand are refused."""
        with self._lock:
            self._file.close()

    @checked
    def find(self, topic: str) -> TopicConfig | None:
        """A topic's configuration."""
        config = self._configs.get(topic)
        if config is None and names.is_light_queue(topic):
            return TopicConfig(topic, 1, 1)
        return config

    def is_batch_topic(self, topic: str) -> bool:
        """Whether a topic has batch queues (queue.type=BatchCQ)."""
        return topic in self._batch_topics

    def all(self) -> Mapping[str, TopicConfig]:
        """Every topic's configuration, as it is at this moment."""
        with self._lock:
            return dict(self._configs)

    @checked
    def put(self, config: TopicConfig) -> None:
        """Adds or changes a topic; durable when it returns.  Members of the file that `TopicConfig` does not know are
        kept, unless it brings its own.  Raises Rejected, also for another queue.type than the topic has, OSError with
        nothing changed.
        """
        config = storable_fields(config)
        _check(config)
        with self._lock:
            before = self._configs.get(config.topic)
            if before is not None and before.has_batch_queues != config.has_batch_queues:
                raise Rejected(f"topic={config.topic!r}: {QUEUE_TYPE} of an existing topic cannot change, because "
                    "all its queues have one type")  # fmt: skip
            if before is not None and not config.unknown_fields:
                config = replace(config, unknown_fields=before.unknown_fields)
            self._save(self._configs | {config.topic: config}, self._others_without(config.topic))
            self._know(config)

    @checked
    def remove(self, topic: str) -> bool:
        """Takes a topic out; durable when it returns.  False if there is none.  Raises OSError with nothing changed."""
        with self._lock:
            if topic not in self._configs and topic not in self._odd:
                return False
            kept = {name: config for name, config in self._configs.items() if name != topic}
            self._save(kept, self._others_without(topic))
            self._configs.pop(topic, None)
            # The kind of its queues counts until a topic of its name is made: records may still come.
            self._limits.pop(topic, None)
        return True

    @property
    def _odd(self) -> Mapping[str, Any]:
        """Entries of the file that nobody could read, by topic."""
        return self._others.get(_TABLE) or {}

    def _others_without(self, topic: str) -> Mapping[str, Any]:
        odd = {name: entry for name, entry in self._odd.items() if name != topic}
        return {name: value for name, value in self._others.items() if name != _TABLE} | ({_TABLE: odd} if odd else {})

    def follow(self, document: Any) -> None:
        """Takes over the whole table of another broker, as its topics.json has it; durable when it returns.

        Raises Corrupt for a table that no broker has, OSError with nothing changed.
        """
        found, _ = self._file.shaped(document)
        with self._lock:
            if (found.configs, found.version, found.others) == (self._configs, self._version, self._others):
                return
            self._file.save(found)
            for topic in self._configs.keys() - found.configs.keys():
                del self._configs[topic]
                del self._limits[topic]
            for config in found.configs.values():
                self._know(config)
            self._version, self._others = found.version, found.others

    def adopt(self, queues: Iterable[tuple[str, int]], is_batch_topic: Callable[[str], bool] = lambda _: False) -> None:
        """Adds the topics of these queues (topic, queue id) that are not in the table, with as many queues as there
        are, and of their kind: a store written without a broker has no table.  In memory only, until something else is
        saved; those whose entry nobody can read stay there, to be read from.
        """
        counts: dict[str, int] = {}
        for topic, queue_id in queues:
            counts[topic] = max(counts.get(topic, 0), queue_id + 1)
        with self._lock:
            for topic, count in counts.items():
                if topic not in self._configs and _is_listed(topic):
                    config = self._with_queues(topic, count)
                    if topic in self._odd:
                        config = replace(config, perm=PERM_READ)
                    if is_batch_topic(topic):
                        config = replace(config, attributes={QUEUE_TYPE: BATCH_QUEUES})
                    self._know(config)

    def __call__(self, message: Message) -> Message | PutStatus:
        """The message, if its topic takes messages in its queue; otherwise a refusal (PutHook)."""
        if 0 <= message.queue_id < self._limits.get(message.topic, 0):
            return message
        return self._admit([(message.topic, message.queue_id)]) or message

    def refusal_reason(self, message: Message) -> str:
        """Why a message was refused, in words."""
        return self.why_not(message.topic, message.queue_id)

    def why_not(self, topic: str, queue_id: int) -> str:
        """Why a queue takes no messages, in words; "" where nothing speaks against it."""
        known = self._configs.get(topic)
        if not self._may_go(topic, queue_id):
            if not 0 <= queue_id < I32_MAX:
                return f"queue_id={queue_id}: 0 to {I32_MAX - 1}"
            if topic in self._odd:
                return (
                    f"topic {topic!r}: its entry in {self._file.path} cannot be read; correct it while the store is "
                    "closed, or replace it with store.topics.put"
                )
            if known is not None and not _limit(known):
                can_write = known.perm & PERM_WRITE
                why = "writeQueueNums is 0" if can_write else f"perm is {known.perm}, without 2 (write)"
                return f"topic {topic!r} takes no messages: its {why}"
            if known is None and not may_be_stored(topic, long_as_v2=True):
                return topic_reason(topic)
            if known is None and not self._auto_create:
                return f"no topic {topic!r}, and auto_create_topics is off: create it with store.topics.put"
            count = 0 if known is None else known.write_queue_nums
            most = (
                f"puts raise this to {GROWN_QUEUE_NUMS_MAX} at most" if self._auto_create else "puts do not raise this"
            )
            return (
                f"queue_id={queue_id}: topic {topic!r} has {count} queues, and {most}; raise it with store.topics.put"
            )
        if self.last_failure is not None:
            return f"topic {topic!r} could not be created: {self.last_failure}"
        return ""

    def admit_columns(self, topics: Sequence[str], queue_id_max: Sequence[int]) -> PutStatus | None:
        """Asks for several topics at once, each with its highest queue id; the topics to be made are saved together.
        None if all are admitted, otherwise a refusal, with none made.
        """
        limits = self._limits
        places = [place for place in zip(topics, queue_id_max, strict=True)
                  if not 0 <= place[1] < limits.get(place[0], 0)]  # fmt: skip
        return self._admit(places) if places else None

    def _admit(self, places: Iterable[tuple[str, int]]) -> PutStatus | None:
        """Makes the topics that are missing and may be made."""
        try:
            return self._admitted(places)
        except BaseException:
            let_go((self._lock,))
            raise

    def _admitted(self, places: Iterable[tuple[str, int]]) -> PutStatus | None:
        with self._lock:
            made: dict[str, TopicConfig] = {}
            for topic, given in places:
                queue_id = integer("queue_id", given)
                if not self._may_go(topic, queue_id):
                    return PutStatus.MESSAGE_ILLEGAL
                known = made.get(topic) or self._configs.get(topic)
                if known is None and topic not in self._odd and _is_listed(topic):
                    made[topic] = self._made(topic, queue_id + 1)
                elif known is not None and _limit(known) <= queue_id:
                    made[topic] = _widened(known, queue_id + 1)
            if not made:
                return None
            try:
                self._save(self._configs | made)
            except StoreClosed:
                return PutStatus.SERVICE_NOT_AVAILABLE
            except OSError as failure:
                self.last_failure = failure
                return PutStatus.SERVICE_NOT_AVAILABLE
            self.last_failure = None
            for config in made.values():
                self._know(config)
        return None

    def _may_go(self, topic: str, queue_id: int) -> bool:
        limit = self._limits.get(topic)
        if limit is not None and (0 <= queue_id < limit or not self._auto_create or not limit):
            return 0 <= queue_id < limit
        if not 0 <= queue_id < I32_MAX or not may_be_stored(topic, long_as_v2=True):
            return False
        if names.is_system_topic(topic):
            return True
        return self._auto_create and queue_id < GROWN_QUEUE_NUMS_MAX and topic not in self._odd

    def _made(self, topic: str, queue_nums: int) -> TopicConfig:
        """A topic made on demand."""
        if not names.is_system_topic(topic):
            queue_nums = max(queue_nums, self._default_queue_nums)
        return self._with_queues(topic, queue_nums)

    def _with_queues(self, topic: str, queue_nums: int) -> TopicConfig:
        """A topic with at least so many queues, and as many as RocketMQ gives it if it is one of its own."""
        if topic.startswith(names.RETRY_PREFIX) and self._retry_queue_nums is not None:
            own = self._retry_queue_nums(topic.removeprefix(names.RETRY_PREFIX))
        else:
            own = _REVIVE_QUEUE_NUMS if topic.startswith(_REVIVE_PREFIX) else _OWN_QUEUE_NUMS.get(topic, 1)
        queue_nums = min(max(queue_nums, own), I32_MAX)
        perm = PERM_INHERIT if topic.startswith(_SYNC_MEMBER_PREFIX) else _OWN_PERMS.get(topic, PERM_READ | PERM_WRITE)
        return TopicConfig(topic, queue_nums, queue_nums, perm)

    def _save(self, configs: Mapping[str, TopicConfig], others: Mapping[str, Any] | None = None) -> None:
        """Writes a table, under the lock."""
        version, others = self._version.next(self._clock.now_ms()), self._others if others is None else others
        odd = others.get(_TABLE) or {}
        configs = {name: config for name, config in configs.items() if name not in odd} if odd else configs
        self._file.save(_Document(configs, version, others))
        self._version, self._others = version, others

    def _know(self, config: TopicConfig) -> None:
        self._configs[config.topic] = config
        self._limits[config.topic] = _limit(config)
        (self._batch_topics.add if config.has_batch_queues else self._batch_topics.discard)(config.topic)


def _parse(document: Any) -> _Document:
    others = broker_json.others_of(document, ("dataVersion", _TABLE))
    version = broker_json.data_version(document) or DataVersion()
    return _Document(broker_json.topic_configs(document), version, others)


def _text(document: _Document) -> str:
    return topics_text(document.configs, document.version, document.others)


def _limit(config: TopicConfig) -> int:
    if names.is_system_topic(config.topic):
        return _ANY_QUEUE
    return config.write_queue_nums if config.perm & PERM_WRITE else 0


def _widened(config: TopicConfig, queue_nums: int) -> TopicConfig:
    """The topic with at least so many queues."""
    read, write = max(config.read_queue_nums, queue_nums), max(config.write_queue_nums, queue_nums)
    return replace(config, read_queue_nums=read, write_queue_nums=write)


def _is_listed(topic: str) -> bool:
    """Whether a topic has a place in the table."""
    return not names.is_light_queue(topic) and names.is_topic_name(topic)


def _check(config: TopicConfig) -> None:
    """Raises Rejected for a topic that no broker could read back or hold."""
    mistakes = []
    if not names.is_topic_name(config.topic):
        mistakes.append(f"topic={config.topic!r}: letters, digits, %, |, _ and -, at most 255")
    if names.is_light_queue(config.topic):
        mistakes.append(f"topic={config.topic!r}: light queues (%LMQ%) are not in the table of topics")
    fields = ("read_queue_nums", "write_queue_nums", "sys_flag")
    numbers = {name: getattr(config, name) for name in fields}
    mistakes += [f"{name}={value}: 0 to {I32_MAX}" for name, value in numbers.items() if not 0 <= value <= I32_MAX]
    if not 0 <= config.perm <= _PERM_MAX:
        mistakes.append(f"perm={config.perm}: a sum of 4 (read), 2 (write), 1 (inherit)")
    if config.attributes.get(QUEUE_TYPE, PLAIN_QUEUES) not in (PLAIN_QUEUES, BATCH_QUEUES):
        mistakes.append(f"{QUEUE_TYPE}={config.attributes[QUEUE_TYPE]!r}: {PLAIN_QUEUES} or {BATCH_QUEUES}")
    if mistakes:
        raise Rejected("; ".join(mistakes))
