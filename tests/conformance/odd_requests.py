"""Requests as nobody should send them, and some as everybody does: every status that a put or a get can answer.

They stand here in the oracle's words.  A put goes to a topic of its own unless it names one, so that a difference in
one of them does not show up again in the others.  Left out are the statuses that no request brings about by itself: a
disk or a lock that is too slow (FLUSH_DISK_TIMEOUT, OS_PAGE_CACHE_BUSY, CREATE_MAPPED_FILE_FAILED), replication, the
timer wheel, OFFSET_FOUND_NULL (the files of a queue that go while they are read).
"""

import base64
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rmqstore.formats.inner_batch import Piece, encode_pieces
from tests.conformance.workload import STORE_HOST, Json

BODY_SIZE_MAX = 1000  # maxMessageSize of the stores that are asked
BATCH_QUEUES = {"queue.type": "BatchCQ"}
WHOLE = 0xC0  # the flags of an inner batch
READS = "reads"
COLLIDING = ("Aa", "BB")  # tags of one hash
_EVER = 2**62
_SCHEDULE, _HALF = "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"
_NEW = ("5.3.3", "5.5.1")


@dataclass(frozen=True)
class Odd:
    """One request: what is odd about it, and itself; `versions` are the releases that know such a thing."""

    name: str
    request: Json
    versions: tuple[str, ...] = ("5.3.3", "4.9.8", "5.5.1")


def _put(name: str, versions: tuple[str, ...] = ("5.3.3", "4.9.8", "5.5.1"), **fields: object) -> Odd:
    body = fields.get("body", b"pear")
    coded = base64.b64encode(body).decode() if isinstance(body, bytes) else body
    request: Json = {
        "op": "put", "queueId": 0, "flag": 0, "sysFlag": 0, "bornTimestamp": 1_700_000_000_000,
        "bornHost": "203.0.113.9:4711", "storeHost": STORE_HOST, "reconsumeTimes": 0, "preparedTransactionOffset": 0,
        "properties": {},
    }  # fmt: skip
    return Odd(name, request | fields | {"body": coded}, versions)


def _batch(name: str, pieces: Sequence[tuple[bytes, Json]], **fields: object) -> Odd:
    messages = [{"body": base64.b64encode(body).decode(), "flag": number, "properties": properties}
                for number, (body, properties) in enumerate(pieces)]  # fmt: skip
    request: Json = {
        "op": "putBatch", "queueId": 0, "sysFlag": 0, "bornTimestamp": 1_700_000_000_000,
        "bornHost": "203.0.113.9:4711", "storeHost": STORE_HOST, "properties": {}, "messages": messages,
    }  # fmt: skip
    return Odd(name, request | fields)


def _topics() -> Iterator[Odd]:
    named = {
        "a topic of no name": "", "a topic of 1 byte": "o", "a topic of 127 bytes": "o" * 127,
        "a topic of 128 bytes": "o" * 128, "a topic of 255 bytes": "o" * 255, "a topic of 256 bytes": "o" * 256,
        "a topic with a space": "pears and apples", "a topic with a dot": "pears.apples", "a topic with a slash": "a/b",
        "a topic with a bar and a percent": "a|b%c", "a topic with an umlaut": "äpfel", "a topic with a 0x01": "a\1b",
        "a reply topic": "cluster_REPLY_TOPIC", "a light topic": "%LMQ%x", "a topic of a prefix alone": "%RETRY%",
        "TBW102": "TBW102", "the benchmark's topic": "BenchmarkTest", "the trace topic": "RMQ_SYS_TRACE_TOPIC",
        "a topic rmq_sys_": "rmq_sys_own", "the half topic": _HALF, "the op topic": "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "the timer's topic": "rmq_sys_wheel_timer", "OFFSET_MOVED_EVENT": "OFFSET_MOVED_EVENT",
    }  # fmt: skip
    for name, topic in named.items():
        yield _put(name, topic=topic)
    for prefix in ("%RETRY%", "%DLQ%", "%LMQ%", "rmq_sys_"):
        for size in (127, 128, 255, 256):
            yield _put(f"a topic {prefix} of {size} bytes", topic=prefix + "g" * (size - len(prefix)))
    for prefix in ("%RETRY%", "%DLQ%"):
        topic = prefix + "d" * (200 - len(prefix))
        yield _put(f"a delayed message for a topic {prefix} of 200 bytes", topic=topic, properties={"DELAY": "17"})
        yield _batch(f"a batch for a topic {prefix} of 201 bytes", [(b"a", {})], topic=topic + "b")


