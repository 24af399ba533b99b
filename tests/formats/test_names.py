"""Names of files, queue directories and topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats import names


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("00000000000000000000", 0),
        ("00000000001073741824", 1 << 30),
        ("04611686018427387904", 2**62),
        ("04611686018427387905", None),
        ("09223372036854775807", None),
        ("99999999999999999999", None),
        ("0000000000107374182", None),
        ("000000000010737418240", None),
        ("-0000000000000000001", None),
        ("0000000000000000000x", None),
        ("00000000000000000000\n", None),
        ("٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠", None),
        ("", None),
    ],
)
def test_a_start_is_twenty_ascii_digits_up_to_two_to_the_62(name: str, start: int | None) -> None:
    assert names.parse_start(name) == start


@given(st.integers(0, 2**62))
def test_a_formatted_start_reads_back(start: int) -> None:
    assert names.parse_start(names.format_start(start)) == start


@pytest.mark.parametrize("start", [-1, 2**63])
def test_a_start_that_no_file_has_is_refused(start: int) -> None:
    with pytest.raises(ValueError, match="cannot start"):
        names.format_start(start)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("20261121032509579", 20261121032509579),
        ("2026112103250957", None),
        ("202611210325095790", None),
        ("2026112103250957a", None),
    ],
)
def test_index_files_have_seventeen_digits(name: str, number: int | None) -> None:
    assert names.parse_index_name(name) == number


@pytest.mark.parametrize(
    ("name", "queue_id"),
    [
        ("0", 0),
        ("17", 17),
        ("2147483647", 2**31 - 1),
        ("2147483648", None),
        ("12345678901", None),
        ("-1", None),
        ("00", None),
        ("017", None),
        ("", None),
    ],
)
def test_a_queue_id_fits_a_java_int(name: str, queue_id: int | None) -> None:
    assert names.parse_queue_id(name) == queue_id


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("TopicTest", True), ("%RETRY%a|b-c_1", True), ("x" * 255, True), ("x" * 256, False), ("", False), ("a.b", False),
     ("a/b", False), ("тема", False), ("a\n", False)],
)  # fmt: skip
def test_topic_names_are_ascii_words(name: str, is_one: bool) -> None:
    assert names.is_topic_name(name) is is_one


@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX", "TBW102", "BenchmarkTest", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
        "TRANS_CHECK_MAX_TIME_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC",
        "CHECKPOINT_TOPIC", "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_DefaultCluster", "%RETRY%group", "%DLQ%group",
        "%LMQ%queue", "DefaultCluster_REPLY_TOPIC",
    ],
)  # fmt: skip
def test_topics_of_the_broker_are_system_topics(topic: str) -> None:
    assert names.is_system_topic(topic)


@pytest.mark.parametrize(
    "topic", ["orders", "TopicTest", "schedule_topic_xxxx", "my_rmq_sys_topic", "RETRY", "TBW1020"]
)
def test_topics_of_users_are_not(topic: str) -> None:
    assert not names.is_system_topic(topic)


@pytest.mark.parametrize(
    ("topic", "parent"),
    [
        ("%LMQ%$orders$user-1", "orders"), ("%LMQ%$%RETRY%g$a.b", "%RETRY%g"), ("%LMQ%$orders$a$b", None),
        ("%LMQ%$orders$", None), ("%LMQ%$$a", None), ("%LMQ%orders$a", None), ("%LMQ%device.1%state", None),
        ("$orders$a", None), ("orders", None), ("%LMQ%", None),
    ],
)  # fmt: skip
def test_the_parent_of_a_lite_topic(topic: str, parent: str | None) -> None:
    assert names.lite_parent(topic) == parent
