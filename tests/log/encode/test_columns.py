"""Arrow columns as records: the same bytes as message by message, and every mistake named at once."""

import datetime
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.core.message import Message, PutStatus
from rmqstore.engine.broker.delay import DelayLevels
from rmqstore.engine.log.encode.columns import EncodedColumns, record_blocks
from rmqstore.engine.log.encode.property_values import REPLACED_BY_DELAY
from rmqstore.engine.log.encode.record_frame import Frame, RecordForm, frame_of
from rmqstore.engine.log.put.deferred_put import claims_to_be_batch
from rmqstore.errors import Rejected
from rmqstore.formats import sys_flag
from rmqstore.formats.host import encode_host
from tests.log.encode.framing import MESSAGES
from tests.log.encode.one_block import record_columns

pytestmark = pytest.mark.stores

FORM = RecordForm(encode_host("127.0.0.1:10911"))
FORMS = [
    FORM,
    RecordForm(encode_host("[2001:db8::1]:10911"), more_properties=b"CLUSTER\x01c\x02"),
    replace(FORM, property_crc=True),
]
NOW_MS = 1_700_000_000_000
STORE_MS = NOW_MS + 7
MAP = pa.map_(pa.string(), pa.string())


def keys_text(message: Message) -> str:
    return message.keys if isinstance(message.keys, str) else " ".join(message.keys)


def table_of(messages: list[Message]) -> pa.Table:
    """The messages as columns; WAIT has none."""
    return pa.table(
        {
            "topic": pa.array([message.topic for message in messages], pa.string()),
            "body": pa.array([message.body for message in messages], pa.binary()),
            "tags": pa.array([message.tags for message in messages], pa.string()),
            "keys": pa.array([keys_text(message) or None for message in messages], pa.string()),
            "properties": pa.array([list(message.properties.items()) or None for message in messages], MAP),
            "queueId": pa.array([message.queue_id for message in messages], pa.int32()),
            "flag": pa.array([message.flag for message in messages], pa.int32()),
            "sysFlag": pa.array([message.sys_flag for message in messages], pa.int32()),
            "bornTimestamp": pa.array([message.born_timestamp_ms or 0 for message in messages], pa.int64()),
            "bornHost": pa.array([message.born_host for message in messages], pa.string()),
            "reconsumeTimes": pa.array([message.reconsume_times for message in messages], pa.int32()),
            "preparedTransactionOffset": pa.array([m.prepared_transaction_offset for m in messages], pa.int64()),
        }
    )


def frames_of(messages: list[Message], form: RecordForm) -> list[Frame]:
    frames = []
    for message in messages:
        frame = frame_of(message, form, NOW_MS)
        assert isinstance(frame, Frame), frame
        frames.append(frame)
    return frames


def stamped(frames: list[Frame], next_offsets: dict[tuple[str, int], int], offset: int) -> bytes:
    """The frames appended one by one."""
    parts = []
    for frame in frames:
        key = (frame.topic, frame.queue_id)
        queue_offset = next_offsets.get(key, 0)
        frame.stamp(queue_offset, offset, STORE_MS)
        if frame.is_counted:
            next_offsets[key] = queue_offset + 1
        offset += len(frame.data)
        parts.append(bytes(frame.data))
    return b"".join(parts)


PLAIN = MESSAGES.map(
    lambda message: replace(
        message,
        wait_store_ok=True,
        born_timestamp_ms=message.born_timestamp_ms or 0,
        queue_id=message.queue_id % 3,
        sys_flag=message.sys_flag & ~sys_flag.INNER_BATCH,
    )
)


@settings(max_examples=60)
@given(st.lists(PLAIN, min_size=1, max_size=8), st.sampled_from(FORMS), st.data())
def test_records_are_those_of_single_messages(messages: list[Message], form: RecordForm, data: st.DataObject) -> None:
    encoded = record_columns(table_of(messages), form, NOW_MS)
    frames = frames_of(messages, form)
    assert encoded.data.tobytes() == b"".join(bytes(frame.data) for frame in frames)
    # In two turns, as at the end of a file, with other puts in between.
    cut = data.draw(st.integers(0, len(messages)))
    ours = {(messages[0].topic, messages[0].queue_id): 40}
    theirs = dict(ours)
    for first, last, offset in ((0, cut, 5000), (cut, len(messages), 900_000)):
        if first < last:
            ours_stamped = encoded.stamp(first, last, encoded.bases(first, last, ours), offset, STORE_MS)
            assert bytes(ours_stamped) == stamped(frames[first:last], theirs, offset)
            ours.update(encoded.moved(first, last, ours))
        ours[messages[-1].topic, 1] = theirs[messages[-1].topic, 1] = 77
    assert ours == theirs