def _numbers() -> Iterator[Odd]:
    for queue_id in (-(2**31), -1, 7, 8, 1000, 2**31 - 2, 2**31 - 1):
        yield _put(f"queue id {queue_id}", queueId=queue_id)
    for flag in (-(2**31), -1, 1, 2**31 - 1):
        yield _put(f"flag {flag}", flag=flag)
    for ms in (-(2**63), -1, 0, 2**63 - 1):
        yield _put(f"born at {ms}", bornTimestamp=ms)
    for times in (-(2**31), -1, 1, 2**31 - 1):
        yield _put(f"reconsumeTimes {times}", reconsumeTimes=times)
    for offset in (-(2**63), -1, 1, 2**63 - 1):
        yield _put(f"preparedTransactionOffset {offset}", preparedTransactionOffset=offset)
    hosts = ("0.0.0.0:0", "255.255.255.255:65535", "[::]:0", "[::1]:1", "[fe80::1]:10911", "[::ffff:192.0.2.1]:7",
             "[2001:db8::7]:65535")  # fmt: skip
    for host in hosts:
        yield _put(f"born on {host}", bornHost=host)


def _bodies() -> Iterator[Odd]:
    yield _put("a body that is null", body=None)
    for size in (0, 1, BODY_SIZE_MAX - 1, BODY_SIZE_MAX, BODY_SIZE_MAX + 1, 70_000):
        yield _put(f"a body of {size} bytes", body=b"b" * size)
    yield _put("a body of zeros", body=bytes(100))
    yield _put("a body that looks like a record", body=bytes.fromhex("0000005edaa320a7") * 10)


