"""How a replica is at a moment, for whoever shows or waits for it."""

from dataclasses import dataclass
from typing import Literal

Doing = Literal["connecting", "comparing", "following", "waiting", "stopped"]


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """Offsets of the log in bytes, times in ms since the epoch; None while not known.

    `error` is why the last connection failed, `tables_error` why the master's tables were not fetched; "" since one
    went well.  `is_level`: the master said last, by a heartbeat, that it had no more.
    """

    phase: Doing = "connecting"
    log_start: int = 0
    log_end: int = 0
    master_end: int | None = None
    newest_ms: int | None = None
    error: str = ""
    tables_error: str = ""
    is_level: bool = False

    @property
    def behind_bytes(self) -> int | None:
        """Bytes of the master's log that are not here yet, as far as is known."""
        return None if self.master_end is None else max(self.master_end - self.log_end, 0)
