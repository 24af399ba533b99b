"""Further queues of records: what the vectors find is what is told of each record by itself."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats import sys_flag
from rmqstore.formats.message_columns import locate
from rmqstore.formats.names import QueueKey, is_light_queue
from rmqstore.formats.properties import encode_properties
from rmqstore.records import light_queues
from rmqstore.records.light_queues import light_places, light_runs, may_dispatch
from rmqstore.records.soundness import Reason
from rmqstore.records.stretch import Stretch
from tests.records.logs import laid

pytestmark = pytest.mark.stores

NAMES = st.lists(st.sampled_from(["%LMQ%a", "%LMQ%b", "%LMQ%$T$x", "T", "U", "", " ", "a/b", "é"]), max_size=4)
OFFSETS = st.lists(
    st.sampled_from(["0", "7", "00", "12345678901234567", "x", "", "-1", " 3", "9" * 19, "٣"]), max_size=4
)
LISTS = st.fixed_dictionaries(
    {},
    optional={
        "INNER_MULTI_DISPATCH": NAMES.map(",".join) | st.sampled_from(["%LMQ%a", "%LMQ%b", "  ", ","]),
        "INNER_MULTI_QUEUE_OFFSET": OFFSETS.map(",".join) | st.sampled_from(["0", "5"]),
        "TAGS": st.just("A"),
    },
)
RECORDS = st.tuples(
    st.sampled_from([b"T", b"U", b"%RETRY%g", b"rmq_sys_x", b"SCHEDULE_TOPIC_XXXX", b"%LMQ%a", b"\xff"]),
    st.integers(0, 2),
    LISTS,
    st.sampled_from([0, 0, 0, sys_flag.COMMIT, sys_flag.PREPARED]),
    st.sampled_from([Reason.SOUND, Reason.SOUND, Reason.BODY_CRC, Reason.NOT_WHOLE]),
)


@given(
    st.lists(RECORDS, max_size=6), st.dictionaries(st.sampled_from(["%LMQ%a", "T"]), st.integers(0, 400), max_size=1)
)
def test_runs_are_what_is_told_of_each_record(records: list, deleted_before: dict[str, int]) -> None:
    fields = [
        {"topic": topic, "queue_id": queue_id, "properties": encode_properties(found), "sys_flag": flag}
        for topic, queue_id, found, flag, _ in records
    ]
    starts = np.array([len(laid(fields[:count])) for count in range(len(fields))], np.int64)
    page = np.frombuffer(laid(fields), np.uint8)
    reasons = np.array([reason for *_, reason in records], np.int8)
    stretch = Stretch(starts, locate(page, starts), reasons, deleted_before, light_from=0)
    wanted: defaultdict[QueueKey, list[tuple[int, int]]] = defaultdict(list)
    for row, (name, queue_id, found, flag, reason) in enumerate(records):
        topic = name.decode("utf-8", "replace")
        if flag == sys_flag.PREPARED or reason is Reason.NOT_WHOLE or not may_dispatch(topic):
            continue
        for key, number in light_places(found, queue_id):
            is_new = is_light_queue(key[0]) and all(row != known for known, _ in wanted[key])
            if key != (topic, queue_id) and is_new and starts[row] >= deleted_before.get(key[0], 0):
                wanted[key].append((row, number))
    found_runs = {
        run.key: list(zip(run.rows.tolist(), run.queue_offsets.tolist(), strict=True))
        for run in light_runs(stretch, with_wrong_crc=True)
    }
    assert found_runs == {key: places for key, places in wanted.items() if places}


def test_the_records_alone_are_searched_for_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their page may be a whole file that is mapped: each of its stretches was searched to the file's end."""
    sizes = []

    class Searched:
        @staticmethod
        def search(data: memoryview) -> None:
            sizes.append(len(data))

    monkeypatch.setattr(light_queues, "_HAS_LIST", Searched)
    log = laid([{"topic": b"T"}] * 5)
    starts = np.arange(5, dtype=np.int64) * (len(log) // 5)
    page = np.frombuffer(log + bytes(100_000), np.uint8)
    stretch = Stretch(starts, locate(page, starts), np.zeros(5, np.int8), light_from=0)
    for part in (stretch, stretch.take(starts > starts[2])):
        assert list(light_runs(part)) == []
    assert sizes == [len(log), len(log) * 2 // 5]
