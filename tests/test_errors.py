"""What errors advise."""

import errno
import os
import pickle

import pytest

from rmqstore.errors import NoRecord, next_step


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


def test_an_error_without_a_number_has_a_next_step() -> None:
    assert next_step(OSError("odd")) == "try again"


def test_a_place_without_a_record_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(NoRecord("/s/commitlog/0", 5, "no whole record stands here")))
    assert (type(error), error.path, error.offset) == (NoRecord, "/s/commitlog/0", 5)
    assert "give the physicalOffset of a message" in str(error)
