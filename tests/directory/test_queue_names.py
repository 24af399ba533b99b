"""Which directories are queues, by their names."""

from functools import partial
from pathlib import Path

import pytest

import rmqstore
from rmqstore.directory.queue_files import SIMPLE, find_queues, queues_of
from rmqstore.files.reading import LOCAL
from rmqstore.snapshot.opening import look_at
from rmqstore.snapshot.survey.survey import SurveyScope
from tests.snapshot.small_store import small_store

COUNT = 20


@pytest.mark.parametrize("is_copy", [True, False])
def test_a_directory_with_a_zero_in_front_of_its_number_is_no_queue(is_copy: bool, tmp_path: Path) -> None:
    """RocketMQ looks for the files of queue 0 in the directory 0 alone; without them the log tells its messages."""
    root = small_store(COUNT).write(tmp_path)
    queue = root / "consumequeue" / "T" / "0"
    if is_copy:
        (queue.parent / "00").mkdir()
        for file in queue.iterdir():
            (queue.parent / "00" / file.name).write_bytes(file.read_bytes())
    else:
        queue.rename(queue.parent / "000")
    expected = [0, 1] if is_copy else [1]
    assert [found.queue_id for found in find_queues(LOCAL, str(root))] == expected
    assert sorted(found.queue_id for found in queues_of(LOCAL, str(root), "T", SIMPLE)) == expected
    for look in (rmqstore.open_snapshot, partial(look_at, scope=SurveyScope(["T"]))):
        assert look(root).scan(["T"]).read_all().num_rows == COUNT
