"""Whether a log only grew between two looks."""

from dataclasses import replace

import pytest

from rmqstore.files.disk import StoredFile
from rmqstore.snapshot.survey.footprint import only_grew

FILES = tuple(StoredFile(f"/log/{start:020}", start, 100, identity=start + 7) for start in (100, 200, 300))


@pytest.mark.parametrize("is_copied_over", [False, True])
def test_a_log_grows_by_files_at_its_end_alone(is_copied_over: bool) -> None:
    def grew(before: tuple[StoredFile, ...], now: tuple[StoredFile, ...]) -> bool:
        return only_grew(before, now, is_copied_over=is_copied_over)

    assert grew((), FILES)
    assert grew(FILES, FILES)
    assert grew(FILES[:2], FILES)
    assert not grew(FILES, FILES[:2])
    assert not grew(FILES, FILES[1:])
    assert not grew(FILES[1:], FILES)
    assert not grew(FILES, (*FILES[:2], replace(FILES[2], size=50)))
    assert not grew(FILES, (*FILES[:2], replace(FILES[2], path="/other/00000000000000000300")))


def test_a_file_written_again_is_another_one_for_a_survey_alone() -> None:
    now = (replace(FILES[0], identity=1), *FILES[1:])
    assert not only_grew(FILES, now, is_copied_over=False)
    assert only_grew(FILES, now, is_copied_over=True)