def _properties() -> Iterator[Odd]:
    named: dict[str, Json] = {
        "no properties": {}, "a property of no value": {"a": ""}, "a property of no name": {"": "a"},
        "a property whose value is null": {"a": None}, "a null among others": {"a": None, "b": "1", "UNIQ_KEY": "U0"},
        "TAGS that are null": {"TAGS": None, "b": "1"}, "KEYS that are null": {"KEYS": None},
        "a UNIQ_KEY that is null": {"UNIQ_KEY": None, "KEYS": "k"}, "DELAY that is null": {"DELAY": None},
        "WAIT that is null": {"WAIT": None}, "the text None": {"a": "None"},
        "a name with a 0x01": {"a\1b": "c"}, "a name with a 0x02": {"a\2b": "c"}, "a value with a 0x01": {"a": "b\1c"},
        "a value with a 0x02": {"a": "b\2c"}, "a value that is a 0x02": {"a": "\2"}, "a value of one space": {"a": " "},
        "a name of one space": {" ": "a"}, "a zero byte in a value": {"a": "b\0c"},
        "a lone surrogate": {"a": "\ud800"}, "a lone surrogate in a name": {"\udc00a": "1"}, "an emoji": {"😀": "😀"},
        "Chinese": {"数量": "三"}, "TAGS": {"TAGS": "a"}, "TAGS of no value": {"TAGS": "", "b": "1"},
        "TAGS with bars": {"TAGS": "a || b"}, "TAGS with a surrogate": {"TAGS": "\ud83d"},
        "KEYS with spaces": {"KEYS": " k1  k2 "}, "KEYS of one space": {"KEYS": " "}, "KEYS twice": {"KEYS": "k k"},
        "KEYS of no value": {"KEYS": ""}, "a UNIQ_KEY of no value": {"UNIQ_KEY": ""},
        "a UNIQ_KEY that is a key": {"UNIQ_KEY": "u9", "KEYS": "u9 k9"}, "WAIT true": {"WAIT": "true"},
        "WAIT false": {"WAIT": "false"}, "WAIT yes": {"WAIT": "yes"}, "WAIT TRUE": {"WAIT": "TRUE"},
        "a CRC from outside": {"__CRC32#": "0123456789", "a": "b"}, "a transient name": {"__RMQ.TRANSIENT.a": "b"},
        "a transient name among others": {"__RMQ.TRANSIENT.a": "b", "c": "d"}, "names like sysFlags": {"0": "1"},
        "INNER_NUM without its flag": {"INNER_NUM": "3"}, "INNER_NUM that is null": {"INNER_NUM": None},
        "INNER_NUM of no value": {"INNER_NUM": ""}, "INNER_BASE alone": {"INNER_BASE": "3"},
        "INNER_MULTI_DISPATCH that nobody asked for": {"INNER_MULTI_DISPATCH": "%LMQ%q"},
        "REAL_TOPIC from outside": {"REAL_TOPIC": "other", "REAL_QID": "3"}, "DUP_INFO": {"DUP_INFO": "a_b"},
    }  # fmt: skip
    for name, found in named.items():
        yield _put(name, properties=found)
    for size in (32_766, 32_767, 32_768, 40_000):
        yield _put(f"properties of {size} bytes", properties={"p": "v" * (size - 3)})
    yield _put("properties of 32768 bytes in 10924 characters", properties={"p": "三" * 10_921 + "vv"})
    yield _put("a thousand properties", properties={f"p{number:03}": str(number) for number in range(1000)})


def _flags() -> Iterator[Odd]:
    for bit in (0x2, 0x4, 0x8, 0xC, 0x40, 0x800, 0x8000, 0x40000000, -(2**31)):
        yield _put(f"sysFlag {bit:#x}", sysFlag=bit, properties={"KEYS": f"flag{bit}"})
    for bit in (0x80, 0xC0):
        yield _put(f"sysFlag {bit:#x}", _NEW, sysFlag=bit)
    body = zlib.compress(b"many words " * 20)
    for kind in range(8):
        flags = 0x1 | kind << 8
        yield _put(f"compressed, type {kind}", sysFlag=flags, body=body, properties={"KEYS": f"type{kind}"})
        lie = {"KEYS": f"lie{kind}", "TAGS": "lie"}
        yield _put(f"said to be compressed, type {kind}", sysFlag=flags, body=b"plain words", properties=lie)
    yield _put("a compression type, not compressed", sysFlag=0x200)
    yield _put("said to be compressed, empty", sysFlag=0x1, body=b"")
    for kind in (0x4, 0x8, 0xC):
        yield _put(f"delayed, of transaction kind {kind:#x}", sysFlag=kind, properties={"DELAY": "16"})


