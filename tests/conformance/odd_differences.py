"""Where the engine answers an odd request otherwise than RocketMQ, on purpose or harmlessly: every one, by name.

`docs/differences.md` has a row for each; `test_odd_requests` holds the releases to them exactly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NEWEST, NEW, OLD = "5.5.1", "5.3.3", "4.9.8"
_ILLEGAL = "MESSAGE_ILLEGAL, RocketMQ PUT_OK"
_NO_NUMBER = "MESSAGE_ILLEGAL, RocketMQ NumberFormatException"
_PROPERTIES = "properties, size"
_BAR = "\\|"  # in a cell of a table


@dataclass(frozen=True)
class Accepted:
    """One difference: what is asked, what RocketMQ does, what is done here and why; and the requests that show it.

    `shown` has for what `odd_answers.difference` says the names of the requests; `versions` are the releases.
    """

    asked: str
    rocketmq: str
    here: str
    shown: Mapping[str, Sequence[str]]
    versions: tuple[str, ...] = (NEWEST, NEW, OLD)


ACCEPTED: tuple[Accepted, ...] = (
    Accepted(
        "A topic with other characters than letters, digits, `%`, `|`, `_` and `-`, or of no name",
        "its store takes it, a broker does not",
        "`MESSAGE_ILLEGAL`: a topic is a directory",
        {_ILLEGAL: (
            "a topic of no name", "a topic with a space", "a topic with a dot", "a topic with a slash",
            "a topic with an umlaut", "a topic with a 0x01", "a batch for no topic",
        )},
    ),
    Accepted(
        "A queue id below 0",
        "its store takes it, a broker chooses another queue",
        "`MESSAGE_ILLEGAL`",
        {_ILLEGAL: ("queue id -2147483648", "queue id -1", "a batch in queue -1")},
    ),
    Accepted(
        "A queue id of 65536 and more, of a topic that has fewer queues",
        "its store takes it, a broker refuses it",
        "`MESSAGE_ILLEGAL`: it is no queue's, and the topic would have to grow to it",
        {_ILLEGAL: ("queue id 2147483646", "queue id 2147483647")},
    ),
    Accepted(
        "A host `[::ffff:192.0.2.1]:7`",
        "stored as IPv4: Java makes it that",
        "stored as the IPv6 address that it is",
        {"born_host, size, sys_flag": ("born on [::ffff:192.0.2.1]:7",)},
    ),
    Accepted(
        "A sysFlag that says that a host is IPv6 (0x10, 0x20) when it is not",
        "stored, and nothing can read the record, nor what follows it",
        "stored with the bits that the hosts ask for",
        {"PUT_OK, RocketMQ a record that cannot be read": (
            "sysFlag 0x10, born on 203.0.113.9:4711", "sysFlag 0x20, born on 203.0.113.9:4711",
            "sysFlag 0x30, born on 203.0.113.9:4711", "sysFlag 0x20, born on [::1]:1",
        )},
    ),
    Accepted(
        "A property without a name, or with 0x01 or 0x02 inside",
        "stored, and read back as other properties, or none",
        "`MESSAGE_ILLEGAL`",
        {_ILLEGAL: (
            "a property of no name", "a name with a 0x01", "a name with a 0x02", "a value with a 0x01",
            "a value with a 0x02", "a value that is a 0x02", "a batch with a value with 0x02", "a batch with no name",
        )},
    ),
    Accepted(
        "A property `__CRC32#`",
        "stored, unless it writes one of its own",
        "not stored: a stale one makes a sound record look damaged",
        {_PROPERTIES: ("a CRC from outside", "a batch with a CRC from outside")},
    ),
    Accepted(
        "A property whose name begins with `__RMQ.TRANSIENT.`",
        "stored where a sender set it",
        "not stored, as its name says",
        {_PROPERTIES: ("a transient name", "a transient name among others", "a batch with a transient name")},
    ),
    Accepted(
        "A property `INNER_NUM` that is null",
        "`MESSAGE_ILLEGAL`: it looks at the names; any other property that is null is absent",
        "a property that is None is absent",
        {"PUT_OK, RocketMQ MESSAGE_ILLEGAL": ("INNER_NUM that is null",)},
        (NEWEST, NEW),
    ),
    Accepted(
        "`INNER_NUM` without the flag of an inner batch, in one message of a batch",
        "taken; where `INNER_BASE` stands beside it and it is no number, recovery of 5.3.3 cuts the log there",
        "`MESSAGE_ILLEGAL`",
        {_ILLEGAL: ("a batch with INNER_NUM", "a batch with an INNER_NUM that is no number")},
    ),
    Accepted(
        "`INNER_NUM` without the flag of an inner batch, a single message",
        "taken",
        "`MESSAGE_ILLEGAL`, as by 5.3.3",
        {_ILLEGAL: ("INNER_NUM without its flag", "INNER_NUM of no value")},
        (OLD,),
    ),
    Accepted(
        "A `DELAY` that is no number",
        "NumberFormatException",
        "`MESSAGE_ILLEGAL`",
        {_NO_NUMBER: (
            *(f"DELAY {text!r}" for text in ("2147483648", "99999999999", "-99999999999", "abc", " 3", "3 ", "3.0",
                                             "0x3")),
            "by hand in the schedule topic, DELAY 'abc'", "a batch of DELAY '99999999999'", "a batch of DELAY 'abc'",
        )},
    ),
    Accepted(
        "A `DELAY` of no value",
        "NumberFormatException",
        "no delay: a property of no value is none when it is read",
        {"PUT_OK, RocketMQ NumberFormatException": ("DELAY ''", "a batch of DELAY ''")},
    ),
    Accepted(
        "A batch with a `DELAY` that does not delay, 0 or below",
        "stored without it",
        "stored as it is, as by 5.3.3",
        {_PROPERTIES: tuple(f"a batch of DELAY {text!r}" for text in ("0", "-1", "00", "-0"))},
        (NEWEST,),
    ),
    Accepted(
        "A `DELAY` that delays, or is no number, in one message of a batch",
        "its client refuses; its store takes it and delivers at once",
        "`MESSAGE_ILLEGAL`",
        {_ILLEGAL: (
            "a batch with DELAY '3'", "a batch with DELAY '+3'", "a batch with DELAY '99999999999'",
            "a batch with DELAY 'abc'", "a batch whose second has DELAY 3",
        )},
    ),
    Accepted(
        "A `DELAY` that is no number in the schedule topic, in a batch or as a part of a transaction",
        "stored; its recovery cuts the log there",
        "`MESSAGE_ILLEGAL`",
        {_ILLEGAL: (
            "a batch for the schedule topic, DELAY 'abc'", "by hand in the schedule topic, DELAY 'abc', kind 0x4",
            "by hand in the schedule topic, DELAY 'abc', kind 0xc",
        )},
    ),
    Accepted(
        "A message with `DELAY` put into the schedule topic by hand",
        "notes the schedule topic as its real topic",
        "stored as it is: it waits already",
        {_PROPERTIES: ("by hand in the schedule topic, DELAY",)},
    ),
    Accepted(
        "A batch of no message",
        "`PUT_OK`, nothing stored",
        "`Rejected`: a mistake of the caller",
        {"Rejected, RocketMQ PUT_OK": ("a batch of none",)},
    ),
    Accepted(
        "A batch that is larger, as a client encodes it, than a message may be",
        "RuntimeException",
        "`MESSAGE_ILLEGAL`, as by 4.9.8",
        {"MESSAGE_ILLEGAL, RocketMQ RuntimeException": (
            "a batch whose encoded body is over the limit by 1", "a batch whose encoded body is over the limit by 2",
            "a batch whose bodies are at the limit", "a batch whose properties are over the limit",
            "a batch of bodies over the limit",
        )},
        (NEWEST, NEW),
    ),
    Accepted(
        "A batch that is larger by at most a byte a message",
        "taken: it leaves out the last 0x02 of each message's properties",
        "`MESSAGE_ILLEGAL`, as by 5.3.3",
        {_ILLEGAL: ("a batch whose encoded body is over the limit by 1",)},
        (OLD,),
    ),
    Accepted(
        "Properties of more than 32767 bytes",
        "counts without the last 0x02, and says `MESSAGE_ILLEGAL` above 32767 characters",
        "`PROPERTIES_SIZE_EXCEEDED`, as by 5.3.3",
        {
            "PROPERTIES_SIZE_EXCEEDED, RocketMQ PUT_OK": (
                "properties of 32768 bytes", "properties of 32768 bytes in 10924 characters",
            ),
            "PROPERTIES_SIZE_EXCEEDED, RocketMQ MESSAGE_ILLEGAL": ("properties of 40000 bytes",),
        },
        (OLD,),
    ),
    Accepted(
        "A body that is null",
        "stores an empty one",
        "`MESSAGE_ILLEGAL`, as by 5.3.3",
        {_ILLEGAL: ("a body that is null",)},
        (OLD,),
    ),
    Accepted(
        "An inner batch whose `INNER_NUM` is none that a unit can hold (1 to 32767, in digits alone)",
        "takes what Java reads as a number, and none at all; else NumberFormatException",
        "`MESSAGE_ILLEGAL`: its queue would not say what it holds",
        {
            _ILLEGAL: (
                *(f"an inner batch, INNER_NUM '{text}'" for text in ("0", "-1", "+2")),
                "an inner batch, INNER_NUM null", "an inner batch, no INNER_NUM",
            ),
            _NO_NUMBER: tuple(f"an inner batch, INNER_NUM '{text}'" for text in ("32768", "abc", "")),
        },
        (NEWEST, NEW),
    ),
    Accepted(
        "An inner batch with 0x80 and without 0x40",
        "stored, and handed to clients that do not take it apart",
        "`MESSAGE_ILLEGAL`",
        {_ILLEGAL: ("an inner batch, sysFlag 0x80",)},
        (NEWEST, NEW),
    ),
    Accepted(
        "An inner batch of kind prepared or rolled back, which is in no queue",
        "stored without `INNER_BASE`",
        "stored with `INNER_BASE` 0",
        {_PROPERTIES: ("an inner batch, sysFlag 0xc4", "an inner batch, sysFlag 0xcc")},
        (NEWEST, NEW),
    ),
    Accepted(
        "A read of no message, or fewer",
        "returns one",
        "`Rejected`: a mistake of the caller",
        {"Rejected, RocketMQ FOUND": ("get 0", "get -1", "get -2147483648")},
        (NEWEST, NEW),
    ),
    Accepted(
        "A read of no message, fewer, or 2147483647",
        "returns one for 0; else IllegalArgumentException, OutOfMemoryError",
        "`Rejected` for less than one; as many as there are",
        {
            "Rejected, RocketMQ FOUND": ("get 0",),
            "Rejected, RocketMQ IllegalArgumentException": ("get -1", "get -2147483648"),
            "FOUND, RocketMQ OutOfMemoryError": ("get 2147483647",),
        },
        (OLD,),
    ),
    Accepted(
        "A read of the record at offset 0 of the log, when its file is gone and its queue does not know yet",
        "`FOUND`, with what stands at the head of the first file that is left",
        "`MESSAGE_WAS_REMOVING`, as for all others",
        {
            "MESSAGE_WAS_REMOVING, RocketMQ FOUND": (
                "in expiry, get 1 from min", "in expiry, get 4 from min", "in expiry, get 32 from min",
            ),
        },
    ),
    Accepted(
        "A subscription that names no tag: `||`, a space",
        "an exception for `||`; a space matches nothing",
        "`Rejected`",
        {
            "Rejected, RocketMQ Exception": ("get tags '||'",),
            "Rejected, RocketMQ NO_MATCHED_MESSAGE": ("get tags ' '",),
        },
    ),
    Accepted(
        "A subscription by a tag whose hash another tag has as well (`Aa`, `BB`)",
        "both, and its client leaves out the others",
        "only those with the tag",
        {"physicalOffsets": ("get tags 'Aa'",)},
    ),
    Accepted(
        f"A subscription with commas, a single `{_BAR}` or quotes, which mean nothing in it",
        "the name of one tag, which hardly anything has",
        'what to write is said: `Rejected`; a tag of such a name is written in a JSON list, `["a,b"]`',
        {"Rejected, RocketMQ NO_MATCHED_MESSAGE": ("get tags 'a | b'",)},
    ),
    Accepted(
        "A query by key for fewer messages than none",
        "IllegalArgumentException",
        "nothing found",
        {"an answer, RocketMQ IllegalArgumentException": ("query -1 of a key",)},
    ),
    Accepted(
        "`WAIT` of a message for light queues",
        "its broker takes it out, its store does not",
        "not stored",
        {_PROPERTIES: ("for light queues, WAIT",)},
        (NEWEST, NEW),
    ),
    Accepted(
        "A message put to the topic of a light queue, and the next for that light queue",
        "counts the two apart: the next gets a number that is taken, and no place in the queue",
        "one count, each gets its place",
        {
            "bounds, queueOffset, queue_offset": ("for light queues, of a light topic",),
            "places, properties": ("for light queues, one after a message put to its topic",),
        },
        (NEWEST, NEW),
    ),
    Accepted(
        "A prepared message for light queues, and the next",
        "the prepared one counts: the record of the next says another number than its queue",
        "only what gets a place counts",
        {_PROPERTIES: ("for light queues, one after a prepared one",)},
        (NEWEST, NEW),
    ),
    Accepted(
        "One light queue more than `light_queue_max`",
        "stored: it has the setting (`maxLmqConsumeQueueNum`) and looks at it nowhere",
        "`LMQ_CONSUME_QUEUE_NUM_EXCEEDED`: the setting is a promise",
        {"LMQ_CONSUME_QUEUE_NUM_EXCEEDED, RocketMQ PUT_OK": (
            "for light queues, the third of two", "for light queues, the fourth of two",
        )},
        (NEWEST, NEW),
    ),
)  # fmt: skip


def row(one: Accepted) -> str:
    """Its row in docs/differences.md."""
    releases = {(NEWEST, NEW, OLD): "all", (NEWEST, NEW): "5.3.3 and 5.5.1"}.get(one.versions, ", ".join(one.versions))
    cells = (one.asked, releases, one.rocketmq, one.here)
    return f"| {' | '.join(cell.replace('|', _BAR) for cell in cells)} |"


def accepted(version: str) -> dict[str, str]:
    """By request, how the answer differs from a release's."""
    found: dict[str, str] = {}
    for one in ACCEPTED:
        if version in one.versions:
            for words, names in one.shown.items():
                assert found.keys().isdisjoint(names), (version, one.asked)
                found.update(dict.fromkeys(names, words))
    return found
