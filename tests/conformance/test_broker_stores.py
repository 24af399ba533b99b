"""Stores that real brokers left, killed or stopped, go on here: deliveries, fates and offsets, message by message.

Against `sent.json.gz`, `consumed.json` and, for what a killed broker had still to deliver, its own continuation of the
very same directory (`expected.json.gz`).
"""

from collections import Counter
from pathlib import Path

import pytest

from rmqstore.engine.broker.transaction_messages import TransactionState
from rmqstore.formats import names
from rmqstore.formats.stored_message import StoredMessage
from tests.conformance.broker_stores import CHECKS_MAX, LEVEL_MS, Left, changes, key_of, place_of
from tests.conformance.workload import Json
from tests.golden.cases import FOLDERS, OPENED_CASES, load_expected, read_json

pytestmark = pytest.mark.java

ALL_CASES = [case for case in OPENED_CASES if "live" not in case]
# The brokers of 5.5.1 had delivered what was due, and their groups had got everything.
CASES = [case for case in ALL_CASES if "5.5.1" not in case]
KILLED = [case for case in CASES if "killed" in case]
FAR_LEVELS = (6, 7)
DELAYED = ("Delay", "Normal", "Narrow")


def delivered(left: Left) -> list[StoredMessage]:
    """What waited for a delay level once, and is in its topic."""
    found = [message for kind in DELAYED for message in left.messages(left.prefix + kind)]
    return [message for message in found if "REAL_TOPIC" in message.properties and "DELAY" in message.properties]


@pytest.mark.parametrize("case", CASES)
def test_delays_go_on_in_time(case: str, tmp_path: Path) -> None:
    """What the broker had not delivered, or not noted as delivered, comes once, unchanged, and not a moment early."""
    left = Left(case, tmp_path)
    with left.store:
        waiting = {key_of(message): (level, message) for level, found in left.waiting().items() for message in found}
        before = Counter(map(key_of, delivered(left)))
        assert {level for level, _ in waiting.values()} == ({2, *FAR_LEVELS} if "killed" in case else {*FAR_LEVELS})
        log_end = left.store.statistics().gauges.log_max_offset
        for _ in range(50):
            left.run(100)
        for level in FAR_LEVELS:
            due_ms = [half.store_timestamp_ms + LEVEL_MS[level - 1] for at, half in waiting.values() if at == level]
            left.run(min(due_ms) - 1 - left.clock.ms)
            assert not {level} & {waiting[key][0] for key in new_keys(left, log_end)}
            left.run(max(due_ms) - left.clock.ms)
        came = [message for message in delivered(left) if message.physical_offset >= log_end]
        assert sorted(map(key_of, came)) == sorted(waiting)
        for message in came:
            level, half = waiting[key_of(message)]
            assert message.store_timestamp_ms >= half.store_timestamp_ms + LEVEL_MS[level - 1]
            assert message.properties == half.properties
        sent = left.sent_as(lambda kind: kind.startswith("delay"))
        after = Counter(map(key_of, delivered(left)))
        assert after.keys() == sent.keys()
        assert after == before + Counter(list(waiting))
        assert [line for message in delivered(left) for line in changes(sent[key_of(message)], message)] == []


def new_keys(left: Left, log_end: int) -> set[str]:
    """Keys of delayed messages that were delivered here."""
    return {key_of(message) for message in delivered(left) if message.physical_offset >= log_end}


@pytest.mark.parametrize("case", KILLED)
def test_a_killed_brokers_deliveries_are_those_that_it_made_itself_when_it_came_back(case: str, tmp_path: Path) -> None:
    """The broker went on with a copy of this directory: what it put then is what we put, in the same order by queue."""
    log_end = read_json(FOLDERS[case], "meta")["commitlogEnd"]
    left = Left(case, tmp_path, transaction_check_interval_ms=3_600_000)  # as it came back
    with left.store:
        assert left.store.statistics().gauges.log_max_offset == log_end
        for _ in range(50):
            left.run(100)
        theirs: dict[str, list[Json]] = {}
        for name, queue in load_expected(case)["queues"].items():
            put = [message for message in queue.get("messages", ()) if message["commitLogOffset"] >= log_end]
            if put:
                theirs[name] = put
        assert sum(map(len, theirs.values())) >= 18
        ours = {f"{topic}@{number}": [message for message in left.messages(topic, number)
                                      if message.physical_offset >= log_end]
                for topic, number in left.store.queues()}  # fmt: skip
        assert {name for name, messages in ours.items() if messages} == theirs.keys()
        for name, wanted in theirs.items():
            have = [facts_of(message) for message in ours[name]]
            assert have == [{field: message[field] for field in have[0]} for message in wanted]


def facts_of(message: StoredMessage) -> Json:
    """What expected.json says of a message, but for its place in the log and the time."""
    return {
        "queueOffset": message.queue_offset, "queueId": message.queue_id, "topic": message.topic,
        "storeSize": message.store_size, "properties": message.properties, "bodyCRC": message.body_crc,
        "reconsumeTimes": message.reconsume_times, "bornTimestamp": message.born_timestamp_ms, "flag": message.flag,
        "preparedTransactionOffset": message.prepared_transaction_offset,
    }  # fmt: skip


