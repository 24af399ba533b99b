"""Which data files of a node go, and whether its disks are full: planned first, then done.

Java: DLedgerMmapFileStore.CleanSpaceService, which acts every 100 ms and looks at no committed entry.
"""

from collections.abc import Sequence
from dataclasses import replace

from rmqstore.engine.log.retention.plan import (
    DiskUse,
    LogFile,
    Request,
    RetentionPlan,
    RetentionPolicy,
    RetentionView,
    disk_is_full,
    full_log_paths,
    plan_retention,
)
from rmqstore.files.file_sequence import FileSequence
from rmqstore.files.filesystem import FileSystem, directory_of

DLEDGERS_POLICY = RetentionPolicy(max_used_percent=70, clean_percent=85, warning_percent=90)
_LEAST_MS = 60 * 60 * 1000
_UNCOMMITTED = "the group has not agreed on its entries yet"


class CleanSpace:
    """The disks of a node: `writable` are the directories that get new data files, `index_path` that of the index."""

    def __init__(self, fs: FileSystem, writable: Sequence[str], index_path: str, policy: RetentionPolicy) -> None:
        self.is_full = False
        self._fs, self._policy = fs, policy
        self._writable, self._index_path = sorted(writable), index_path

    def pick(self, number: int) -> str:
        """The directory of the k-th data file; one whose disk is full gets none while another is not.  Java:
        MultiPathMmapFileList."""
        full = full_log_paths(self._use(), self._policy)
        chosen = [path for path in self._writable if path not in full] or self._writable
        return chosen[number % len(chosen)]

    def plan(
        self, files: FileSequence, flushed: int, committed_end: int, now_ms: int, *, any_age: bool
    ) -> RetentionPlan:
        """The data files that go: those that are old enough, at least an hour, or as the disk is too full; never the
        last, and none that the group has not agreed on.  Raises OSError."""
        times, size = files.modified_ms(), files.file_size
        listed = tuple(LogFile(files.path_of(start), start, size, times.get(start, 0)) for start in files.starts)
        policy = replace(self._policy, reserved_ms=max(self._policy.reserved_ms, _LEAST_MS))
        request = Request(flushed, any_age=True) if any_age else None
        view = RetentionView(
            directory_of(self._index_path), listed, flushed, self._use(), lambda _: (), lambda _: (),
            committed_end, _UNCOMMITTED, request=request,
        )  # fmt: skip
        return plan_retention(view, policy, now_ms)

    def apply(self, plan: RetentionPlan, files: FileSequence) -> bool:
        """Deletes what `plan` says, oldest first; whether that was anything.  Raises OSError."""
        starts = {file.start for file in plan.log_files}
        while len(files.starts) > 1 and files.starts[0] in starts:
            files.remove_first(1)
        self.is_full = disk_is_full(self._use(), self._policy)
        return bool(starts)

    def _use(self) -> DiskUse:
        ratios = tuple((path, self._fs.used_ratio(path)) for path in self._writable)
        return DiskUse(ratios, self._fs.used_ratio(self._index_path))
