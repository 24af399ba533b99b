"""What Java is made to put, and we after it, for the comparison byte for byte."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rmqstore.config import StoreConfig
from tests.conformance.workload import (
    JAVA_SIZES,
    SIZES,
    STORE_HOST,
    Json,
    as_batch_request,
    as_request,
    host,
    message,
)

PART_COUNT = 8
_V6 = "[2001:db8::7]:10911"


@dataclass(frozen=True)
class Script:
    """`part` makes the requests of one of PART_COUNT parts, which Java gets with pauses between."""

    part: Callable[[random.Random], list[Json]]
    store_host: str = STORE_HOST
    config: Json = field(default_factory=dict)
    java: Json = field(default_factory=dict)

    @property
    def java_config(self) -> Json:
        """Settings for RocketMQ."""
        return JAVA_SIZES | self.java

    @property
    def store_config(self) -> StoreConfig:
        """Settings for us."""
        return StoreConfig(**SIZES, store_host=self.store_host, **self.config)


def _everything(rng: random.Random) -> list[Json]:
    """Every kind of message, busy enough to roll all kinds of files."""
    requests = []
    for number in range(90):
        topic, queue_id = rng.choice(("a", "a", "a", "b", "%RETRY%g", "T|c")), rng.choice((0, 0, 1, 5))
        if number % 10 == 0:
            pieces = [message(rng, topic, queue_id) for _ in range(rng.randint(1, 9))]
            more = rng.choice(({}, {"батч": "да", "second": "2"}))
            requests.append(as_batch_request(pieces, more))
        elif number % 10 == 1:
            level = rng.randint(1, 18)
            later = {"DELAY": str(level), "REAL_TOPIC": topic, "REAL_QID": str(queue_id)}
            requests.append(as_request(message(rng, "SCHEDULE_TOPIC_XXXX", level - 1, properties=later)))
        else:
            kind = rng.choice((0x0, 0x0, 0x0, 0x4, 0x8, 0xC, 0x2))
            prepared = rng.choice((0, rng.getrandbits(40)))
            sent = message(rng, topic, queue_id, sys_flag=kind, prepared_transaction_offset=prepared)
            requests.append(as_request(sent))
    return requests


def _addresses(store_host: str) -> Callable[[random.Random], list[Json]]:
    def part(rng: random.Random) -> list[Json]:
        sent = [message(rng, "six", number % 2, born_host=host(rng, rng.random() < 0.5)) for number in range(20)]
        requests = [as_request(one, store_host) for one in sent]
        pieces = [message(rng, "six", 0, born_host=host(rng, is_v6=True)) for _ in range(4)]
        return [*requests, as_batch_request(pieces, {}, store_host)]

    return part


def _long_topics(rng: random.Random) -> list[Json]:
    topics = ("t" * 127, "%RETRY%" + "g" * 121, "%RETRY%" + "g" * 248)
    sent = [message(rng, topics[number % 3], number % 2, born_host=host(rng, number % 4 == 0)) for number in range(9)]
    return [*map(as_request, sent), as_batch_request([message(rng, topics[1], 0) for _ in range(3)], {})]


def _property_crc(rng: random.Random) -> list[Json]:
    sent = [message(rng, "sums", number % 2, born_host=host(rng, number % 4 == 0)) for number in range(30)]
    bare = message(rng, "sums", 0, tags=None, keys=(), properties={}, body=b"")
    return [*map(as_request, [*sent, bare]), as_batch_request([message(rng, "sums", 0) for _ in range(4)], {})]


SCRIPTS: Mapping[str, Script] = {
    "everything": Script(_everything),
    "born-v6": Script(_addresses(STORE_HOST)),
    "store-v6": Script(_addresses(_V6), _V6),
    "long-topics": Script(_long_topics),
    "property-crc": Script(_property_crc, STORE_HOST, {"append_property_crc": True}, {"enabledAppendPropCRC": True}),
}
