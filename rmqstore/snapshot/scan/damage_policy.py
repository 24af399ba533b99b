"""The user's wish about damaged records (`on_corrupt_record`) and messages that are gone (`fail_on_data_loss`).

The one place of a scan that asks the request for either; all code that meets damage or loss asks this.
"""

from collections.abc import Sequence

import numpy as np

from rmqstore.directory.log_place import corrupt_at
from rmqstore.errors import DataLost
from rmqstore.files.disk import StoredFile, tells_of_failure
from rmqstore.records.soundness import TEXT, Reason
from rmqstore.snapshot.arrow.rows import Rows
from rmqstore.snapshot.request import ScanRequest


class DamagePolicy:
    """Damage of the log of `files` is an error (`fails_on_damage`), a row with nulls (`shows_damage`), or left out;
    loss is an error (`fails_on_loss`) or passed over.
    """

    def __init__(self, request: ScanRequest, files: Sequence[StoredFile]) -> None:
        self.fails_on_damage = request.on_corrupt_record == "fail"
        self.shows_damage = request.on_corrupt_record == "null"
        self.fails_on_loss = request.fail_on_data_loss
        self._files = files

    def is_shown(self, offset: int, reason: str) -> bool:
        """Whether a damaged record at an offset of the log becomes a row.  Raises Corrupt if it is an error."""
        if self.fails_on_damage:
            raise corrupt_at(self._files, offset, reason)
        return self.shows_damage

    def kept(self, rows: Rows) -> Rows:
        """The rows without damaged ones that are left out.  Raises Corrupt for the first if it is an error."""
        bad = rows.reasons != Reason.SOUND
        if not bad.any():
            return rows
        row = int(np.argmax(bad))
        return rows if self.is_shown(int(rows.offsets[row]), _described(rows, row)) else rows.take(~bad)

    def excuses_holes(self, is_damaged: bool) -> bool:
        """Whether damage that was met explains missing messages, as it is no error of its own."""
        return is_damaged and not self.fails_on_damage

    def tells_loss(self, reason: str) -> bool:
        """Whether messages that are gone for that reason are an error: always where the disk fails."""
        return self.fails_on_loss or tells_of_failure(reason)

    def lose(self, queue: str, gone: tuple[int, int], path: str, reason: str) -> None:
        """Raises DataLost for the messages [first, end) of a queue, unless the scan goes on without them."""
        if self.tells_loss(reason):
            raise DataLost(queue, gone, None, path, reason)


def _described(rows: Rows, row: int) -> str:
    topic = rows.topic if isinstance(rows.topic, str) else rows.topic[row].as_py()
    place = f"{topic}/{int(rows.queue_ids[row])} offset {int(rows.queue_offsets[row])}"
    return f"{place}: {TEXT[Reason(int(rows.reasons[row]))]}"