def _delays() -> Iterator[Odd]:
    for text in ("0", "-1", "00", "-0", "1", "3", "18", "19", "2147483647", "2147483648", "99999999999", "-99999999999",
                 "abc", "", " 3", "3 ", "3.0", "0x3"):  # fmt: skip
        yield _put(f"DELAY {text!r}", properties={"DELAY": text})
    for text in ("+3", "003"):
        yield _put(f"DELAY {text!r}", properties={"DELAY": text, "TAGS": "a", "KEYS": "k"})
    yield _put("DELAY in Arabic digits", properties={"DELAY": "٤"})
    yield _put("DELAY with all else", properties={"DELAY": "2", "TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "u"})
    yield _put("DELAY in queue 5", properties={"DELAY": "6"}, queueId=5)
    yield _put("DELAY and REAL_TOPIC", properties={"DELAY": "5", "REAL_TOPIC": "other", "REAL_QID": "9"})
    yield _put("by hand in the schedule topic", topic=_SCHEDULE, queueId=9)
    yield _put("by hand in the schedule topic, DELAY", topic=_SCHEDULE, queueId=6, properties={"DELAY": "7"})
    yield _put("by hand in the schedule topic, DELAY 'abc'", topic=_SCHEDULE, queueId=10, properties={"DELAY": "abc"})
    for name, value in (("TIMER_DELAY_SEC", "5"), ("TIMER_DELAY_MS", "abc"), ("TIMER_DELIVER_MS", "1")):
        yield _put(f"a timer message, {name}", _NEW, properties={name: value})
        yield _put(f"{name} and DELAY", _NEW, properties={name: value, "DELAY": "8"})
        yield _put(f"{name} and DELAY 0", _NEW, properties={name: value, "DELAY": "0"})


def _batches() -> Iterator[Odd]:
    full = BODY_SIZE_MAX - 32  # a piece says its sizes in 22 bytes, and WAIT=true, which RocketMQ's Message sets, in 10
    named: dict[str, list[tuple[bytes, Json]]] = {
        "a batch of none": [], "a batch of one": [(b"a", {})], "a batch of two": [(b"a", {"a": "1"}), (b"b", {})],
        "a batch of 25": [(b"%d" % number, {}) for number in range(25)], "a batch of empty bodies": [(b"", {})] * 3,
        "a batch with TAGS and KEYS": [(b"a", {"TAGS": "a", "KEYS": "b1 b2"}), (b"b", {"TAGS": "b", "UNIQ_KEY": "u"})],
        "a batch whose encoded body is at the limit": [(b"a" * full, {})],
        "a batch whose encoded body is at the limit, two pieces": [(b"a" * (full - 60), {}), (b"b" * 28, {})],
        "a batch whose encoded body is over the limit by 1": [(b"a" * (full + 1), {})],
        "a batch whose encoded body is over the limit by 2": [(b"a" * (full + 2), {})],
        "a batch whose bodies are at the limit": [(b"a" * 500, {}), (b"b" * 500, {})],
        "a batch whose properties are over the limit": [(b"a", {"p": "v" * BODY_SIZE_MAX})],
        "a batch of bodies over the limit": [(b"a" * 700, {}), (b"b" * 700, {})],
        "a batch with a null value": [(b"a", {"a": None, "b": "1"})],
        "a batch with a value with 0x02": [(b"a", {"a": "b\2c"})], "a batch with no name": [(b"a", {"": "1"})],
        "a batch with INNER_NUM": [(b"a", {"INNER_NUM": "2"})], "a batch with WAIT false": [(b"a", {"WAIT": "false"})],
        "a batch with a CRC from outside": [(b"a", {"__CRC32#": "0123456789"})],
        "a batch with a transient name": [(b"a", {"__RMQ.TRANSIENT.a": "b"})],
    }  # fmt: skip
    for name, pieces in named.items():
        yield _batch(name, pieces)
    for text in ("0", "-1", "00", "-0", "3", "+3", "99999999999", "abc", ""):
        yield _batch(f"a batch with DELAY {text!r}", [(b"a", {"DELAY": text}), (b"b", {})])
        yield _batch(f"a batch of DELAY {text!r}", [(b"a", {}), (b"b", {})], properties={"DELAY": text})
    yield _batch("a batch whose second has DELAY 3", [(b"a", {}), (b"b", {"DELAY": "3"})])
    for flags in (0x1, 0x4, 0x8, 0xC, 0x40):
        yield _batch(f"a batch with sysFlag {flags:#x}", [(b"a", {}), (b"b", {})], sysFlag=flags)
    yield _batch("a batch born on IPv6", [(b"a", {}), (b"b", {})], bornHost="[::1]:1")
    yield _batch("a batch in queue -1", [(b"a", {})], queueId=-1)
    yield _batch("a batch for no topic", [(b"a", {})], topic="")
    yield _batch("a batch for a topic of 128 bytes", [(b"a", {})], topic="b" * 128)
    yield _batch("a batch for the schedule topic", [(b"a", {})], topic=_SCHEDULE, queueId=12)


def _inner_batches() -> Iterator[Odd]:
    body = encode_pieces([Piece(0, b"a", b""), Piece(1, b"b", b"TAGS\1x\2")])
    whole: Json = {"INNER_NUM": "2", "UNIQ_KEY": "U1"}

    def inner(name: str, properties: Json, **fields: object) -> Odd:
        given = {"body": body, "sysFlag": WHOLE, "properties": properties, "attributes": BATCH_QUEUES}
        return _put(f"an inner batch, {name}", _NEW, **(given | fields))

    yield inner("as it should be", whole)
    yield inner("with KEYS and TAGS", whole | {"KEYS": "i1", "TAGS": "a"})
    yield inner("with an INNER_BASE of its own", whole | {"INNER_BASE": "77"})
    for text in ("1", "3", "32767", "0", "-1", "32768", "abc", "", "+2", "02"):
        yield inner(f"INNER_NUM {text!r}", whole | {"INNER_NUM": text})
    yield inner("INNER_NUM null", whole | {"INNER_NUM": None})
    yield inner("no INNER_NUM", {"UNIQ_KEY": "U1"})
    yield inner("an empty body", whole, body=b"")
    yield inner("a body that is none", whole, body=b"no pieces")
    yield inner("a body at the limit", whole, body=body.ljust(BODY_SIZE_MAX, b"\0"))
    yield inner("a body over the limit", whole, body=body.ljust(BODY_SIZE_MAX + 1, b"\0"))
    for flags in (0x40, 0x80, 0xC4, 0xC8, 0xCC, 0xC1):
        yield inner(f"sysFlag {flags:#x}", whole, sysFlag=flags)
    yield inner("delayed", whole | {"DELAY": "9"})
    yield inner("for a plain topic", whole, attributes={})
    yield _put("a plain message for a topic of batches", _NEW, attributes=BATCH_QUEUES)
    yield _put("a message for a topic of batches, INNER_NUM", _NEW, attributes=BATCH_QUEUES, properties=whole)


def _readable() -> Iterator[Odd]:
    tags = ("a", "b", "", "a", "Aa", "BB", "a", "b", "a || b", "*")
    for number, tag in enumerate(tags):
        properties = {"TAGS": tag} if tag else {}
        yield _put(f"to read, {number}", topic=READS, properties=properties | {"KEYS": f"k{number} every k#k"})
    for number, kind in enumerate((0x4, 0xC)):
        properties = {"KEYS": f"half{number}"}
        yield _put(f"to read, kind {kind:#x}", topic=READS, queueId=1, sysFlag=kind, properties=properties)


def _poison() -> Iterator[Odd]:
    """What RocketMQ stores and then cannot read: its dispatch does not get behind these, and recovery cuts there."""
    named: Json = {"INNER_NUM": "abc", "INNER_BASE": "0"}
    yield _batch("a batch with an INNER_NUM that is no number", [(b"a", named)])
    yield _batch("a batch for the schedule topic, DELAY 'abc'", [(b"a", {"DELAY": "abc"})], topic=_SCHEDULE, queueId=13)
    for kind in (0x4, 0xC):
        name = f"by hand in the schedule topic, DELAY 'abc', kind {kind:#x}"
        yield _put(name, topic=_SCHEDULE, queueId=10, sysFlag=kind, properties={"DELAY": "abc"})
    for bit, host in ((0x10, "203.0.113.9:4711"), (0x20, "203.0.113.9:4711"), (0x30, "203.0.113.9:4711"),
                      (0x20, "[::1]:1")):  # fmt: skip
        yield _put(f"sysFlag {bit:#x}, born on {host}", sysFlag=bit, bornHost=host)


PUTS: tuple[Odd, ...] = (
    *_topics(), *_numbers(), *_bodies(), *_properties(), *_flags(), *_delays(), *_batches(), *_inner_batches(),
    *_readable(), *_poison(),
)  # fmt: skip


def _ask(name: str, op: str, **fields: object) -> Odd:
    return Odd(name, {"op": op, "topic": READS} | fields)


def _gets() -> Iterator[Odd]:
    for offset in (-(2**63), -1, 0, 1, 9, 10, 11, 1000, 2**63 - 1):
        yield _ask(f"get from {offset}", "get", queueId=0, offset=offset, max=32)
    for count in (1, 2, 10, 33, 2**31 - 1, 0, -1, -(2**31)):
        yield _ask(f"get {count}", "get", queueId=0, offset=0, max=count)
    for tags in ("*", "", "a", "b", "a || b", "a||b", " a ", "a ||", "|| a", "||", " ", "zz", "zz || yy", COLLIDING[0],
                 "* || a", "a | b", "A"):  # fmt: skip
        yield _ask(f"get tags {tags!r}", "get", queueId=0, offset=0, max=32, tags=tags)
    yield _ask("get tags 'a' from 8", "get", queueId=0, offset=8, max=32, tags="a")
    yield _ask("get one of tags 'b'", "get", queueId=0, offset=0, max=1, tags="b")
    yield _ask("get from a queue of no committed message", "get", queueId=1, offset=0, max=32)
    yield _ask("get from 5 of a queue of no committed message", "get", queueId=1, offset=5, max=32)
    for queue_id in (2, -1, 2**31 - 1):
        yield _ask(f"get from queue {queue_id}", "get", queueId=queue_id, offset=0, max=32)
    for topic in ("nobody", "o" * 128, READS.upper()):
        yield _ask(f"get from topic {topic[:6]!r}", "get", topic=topic, queueId=0, offset=3, max=32)
    for kind in range(8):
        place = {"topic": f"said to be compressed, type {kind}", "queueId": 0}
        yield _ask(f"get what is said to be compressed, type {kind}", "get", **place, offset=0, max=32)
        query = place | {"key": f"lie{kind}", "max": 32, "begin": 0, "end": _EVER}
        yield _ask(f"query what is said to be compressed, type {kind}", "query", **query)
        yield _ask(f"look at what is said to be compressed, type {kind}", "record", **place)


def _queries() -> Iterator[Odd]:
    ever: Json = {"begin": 0, "end": _EVER, "max": 32}
    for key in ("k0", "every", "k#k", "k0 every", "k0 ", "", " ", "K0", "zz", "half0", "half1"):
        yield _ask(f"query {key!r}", "query", **ever, key=key)
    for count in (1, 3, 64, 65, 10_000, 0, -1):
        yield _ask(f"query {count} of a key", "query", **(ever | {"max": count}), key="every")
    for begin, end in ((_EVER, 0), (0, 0), (-1, -1), (-(2**63), 2**63 - 1), (_EVER, _EVER), (0, 2**63 - 1)):
        yield _ask(f"query from {begin} to {end}", "query", begin=begin, end=end, max=32, key="every")
    for topic in ("nobody", "", READS.upper()):
        yield _ask(f"query in topic {topic!r}", "query", **(ever | {"topic": topic}), key="every")
    for kind in (0x4, 0x8, 0xC):
        yield _ask(
            f"query a message of kind {kind:#x}", "query", **ever | {"topic": f"sysFlag {kind:#x}"}, key=f"flag{kind}"
        )
    for name, key in (("KEYS with spaces", "k2"), ("KEYS with spaces", " k1  k2 "), ("a UNIQ_KEY that is a key", "u9"),
                      ("a null among others", "U0"), ("a batch with TAGS and KEYS", "b2")):  # fmt: skip
        yield _ask(f"query {key!r} of {name}", "query", **ever | {"topic": name}, key=key)


# Asked once everything of PUTS is in its queues.  A topic that is the name of a put stands for that put's own.
ASKED: tuple[Odd, ...] = (*_gets(), *_queries())

# Of a store whose oldest log files are gone, while its queues do not know yet, and when they do.  Offsets are words.
IN_EXPIRY: tuple[Odd, ...] = tuple(
    _ask(f"in expiry, get {count} from {where}", "get", topic="old", queueId=0, offset=where, max=count)
    for where in ("-1", "min", "min+1", "min+19", "min+20", "max-21", "max-1", "max")
    for count in (1, 4, 32)
)
AFTER_EXPIRY: tuple[Odd, ...] = tuple(
    _ask(f"after expiry, get from {where}", "get", topic="old", queueId=0, offset=where, max=4)
    for where in ("-1", "0", "min-1", "min", "max-1", "max", "max+1")
)


def _lights() -> Iterator[Odd]:
    def light(name: str, listed: str | None, properties: Json | None = None, **fields: object) -> Odd:
        found = {"INNER_MULTI_DISPATCH": listed} | (properties or {})
        return _put(f"for light queues, {name}", _NEW, properties=found, **fields)

    yield light("one", "%LMQ%a")
    yield light("the same again", "%LMQ%a")
    yield light("two", "%LMQ%a,%LMQ%b")
    yield light("nothing", "")
    yield light("a space", " ")
    yield light("a comma", ",")
    yield light("null", None)
    yield light("commas at the end", "%LMQ%a,,")
    yield light("offsets of its own", "%LMQ%a", {"INNER_MULTI_QUEUE_OFFSET": "77"})
    yield light("WAIT", "%LMQ%a", {"WAIT": "true"})
    yield light("of a retry topic", "%LMQ%a", topic="%RETRY%light")
    yield light("committed", "%LMQ%a", sysFlag=0x8)
    yield light("delayed", "%LMQ%a", {"DELAY": "1"})
    yield light("a body at the limit", "%LMQ%a", body=b"b" * BODY_SIZE_MAX)
    for more in (0, 1):
        size = BODY_SIZE_MAX - 88 - len("lights") - 3 - len("INNER_MULTI_DISPATCH1%LMQ%a2INNER_MULTI_QUEUE_OFFSET182")
        name = f"a record {'over' if more else 'at'} the limit"
        yield light(name, "%LMQ%a", topic="lights", body=b"b" * (size + more))
    yield light("of a light topic", "%LMQ%a", topic="%LMQ%b")
    yield light("one after a message put to its topic", "%LMQ%b")
    yield light("prepared", "%LMQ%a", sysFlag=0x4)
    yield light("one after a prepared one", "%LMQ%a")
    yield light("the third of two", "%LMQ%c")
    yield light("the fourth of two", "%LMQ%d")


# Put to a store that takes two light queues.
LIGHTS: tuple[Odd, ...] = tuple(_lights())

# Put to a store that is closed.
AFTER_CLOSE: tuple[Odd, ...] = (
    _put("to a closed store", topic="late"),
    _put("to a closed store, an illegal topic", topic="o" * 256),
    _batch("to a closed store, a batch", [(b"a", {})], topic="late"),
)
EVERY = (*PUTS, *ASKED, *LIGHTS, *IN_EXPIRY, *AFTER_EXPIRY, *AFTER_CLOSE)


def topic_of(odd: Odd) -> str:
    """The topic of a request: that it names, that of the put it names, or one of its own."""
    named: str = odd.request.get("topic", odd.name)
    return _OWN_TOPICS.get(named, named)


_OWN_TOPICS = {odd.name: f"t{number}" for number, odd in enumerate(EVERY) if "topic" not in odd.request}
