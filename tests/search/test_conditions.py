"""Single conditions: texts, windows of time, names of topics."""

import re

import pyarrow as pa
import pytest

from rmqstore.errors import Rejected
from rmqstore.snapshot.search.body_text import BodyText
from rmqstore.snapshot.search.meant_topics import MeantTopics
from rmqstore.snapshot.search.window import Window

BODIES = pa.array(["Größe ORDER-17".encode(), b"\xff\xfeorder-17", None, b"", b'{"id": "order-18"}'], pa.binary())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BodyText("order-17"), [False, True, False, False, False]),
        (BodyText("order-17", ignores_case=True), [True, True, False, False, False]),
        (BodyText("GRÖSSE", ignores_case=True), [False] * 5),
        (BodyText("GRÖ", ignores_case=True), [True, False, False, False, False]),
        (BodyText("order-1[78]", True), [False, True, False, False, True]),
        (BodyText("^gr.ße", True, ignores_case=True), [True, False, False, False, False]),
        (BodyText("a.b*(c"), [False] * 5),
    ],
)
def test_texts_are_found_by_characters(text: BodyText, expected: list[bool]) -> None:
    assert text.is_in(BODIES).tolist() == expected
    assert text.is_in(BODIES[1:]).tolist() == expected[1:]


@pytest.mark.parametrize(("text", "said"), [(("(", True), "no regular expression"), (("", False), "an empty text")])
def test_a_text_without_sense_is_refused(text: tuple[str, bool], said: str) -> None:
    with pytest.raises(Rejected, match=said):
        BodyText(*text)


@pytest.mark.parametrize(
    ("words", "system", "expected"),
    [
        ((), False, MeantTopics(None, None)),
        (("a", "b", "a"), False, MeantTopics(("a", "b"), None)),
        (("%RETRY%g",), False, MeantTopics(("%RETRY%g",), None)),
        (("a*", "b"), False, MeantTopics(None, "a.*|b", globs=(("a*", "a.*"),))),
        (("%DLQ%*",), True, MeantTopics(None, "%DLQ%.*", True, (("%DLQ%*", "%DLQ%.*"),))),
        (("a?|x",), False, MeantTopics(None, r"a.\|x", globs=(("a?|x", r"a.\|x"),))),
        (("%DLQ%*",), False, MeantTopics(None, "%DLQ%.*", True, (("%DLQ%*", "%DLQ%.*"),))),
    ],
)
def test_topics_by_name_and_pattern(words: tuple[str, ...], system: bool, expected: MeantTopics) -> None:
    assert MeantTopics.of(words, with_system_topics=system) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("*",), ["a1", "b"]),
        (("%*",), ["%DLQ%g", "%LMQ%q", "%RETRY%g"]),
        (("%DLQ%*", "a?"), ["%DLQ%g", "a1"]),
        (("%RETRY%g", "*"), ["%RETRY%g", "a1", "b"]),
        (("?", "%D*"), ["%DLQ%g", "b"]),
        (("rmq_sys_*", "RMQ_SYS_*"), ["RMQ_SYS_TRACE_TOPIC", "rmq_sys_x"]),
        (("SCHEDULE_TOPIC_XXXX", "b*"), ["SCHEDULE_TOPIC_XXXX", "b"]),
        (("*_REPLY_TOPIC", "%D*"), ["%DLQ%g"]),
        (("SCHEDULE*", "S*"), []),  # else an export of S* would have delayed messages twice
    ],
)
def test_topics_of_rocketmq_s_own_are_meant_by_what_begins_as_they_do(
    words: tuple[str, ...], expected: list[str]
) -> None:
    known = ["%DLQ%g", "%LMQ%q", "%RETRY%g", "RMQ_SYS_TRACE_TOPIC", "SCHEDULE_TOPIC_XXXX", "a1", "b", "c_REPLY_TOPIC",
             "rmq_sys_x"]  # fmt: skip
    meant = MeantTopics.of(words)
    assert meant.fitting(known) == expected
    assert MeantTopics.of(["*"], with_system_topics=True).fitting(known) == known
    for word in words:
        found = [topic for topic in expected if topic in MeantTopics.of([word, "%-"]).fitting(known)]
        if found:
            assert sorted(MeantTopics.listed([word], known, "a store")) == found


def test_each_pattern_has_to_fit_something() -> None:
    known = ["%DLQ%g", "TBW102", "orders"]
    MeantTopics.of(["orders", "%D*", "o*"]).require_known(known, "a store")
    for words in (["orders", "nosuch*"], ["%D*", "TBW*"], ["o*", "TBW*"], ["orders", "%RETRY%*"]):
        with pytest.raises(Rejected, match=f"no topic fits {re.escape(words[1])} in a store"):
            MeantTopics.of(words).require_known(known, "a store")
    MeantTopics.of(["TBW*"], with_system_topics=True).require_known(known, "a store")
    with pytest.raises(Rejected, match=r"no topic fits x\.\*"):
        MeantTopics(None, "x.*").require_known(known, "a store")


def test_a_topic_without_a_name_is_refused() -> None:
    with pytest.raises(Rejected, match="without a name"):
        MeantTopics.of((" ",), with_system_topics=False)


def test_a_pattern_that_fits_nothing_is_refused() -> None:
    meant = MeantTopics.of(("order*",), with_system_topics=False)
    meant.require_known(["orders"], "/s")
    with pytest.raises(Rejected, match=r"no topic fits order\* in /s: did you mean ordre"):
        meant.require_known(["ordre"], "/s")


def test_a_window_holds_its_beginning_and_not_its_end() -> None:
    times = pa.array([None, 1_700_000_000_000_999, 1_700_000_001_000_000, -1], pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"storeTimestamp": times})
    assert Window(1_700_000_000_000, 1_700_000_001_000).holds(batch).tolist() == [False, True, False, False]
    assert Window().holds(batch).tolist() == [True] * 4
    assert Window(None, 1_700_000_001_000).holds(batch).tolist() == [False, True, False, True]
    with pytest.raises(Rejected):
        Window(5)