@given(
    st.dictionaries(st.sampled_from(["x", "WAIT", "TAGS", "KEYS", "DELAY", "__CRC32#", "__transient__q", "Ü", "yy"]),
                    st.text("ab", max_size=3), max_size=3),
    st.integers(1, 6),
    st.none() | st.tuples(st.integers(0, 5), st.sampled_from([None, {}, {"x": "other"}, {"WAIT": "true"}])),
    st.integers(0, 5),
)  # fmt: skip
def test_properties_that_repeat_are_those_of_each_row(same, count: int, other, skipped: int) -> None:
    """Alike in all rows, or in all but one; in a slice too."""
    rows = [same] * count
    if other is not None:
        rows[other[0] % count] = other[1]
    messages = [
        Message("T", b"x", tags="own" if row else None, properties=rows[row] or {}, born_timestamp_ms=1)
        for row in range(count)
    ]
    whole = table_of(messages).set_column(4, "properties", pa.array([row and list(row.items()) for row in rows], MAP))
    table = whole.slice(min(skipped, count - 1))
    frames = frames_of(messages[min(skipped, count - 1) :], FORMS[0])
    assert one(record_columns(table, FORMS[0], NOW_MS)) == b"".join(bytes(frame.data) for frame in frames)


@pytest.mark.parametrize("properties", [[("", "x")], [("a", "x\x02")], [("a\x01", "x")]], ids=repr)
def test_wrong_properties_that_repeat_are_refused_in_each_row(properties: list[tuple[str, str]]) -> None:
    table = pa.table({"topic": ["T"] * 3, "body": [b"x"] * 3, "properties": pa.array([properties] * 3, MAP)})
    with pytest.raises(Rejected, match="rows 0, 1, 2"):
        record_columns(table, FORMS[0], NOW_MS)


def test_a_dictionary_of_topics_may_hold_anything() -> None:
    """Doubled, unused and missing names among its entries."""
    plain = {"body": [b"1", b"2", b"3"], "queueId": pa.array([0, 0, 0], pa.int32())}
    for entries, numbers in (
        (["a", "b"], [1, 0, 1]), (["b", "a", "b"], [0, 1, 2]), (["c", "a", "b"], [2, 1, 2]),
        (["b", None, "a"], [0, 2, 0]), (["b", "a", "c", "d", "e"], [0, 1, 0]), (["b", "a", "not legal"], [0, 1, 0]),
    ):  # fmt: skip
        topic = pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int8()), pa.array(entries, pa.large_string()))
        found = record_columns(pa.table(plain | {"topic": topic}), FORMS[0], NOW_MS)
        wanted = record_columns(pa.table(plain | {"topic": ["b", "a", "b"]}), FORMS[0], NOW_MS)
        assert found.data.tobytes() == wanted.data.tobytes()
        offsets = [each.stamp(0, 3, each.bases(0, 3, {("a", 0): 7}), 0, 1).tobytes() for each in (found, wanted)]
        assert offsets[0] == offsets[1]
    nothing = pa.DictionaryArray.from_arrays(pa.array([0, None, 0], pa.int8()), pa.array(["b"]))
    with pytest.raises(Rejected, match="topic is null: row 1"):
        record_columns(pa.table(plain | {"topic": nothing}), FORMS[0], NOW_MS)


def test_a_second_stamp_leaves_nothing_of_the_first() -> None:
    form = FORMS[2]
    messages = [Message("T", b"x" * size, queue_id=size % 2) for size in range(200)]
    encoded = record_columns(table_of([replace(m, born_timestamp_ms=1) for m in messages]), form, NOW_MS)
    encoded.stamp(0, encoded.count, encoded.bases(0, encoded.count, {("T", 1): 99}), 12_345, 1)
    frames = frames_of([replace(m, born_timestamp_ms=1) for m in messages], form)
    again = encoded.stamp(0, encoded.count, encoded.bases(0, encoded.count, {}), 0, STORE_MS)
    assert bytes(again) == stamped(frames, {}, 0)


