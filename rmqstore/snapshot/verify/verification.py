"""A whole check of stores as a value: what is damaged, and what a healthy broker leaves."""

from dataclasses import dataclass

import pyarrow as pa

from rmqstore.core import arguments
from rmqstore.core.annotations import checked
from rmqstore.core.safe_text import arrow_html
from rmqstore.snapshot.finding import DAMAGE, Finding
from rmqstore.snapshot.opening import look_at
from rmqstore.snapshot.request import BODY_BYTES_MAX, Access
from rmqstore.snapshot.store_paths import Paths
from rmqstore.snapshot.verify import one_pass


@dataclass(frozen=True, slots=True)
class Verification:
    """The findings of a check of `paths`, in the order of the check; `log_bytes` of commitlog were read."""

    paths: tuple[str, ...]
    findings: tuple[Finding, ...]
    log_bytes: int

    @property
    def damage(self) -> tuple[Finding, ...]:
        """The findings that lost data, or make RocketMQ answer wrongly."""
        return tuple(each for each in self.findings if each.severity == DAMAGE)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged; notes are what a healthy broker leaves."""
        return not self.damage

    def _repr_html_(self) -> str:
        damaged = f"{len(self.damage):,} damaged" if self.damage else "no damage"
        notes = len(self.findings) - len(self.damage)
        return arrow_html(f"{', '.join(self.paths)}: {damaged}, {notes:,} notes", self.to_arrow())

    def to_arrow(self) -> pa.Table:
        """A row a finding: severity ("damage" or "note"), path, position int64 in bytes, reason; topic, queueId int32,
        queueOffset int64 and keys of a damaged message, as far as its record names them.
        """
        names = ("topic", "queueId", "queueOffset", "keys")
        types = (pa.string(), pa.int32(), pa.int64(), pa.string())
        messages = [each.message or (None,) * len(names) for each in self.findings]
        return pa.table(
            {
                "severity": pa.array([each.severity for each in self.findings], pa.string()),
                "path": pa.array([each.path for each in self.findings], pa.string()),
                "position": pa.array([each.position for each in self.findings], pa.int64()),
                "reason": pa.array([each.reason for each in self.findings], pa.string()),
            }
            | {name: pa.array([each[n] for each in messages], types[n]) for n, name in enumerate(names)}
        )


@checked
def verify(paths: Paths, *, access: Access = "auto", body_bytes_max: int = BODY_BYTES_MAX) -> Verification:
    """Checks records, queue entries, index items and small files of stores against each other, as `rmqstore verify`.

    `paths` and `access` are as of `open_snapshot`; nothing is changed.  A body that unpacks to more than
    `body_bytes_max` bytes counts as damaged.  The whole log is read.  Raises NotAStore, UnsupportedLayout, Rejected,
    and DataLost where a file of the log is deleted meanwhile.
    """
    limit = arguments.integer("body_bytes_max", body_bytes_max, 0)
    stores = look_at(paths, access).stores
    findings = tuple(found for store in stores for found in one_pass.verify(store, body_bytes_max=limit))
    log_bytes = sum(store.log_end - store.log_start for store in stores)
    return Verification(tuple(store.path for store in stores), findings, log_bytes)
