"""Records of names that can be no directory: they stay in the log, are in no queue, and keep no store shut."""

from dataclasses import replace

import pytest

from rmqstore.core.message import Message, PutStatus
from rmqstore.formats import names
from tests.crash.disks import MemoryDisk
from tests.store.odd_messages import ROOT, SMALL, Caller

LONG = "%LMQ%" + "x" * 300


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b", "x" * 256, "日" * 86])
def test_what_is_no_directory_name(name: str) -> None:
    assert not names.is_directory_name(name)


@pytest.mark.parametrize("name", ["a", "a\\b", "...", "%LMQ%a", "x" * 255, "日" * 85, "\ud800"])
def test_what_is_one(name: str) -> None:
    assert names.is_directory_name(name)


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
def test_a_light_queue_of_a_name_that_is_too_long_keeps_no_store_shut(is_closed: bool) -> None:
    caller = Caller(replace(SMALL, multi_dispatch=True), {})
    listed = Message("plain", b"", properties={"INNER_MULTI_DISPATCH": f"{LONG},%LMQ%b"})
    assert caller.store.put(listed).status is PutStatus.PUT_OK
    caller.store.flush()
    caller.store.close() if is_closed else caller.store.abandon()
    for _ in range(2):
        with caller.opened(caller.disk) as store:
            assert set(store.queues()) == {("plain", 0), ("%LMQ%b", 0)}
            assert store.bounds("%LMQ%b", 0) == (0, 1)


@pytest.mark.parametrize("topic", ["a/b", ".."])
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
def test_a_record_whose_topic_is_none_is_told_and_left_in_the_log(topic: str, is_closed: bool) -> None:
    caller = Caller(SMALL, {})
    for name in ("plain", "p" * len(topic), "plain"):
        caller.store.put(Message(name, b"x"))
    caller.store.flush()
    caller.store.close()
    disk = MemoryDisk()
    for path, data in caller.disk.image().items():
        renamed = data.replace(b"p" * len(topic) + b"\0", topic.encode() + b"\0", 1)
        if "consumequeue" not in path and "/index/" not in path:
            disk.put_file(path, renamed if "/commitlog/" in path else data)
    if not is_closed:
        disk.put_file(f"{ROOT}/abort", b"")
    with caller.opened(disk) as store:
        assert store.bounds("plain", 0) == (0, 2)
        (warning,) = store.warnings
    assert warning.startswith(f"topic {topic!r} ")
