"""What errors advise."""

import errno
import os
import pickle
from pathlib import Path

import pytest

from rmqstore import Message, open_store
from rmqstore.engine.log.derived.queue_table import QueueTable
from rmqstore.errors import DurabilityLost, NoRecord, Rejected, UnknownTopic, in_words, next_step
from rmqstore.files.regular import missing_right


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "make room on that disk"),
        (errno.EDQUOT, "make room on that disk"),
        (errno.EACCES, "run as a user who may read it"),
        (errno.EMFILE, "raise the limit of open files"),
        (errno.EIO, "the disk may be failing"),
        (errno.EBUSY, "try again"),
    ],
)
def test_the_next_step_is_that_of_the_error(number: int, advice: str) -> None:
    error = OSError(number, os.strerror(number))
    assert advice in next_step(error)
    assert ("may read it" in next_step(error)) == (number == errno.EACCES)


@pytest.mark.parametrize(("name", "right"), [("lock", "write"), ("new", "write"), ("gone/new", "read")])
def test_a_file_that_may_be_read_was_refused_for_writing(name: str, right: str, tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    path = str(tmp_path / name)
    assert missing_right(path) == right
    assert next_step(OSError(errno.EACCES, "Permission denied", path), right) == f"run as a user who may {right} it"


def test_an_error_without_a_number_has_a_next_step() -> None:
    assert next_step(OSError("odd")) == "try again"


def test_the_end_of_a_worker_is_told_in_the_words_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/consumequeue")

    store = open_store(tmp_path, workers=False)
    monkeypatch.setattr(QueueTable, "flush", full)
    store.put(Message("T", b"body"))
    store.step()
    with pytest.raises(DurabilityLost, match=r"'queues' ended: \[Errno 28\] No space left .*'/data/consumequeue'"):
        store.close()
    assert in_words(KeyError("x")) == "KeyError('x')"  # a mistake in a program has a type


def test_a_place_without_a_record_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(NoRecord("/s/commitlog/0", 5, "no whole record stands here")))
    assert (type(error), error.path, error.offset) == (NoRecord, "/s/commitlog/0", 5)
    assert "give the physicalOffset of a message" in str(error)


@pytest.mark.parametrize("blank", ["", " "])
def test_a_text_that_nobody_can_read_whole_is_cut_and_the_next_step_stays(blank: str) -> None:
    error = UnknownTopic(f"begin{'x' * 20_000}{blank}{'x' * 20_000}end", "/data/store")
    assert len(str(error)) < 1000
    assert str(error).startswith("no topic 'beginxxx")
    assert "characters) …" in str(error)
    assert str(error).endswith("xxxend' in /data/store: `rmqstore inspect` lists the topics")
    assert len(pickle.loads(pickle.dumps(error)).topic) == len(error.topic)
    assert len(str(Rejected("many mistakes; " * 10_000))) < 5000


def test_an_error_is_one_line_of_utf_8_whatever_is_in_it() -> None:
    error = Rejected("/data/a\nb\udcff\0: is no store;\r\n give another")
    assert str(error) == "/data/a b\ufffd : is no store; give another"


def test_a_long_path_stays_whole() -> None:
    path = "/a" * 400
    assert path in str(UnknownTopic("orders", path))