@pytest.mark.parametrize("more_checks", [0, 2])
@pytest.mark.parametrize("answer", TransactionState)
@pytest.mark.parametrize("case", CASES)
def test_transactions_end_as_their_producer_says(
    case: str, answer: TransactionState, more_checks: int, tmp_path: Path
) -> None:
    """Those that the broker decided keep their fate and are not asked after; the open ones are, as often as is left."""
    left = Left(case, tmp_path, transaction_check_max=CHECKS_MAX + more_checks)
    left.answer = answer
    is_decided = answer is not TransactionState.UNKNOWN and more_checks > 0
    with left.store:
        kinds = left.sent_as(lambda kind: kind.startswith("transaction:"))
        open_keys = {prepared.transaction_id for prepared in left.store.transactions.pending()}
        assert len(open_keys) == (3 if "4.9.8" in case else 0)
        left.run(3_600_000)  # their own immunity is an hour
        for _ in range(10):
            left.run(3000)
        asked = Counter(map(key_of, left.asked))
        assert asked == dict.fromkeys(open_keys if more_checks else (), 1 if is_decided else more_checks)
        assert left.store.transactions.pending() == []
        wanted = {key for key, sent in kinds.items() if sent["kind"].endswith(":commit")}
        wanted |= {key for key, sent in kinds.items() if sent["kind"].endswith(":check-commit")}
        wanted |= open_keys if is_decided and answer is TransactionState.COMMIT else set()
        committed = left.messages(f"{left.prefix}Tx")
        assert sorted(map(key_of, committed)) == sorted(wanted)
        assert [line for message in committed for line in changes(kinds[key_of(message)], message)] == []
        given_up = sorted(map(key_of, left.messages(names.TRANSACTION_CHECK_TOPIC)))
        pending = {key for key, sent in kinds.items() if sent["kind"].endswith(":pending")}
        assert given_up == sorted(pending - (open_keys if is_decided else set()))


@pytest.mark.parametrize("case", ALL_CASES)
def test_groups_go_on_where_they_committed(case: str, tmp_path: Path) -> None:
    """What a group got there and gets here is, together, everything once; what it has committed here it keeps."""
    left = Left(case, tmp_path)
    with left.store:
        for group, (topic, tags) in left.subscriptions.items():
            wanted = {place_of(message) for name in (topic, names.RETRY_PREFIX + group)
                      for message in left.messages(name)
                      if tags == "*" or message.tags in tags.split(" || ")}  # fmt: skip
            there = [place_in(row) for row in left.consumed if row["group"] == group]
            here = [place_of(message) for message in left.consume(group)]
            assert Counter(there) + Counter(here) == Counter(wanted), group
            assert left.consume(group) == []
        slow = left.store.consumer(f"g_slow_{left.prefix}", f"{left.prefix}Normal")
        firsts: dict[int, int] = {}
        while messages := slow.poll():
            for message in messages:
                firsts.setdefault(message.queue_id, message.queue_offset)
        assert firsts == {0: 2, 1: 3, 2: 4, 3: 5}  # as GoldenBroker.java set them
        offsets = left.store.offsets.all()
    left.open()
    with left.store:
        assert left.store.offsets.all() == offsets
        assert [left.consume(group) for group in left.subscriptions] == [[], [], [], []]


def place_in(row: Json) -> tuple[str, int, int]:
    """Topic, queue and number of a message in consumed.json, which shows the first topic of one that came again."""
    topic = names.RETRY_PREFIX + row["group"] if row["reconsumeTimes"] else row["topic"]
    return topic, row["queueId"], row["queueOffset"]


@pytest.mark.parametrize("case", CASES)
def test_a_chain_goes_on_with_the_brokers_table_of_groups(case: str, tmp_path: Path) -> None:
    """A message that nobody had got: back after one second, then two, then a dead letter, as the broker's were."""
    left = Left(case, tmp_path)
    group, topic = f"g_fast_{left.prefix}", f"{left.prefix}Normal"
    with left.store:
        assert left.store.groups.find(group).retry_max_times == 2
        dead_before = left.messages(names.DLQ_PREFIX + group)
        failed = {row["msgId"] for row in left.consumed if row["answer"] == "later" and row["reconsumeTimes"] == 2}
        assert {message.msg_id for message in dead_before} == failed
        with left.store.consumer(group, topic) as consumer:
            (message,) = consumer.poll(1)
            key = key_of(message)
            assert consumer.send_back(message).is_stored
        left.consume(group)
        left.run(1000)  # delivery begins a second after the opening
        for times, level in ((1, 3), (2, 4)):
            left.run(LEVEL_MS[level - 1] - 1 if times > 1 else 0)
            early = left.consume(group) if times > 1 else []
            assert key not in map(key_of, early)
            left.run(1 if times > 1 else 0)
            with left.store.consumer(group, topic) as consumer:
                (came,) = [one for one in consumer.poll() if key_of(one) == key]
                assert (came.reconsume_times, came.topic, came.body) == (times, topic, message.body)
                assert consumer.send_back(came).is_stored
        left.run()
        (dead,) = left.messages(names.DLQ_PREFIX + group)[len(dead_before) :]
        assert (key_of(dead), dead.reconsume_times, dead.body) == (key, 3, message.body)
        assert dead.properties.keys() == dead_before[0].properties.keys() | message.properties.keys()
