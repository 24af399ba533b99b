"""Reading one split: rows from entries or a walk of the log, checked, decoded by one loop."""

from collections.abc import Iterator

import pyarrow as pa

from rmqstore.directory.log_files import LogView
from rmqstore.errors import DataLost
from rmqstore.snapshot.arrow.decode import Decoder
from rmqstore.snapshot.request import ScanRequest
from rmqstore.snapshot.scan.checked_rows import Checked
from rmqstore.snapshot.scan.damage_policy import DamagePolicy
from rmqstore.snapshot.scan.entry_runs import EntryRun
from rmqstore.snapshot.scan.entry_source import EntrySource
from rmqstore.snapshot.scan.log_scan import LogSource
from rmqstore.snapshot.split import Split
from rmqstore.snapshot.survey.extents import mapped_below
from rmqstore.snapshot.survey.found_log import look_at_root, refuse_unread_layouts

# Rows of entry columns are small: so many times more of them make a batch.
_NARROW = 4


def read_split(
    split: Split, request: ScanRequest, policy: type[DamagePolicy] = DamagePolicy
) -> Iterator[pa.RecordBatch]:
    """The batches of a split in order, of the request's schema; none is empty.

    Opens the store by the split's disk and path on whatever host it runs.  Raises NotAStore if that host does not see
    it, DataLost for messages that are gone (unless fail_on_data_loss is off, or as `policy` says), Corrupt for damage
    (unless on_corrupt_record says else).
    """
    disk = split.disk
    at_root = look_at_root(disk, split.path, split.extra_logs)
    files = at_root.log_files
    if not files:  # else it is the store that was planned, and was not refused then
        refuse_unread_layouts(disk, at_root)
    below = mapped_below(files, split.log_end, split.is_live, request.access)
    deleted = dict(split.deleted_before)
    with LogView(disk, files, below, split.log_end, deleted, own_bases=split.own_bases) as view:
        view.light_from = split.light_from
        for batch in _batches(split, request, view, policy(request, files)):
            if batch.num_rows:
                yield batch


def _batches(split: Split, request: ScanRequest, view: LogView, policy: DamagePolicy) -> Iterator[pa.RecordBatch]:
    found: Iterator[Checked | EntryRun]
    if split.log_range is not None:
        walk = LogSource(split, request, view, policy)
        decoder = Decoder(request, split.broker_name, policy.is_shown, walk.is_whole)
        found = walk.rows()
    else:
        decoder = Decoder(request, split.broker_name, policy.is_shown, lambda offset: _is_whole(view, policy, offset))
        found = EntrySource(split, request, view, policy).rows()
    for item in found:
        if isinstance(item, Checked):
            yield from decoder.batches(policy.kept(item.rows), item.clip)
        else:
            step = request.batch_rows * _NARROW
            for first in range(0, len(item.entries), step):
                yield decoder.entry_batch(item.span, item.entries[first : first + step])


def _is_whole(view: LogView, policy: DamagePolicy, offset: int) -> bool:
    """Whether the file that holds `offset` may be read on.  Raises DataLost if not, unless the scan goes on."""
    try:
        view.require_whole(offset)
    except DataLost as lost:
        if policy.tells_loss(lost.reason):
            raise
        return False
    return True