def one(encoded: EncodedColumns) -> bytes:
    return encoded.data.tobytes()


MINIMAL = {"topic": ["T", "U"], "body": [b"one", b"two"]}
EQUAL_FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "text body": ({"body": pa.array(["one", "two"])}, {"body": pa.array([b"one", b"two"])}),
    "fixed body": ({"body": pa.array([b"one", b"two"], pa.binary(3))}, {}),
    "large": (
        {"topic": pa.array(["T", "U"], pa.large_string()), "body": pa.array([b"one", b"two"], pa.large_binary())},
        {},
    ),
    "views": (
        {"topic": pa.array(["T", "U"], pa.string_view()), "body": pa.array([b"one", b"two"], pa.binary_view())},
        {},
    ),
    "dictionary": ({"topic": pa.array(["T", "U"]).dictionary_encode()}, {}),
    "dictionary of views": (
        {
            "topic": pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["T", "U"], pa.string_view())),
            "body": pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([b"one", b"two"], pa.binary_view())),
        },
        {},
    ),
    "empty text is absent": ({"tags": ["", ""], "keys": ["", ""]}, {}),
    "nulls are absent": (
        {"tags": pa.nulls(2, pa.string()), "keys": pa.nulls(2, pa.string()), "properties": pa.nulls(2, MAP)},
        {},
    ),
    "list of keys": ({"keys": [["a", "b"], []]}, {"keys": ["a b", None]}),
    "large list of keys": (
        {"keys": pa.array([["a", "b"], None], pa.large_list(pa.large_string()))},
        {"keys": ["a b", None]},
    ),
    "list of views": (
        {"keys": pa.array([["a", "b"], None], pa.list_(pa.string_view()))},
        {"keys": ["a b", None]},
    ),
    "list of a dictionary": (
        {"keys": pa.array([["a", "b"], None], pa.list_(pa.dictionary(pa.int32(), pa.string())))},
        {"keys": ["a b", None]},
    ),
    "views in a map": (
        {
            "properties": pa.array(
                [[("p", "1")], None], pa.map_(pa.string_view(), pa.dictionary(pa.int8(), pa.string()))
            )
        },
        {"properties": pa.array([[("p", "1")], None], MAP)},
    ),
    "structs": (
        {"properties": [[{"name": "p", "text": "1"}, {"name": "q", "text": None}], []]},
        {"properties": pa.array([[("p", "1")], None], MAP)},
    ),
    "null and own properties": (
        {"tags": ["t", None], "properties": pa.array([[("TAGS", "x"), ("p", None)], [("TAGS", "u")]], MAP)},
        {"tags": ["t", "u"]},
    ),
    "timestamps": (
        {"bornTimestamp": [datetime.datetime.fromtimestamp(5.0006, datetime.UTC)] * 2},
        {"bornTimestamp": [5000, 5000]},
    ),
    "small integers": (
        {"queueId": pa.array([1, 0], pa.int8()), "flag": pa.array([1, 0], pa.uint64())},
        {"queueId": [1, 0], "flag": [1, 0]},
    ),
}


@pytest.mark.parametrize("case", EQUAL_FORMS)
def test_forms_of_a_column_mean_the_same(case: str) -> None:
    form, plain = (pa.table(MINIMAL | changes) for changes in EQUAL_FORMS[case])
    assert one(record_columns(form, FORM, NOW_MS)) == one(record_columns(plain, FORM, NOW_MS))


