"""When a put is confirmed: once the disk has it, where the store promises that, and then as many slaves as it asks for.

The one place where FLUSH_DISK_TIMEOUT is decided, and where those of slaves are put in words.
"""

from typing import Protocol

from rmqstore.core.message import Message, PutStatus
from rmqstore.engine.log.put.commitlog import CommitLog
from rmqstore.formats import properties

# The answer to a put that is in the log and not yet known to be durable.
UNCONFIRMED = PutStatus.FLUSH_DISK_TIMEOUT


_SLAVE_REASONS = {
    PutStatus.FLUSH_SLAVE_TIMEOUT: "no slave acknowledged it in time",
    PutStatus.SLAVE_NOT_AVAILABLE: "no slave is connected, or all have fallen far behind",
}


class ConfirmsCopies(Protocol):
    """The slaves, as far as a put waits for them."""

    def confirm(self, offset: int) -> PutStatus:
        """Waits until enough of them have everything before `offset`: PUT_OK, or why not."""


class Confirmation:
    """How a store confirms its puts: `is_sync` where they wait for the disk, `timeout_ms` at the most; with `copies`
    where they wait for slaves, too.
    """

    def __init__(self, log: CommitLog, *, is_sync: bool, timeout_ms: int, copies: ConfirmsCopies | None = None) -> None:
        self._log = log
        self._copies = copies
        self.is_sync = is_sync
        self.waits = is_sync or copies is not None
        self.timeout_s = timeout_ms / 1000
        self._unconfirmed = f"the sync was not confirmed within {timeout_ms} ms"

    def confirm(self, offset: int) -> PutStatus:
        """Waits until what lies before `offset` is as durable as a put that waits promises: PUT_OK, or
        FLUSH_DISK_TIMEOUT.  Raises DurabilityLost.
        """
        return PutStatus.PUT_OK if self._log.sync_to(offset, self.timeout_s) else UNCONFIRMED

    def confirm_all(self) -> PutStatus:
        """`confirm` for all that is appended by now."""
        return self.confirm(self._log.marks.appended)

    def replicate(self, status: PutStatus, offset: int) -> PutStatus:
        """Waits for the slaves to have what lies before `offset`, where the disk's answer `status` was PUT_OK."""
        if self._copies is None or status is not PutStatus.PUT_OK:
            return status
        return self._copies.confirm(offset)

    def reason(self, status: PutStatus) -> str:
        """Why a put that is in the log was answered so; "" for PUT_OK."""
        return self._unconfirmed if status is UNCONFIRMED else _SLAVE_REASONS.get(status, "")


def waits_for_disk(message: Message) -> bool:
    """Whether a put of the message waits for the disk where the store does (Java: isWaitStoreMsgOK)."""
    if not message.wait_store_ok:
        return False
    wanted = message.properties.get(properties.WAIT)
    return wanted is None or wanted.lower() == "true"