def test_chunks_slices_and_batches_do_not_matter() -> None:
    messages = [
        Message("TU"[n % 2], b"b" * n, f"t{n}", [f"k{n}"], {"p": "v" * n} if n % 3 else {}, n % 4, born_timestamp_ms=n)
        for n in range(20)
    ]
    table = table_of(messages)
    parts = pa.concat_tables([table.slice(0, 3), table.slice(3, 9), table.slice(12)])
    whole = one(record_columns(table, FORM, NOW_MS))
    assert one(record_columns(parts, FORM, NOW_MS)) == whole
    assert one(record_columns(table.to_batches()[0], FORM, NOW_MS)) == whole
    sliced = record_columns(table.slice(7, 8), FORM, NOW_MS)
    assert one(sliced) == b"".join(bytes(frame.data) for frame in frames_of(messages[7:15], FORM))
    blocks = list(record_blocks(parts, FORM, NOW_MS, block_size=table.nbytes // 4))
    assert len(blocks) > 3
    assert b"".join(map(one, blocks)) == whole


def test_no_rows_are_no_records() -> None:
    table = pa.table({"topic": pa.array([], pa.string()), "body": pa.array([], pa.binary())})
    encoded = record_columns(table, FORM, NOW_MS)
    assert (encoded.count, one(encoded), encoded.queues) == (0, b"", [])
    assert sum(block.count for block in record_blocks(table, FORM, NOW_MS)) == 0


def test_rows_within_a_room() -> None:
    encoded = record_columns(pa.table({"topic": ["T"] * 3, "body": [b"1", b"22", b"333"]}), FORM, NOW_MS)
    sizes = [encoded.size_of(row) for row in range(3)]
    assert [sizes[0] + step for step in range(3)] == sizes
    assert encoded.rows_within(0, sizes[0] + sizes[1]) == 2
    assert encoded.rows_within(0, sizes[0] + sizes[1] - 1) == 1
    assert encoded.rows_within(1, 10**9) == 3
    assert encoded.rows_within(2, 1) == 3  # one row in any case


def test_all_wrong_columns_are_named_in_one_error() -> None:
    table = pa.table({"topic": [1], "tags": [["a"]], "queueId": ["x"], "properties": ["x"], "storeTimestamp": [1]})
    with pytest.raises(Rejected) as caught:
        record_columns(table, FORM, NOW_MS)
    for part in ("body: missing", "topic: int64", "tags: list", "queueId: string", "properties: string",
                 "storeTimestamp: no such column", "the columns of a message are topic, body,"):  # fmt: skip
        assert part in str(caught.value), part


def test_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(Rejected, match=r"queueId: .*3000000000"):
        record_columns(pa.table(MINIMAL | {"queueId": [0, 3_000_000_000]}), FORM, NOW_MS)


def test_a_doubled_column_is_refused() -> None:
    table = pa.Table.from_arrays([pa.array(["T"]), pa.array([b"x"]), pa.array([b"y"])], ["topic", "body", "body"])
    with pytest.raises(Rejected, match="body: twice"):
        record_columns(table, FORM, NOW_MS)


WRONG_ROWS: dict[str, dict[str, Any]] = {
    "ggg... may not be stored": {"topic": ["%RETRY%".ljust(255, "g"), "%DLQ%".ljust(128, "g")]},
    "topic is null": {"topic": ["T", None]},
    "body is null": {"body": [b"one", None]},
    "body of more than 4194304 bytes": {"body": [b"one", bytes(4194305)]},
    "tags hold a separator": {"tags": ["a", "a\x01"]},
    "keys hold a separator": {"keys": [["a"], ["b", "\x02"]]},
    "keys hold a null": {"keys": [["a"], ["b", None]]},
    "a property holds a separator": {"properties": pa.array([[("p", "v")], [("p", "\x02")]], MAP)},
    "a property has no name": {"properties": pa.array([[("p", "v")], [("", "v")]], MAP)},
    "INNER_NUM says that it is a batch": {"properties": pa.array([[], [("INNER_NUM", "2")]], MAP)},
    "DELAY of a message in the schedule topic is no number": {
        "topic": ["T", "SCHEDULE_TOPIC_XXXX"],
        "properties": pa.array([[("DELAY", "x")], [("DELAY", "x")]], MAP),
    },
    "properties of more than 32767 bytes": {"tags": ["a", "x" * 32762]},
    "queueId is negative": {"queueId": [0, -1]},
    "queueId is null": {"queueId": [0, None]},
    "bornHost 'here' is no host": {"bornHost": [None, "here"]},
}


@pytest.mark.parametrize("reason", WRONG_ROWS)
def test_rows_beyond_the_limits_are_named(reason: str) -> None:
    with pytest.raises(Rejected) as caught:
        record_columns(pa.table(MINIMAL | WRONG_ROWS[reason]), FORM, NOW_MS)
    assert f"{reason}" in str(caught.value)
    assert ": row 1;" in str(caught.value)


TROUBLE = st.dictionaries(
    st.sampled_from(["INNER_NUM", "DELAY", "__RMQ.TRANSIENT.x", "__CRC32#", "TAGS", "a", "", "a\1"]),
    st.sampled_from([None, "", "2", "-1", "soon", "b\2"]), max_size=3,
)  # fmt: skip


@settings(max_examples=300)
@given(
    st.lists(st.tuples(TROUBLE, st.sampled_from([0, 0x4, 0x80, 0xC0]), st.sampled_from(["T", "SCHEDULE_TOPIC_XXXX"])),
             min_size=1, max_size=3),
    st.none() | st.just("t"),
)  # fmt: skip
def test_rows_are_refused_where_single_messages_are(rows, tags: str | None) -> None:
    """By the encoder, by what no part of a batch may say, and by the hook for delays in the schedule topic."""
    messages = [
        Message(topic, b"x", tags, properties=properties, sys_flag=flags, born_timestamp_ms=1)
        for properties, flags, topic in rows
    ]
    answers = [
        PutStatus.MESSAGE_ILLEGAL if claims_to_be_batch(message)
        else levels if isinstance(levels := DelayLevels((1000,))(message), PutStatus) and message.topic != "T"
        else frame_of(message, FORM, NOW_MS)
        for message in messages
    ]  # fmt: skip
    columns = [list(message.properties.items()) for message in messages]
    table = table_of(messages).set_column(4, "properties", pa.array(columns, MAP))
    if any(isinstance(answer, PutStatus) for answer in answers):
        with pytest.raises(Rejected):
            record_columns(table, FORM, NOW_MS)
    else:
        assert one(record_columns(table, FORM, NOW_MS)) == b"".join(bytes(frame.data) for frame in answers)


def test_the_largest_tags_fit() -> None:
    encoded = record_columns(pa.table({"topic": ["T"], "body": [b""], "tags": ["x" * 32761]}), FORM, NOW_MS)
    assert encoded.count == 1


def test_all_wrong_rows_are_in_one_error() -> None:
    table = pa.table({"topic": ["T", "a/b"] * 20, "body": [b"x"] * 39 + [None]})
    with pytest.raises(Rejected) as caught:
        record_columns(table, FORM, NOW_MS)
    assert "body is null: row 39" in str(caught.value)
    assert "topic 'a/b' may not be stored: rows 1, 3, 5, 7, 9, 11, 13, 15, 17, 19 and 10 more" in str(caught.value)


@pytest.mark.parametrize("flag", [0x80, 0xC0, 0x88, -1])
def test_a_row_that_says_to_be_a_batch_is_refused_by_its_number(flag: int) -> None:
    """As a single message is in a topic without batch queues; the bit 0x40 alone says nothing to RocketMQ."""
    table = pa.table({"topic": ["T"] * 4, "body": [b"x"] * 4, "sysFlag": pa.array([0, flag, 0x40, flag], pa.int32())})
    with pytest.raises(Rejected, match="is a batch, but a row is one message: rows 1, 3; nothing was stored"):
        record_columns(table, FORM, NOW_MS)


@pytest.mark.parametrize("other", [None, [], [("a", "b")], [("INNER_BASE", "1")], [("INNER_NUM", None)]])
def test_a_row_with_a_count_of_messages_is_refused(other: object) -> None:
    rows = [other, [("a", "b"), ("INNER_NUM", "1")], other]
    table = pa.table({"topic": ["T"] * 3, "body": [b"x"] * 3, "properties": pa.array(rows, MAP)})
    with pytest.raises(Rejected, match="is a batch, but a row is one message: row 1; nothing was stored"):
        record_columns(table, FORM, NOW_MS)
    same = pa.table({"topic": ["T"] * 3, "body": [b"x"] * 3, "properties": pa.array([rows[1]] * 3, MAP)})
    with pytest.raises(Rejected, match="rows 0, 1, 2; nothing was stored"):
        record_columns(same, FORM, NOW_MS)
    record_columns(table.take([0, 2]), FORM, NOW_MS)


def test_blocks_are_checked_before_the_first_is_made_and_count_rows_through() -> None:
    table = pa.table({"topic": ["T"] * 100, "body": [b"x" * 100] * 99 + [None]})
    with pytest.raises(Rejected, match="body is null: row 99"):
        record_blocks(table, FORM, NOW_MS, block_size=1000)


LEVEL_COUNT = 5
DELAYS = st.tuples(PLAIN, st.none() | st.integers(0, 9), st.sampled_from([0, 0, 4, 8]))


@settings(max_examples=30)
@given(st.lists(DELAYS, min_size=1, max_size=8), st.sampled_from(FORMS), st.booleans())
def test_rows_with_a_delay_level_are_messages_that_wait(rows, form: RecordForm, has_others: bool) -> None:
    """The same bytes as by the hook for single messages, DELAY being the last of their properties."""
    levels = DelayLevels((1000,) * LEVEL_COUNT)
    messages, waiting = [], []
    for message, level, kind in rows:
        more = {"DELAY": "2", "REAL_TOPIC": "old", "TIMER_OUT_MS": "1"} if has_others else {}
        plain = replace(message, sys_flag=message.sys_flag & ~0xC | kind, properties={**message.properties, **more})
        messages.append(plain)
        if level:
            kept = {name: value for name, value in plain.properties.items() if name not in REPLACED_BY_DELAY}
            answer = levels(replace(plain, properties={**kept, "DELAY": str(level)}))
            assert isinstance(answer, Message)
            waiting.append(answer)
        else:
            waiting.append(plain)
    column = pa.array([level for _, level, _ in rows], pa.int64())
    table = table_of(messages).append_column("delayLevel", column)
    encoded = record_columns(table, form, NOW_MS, LEVEL_COUNT)
    frames = frames_of(waiting, form)
    assert encoded.data.tobytes() == b"".join(bytes(frame.data) for frame in frames)
    ours = encoded.stamp(0, encoded.count, encoded.bases(0, encoded.count, {}), 5000, STORE_MS)
    assert bytes(ours) == stamped(frames, {}, 5000)


def test_what_stands_in_the_schedule_topic_already_is_left_there() -> None:
    messages = [Message("SCHEDULE_TOPIC_XXXX", b"x", queue_id=3), Message("T", b"y", queue_id=3)]
    table = table_of([replace(message, born_timestamp_ms=1) for message in messages])
    encoded = record_columns(table.append_column("delayLevel", [[7, 7]]), FORM, NOW_MS)
    assert [encoded.queues[number] for number in encoded.queue_numbers] == [
        (messages[0].topic, 3),
        (messages[0].topic, 6),
    ]


def test_levels_that_no_message_can_have_are_refused() -> None:
    table = pa.table(MINIMAL | {"delayLevel": [1, -1]})
    with pytest.raises(Rejected, match="delayLevel is negative: row 1;"):
        record_columns(table, FORM, NOW_MS)
    with pytest.raises(Rejected, match="has no delay levels: row 0;"):
        record_columns(pa.table(MINIMAL | {"delayLevel": [1, None]}), FORM, NOW_MS, 0)
    with pytest.raises(Rejected, match=r"topic '\.\./x' may not be stored: row 1;"):
        record_columns(pa.table(MINIMAL | {"topic": ["T", "../x"], "delayLevel": [1, 1]}), FORM, NOW_MS)
    with pytest.raises(Rejected, match="delayLevel: string"):
        record_columns(pa.table(MINIMAL | {"delayLevel": ["1", "2"]}), FORM, NOW_MS)


def test_queues_of_many_numbers() -> None:
    """Queue ids that lie far apart go another way than those close together."""
    ids = np.array([2**31 - 1, 0, 7, 2**31 - 1, 7, 7])
    encoded = record_columns(pa.table({"topic": ["T"] * 6, "body": [b"x"] * 6, "queueId": ids}), FORM, NOW_MS)
    taken: dict[tuple[str, int], int] = {}
    taken.update(encoded.moved(0, 6, taken))
    assert taken == {("T", 0): 1, ("T", 7): 3, ("T", 2**31 - 1): 2}
