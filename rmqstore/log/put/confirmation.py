"""When a put is confirmed: once the disk has it, where the store promises that.

The one place where FLUSH_DISK_TIMEOUT is decided.
"""

from rmqstore.formats import properties
from rmqstore.log.put.commitlog import CommitLog
from rmqstore.message import Message, PutStatus

# The answer to a put that is in the log, of which nobody has said yet that it is durable.
UNCONFIRMED = PutStatus.FLUSH_DISK_TIMEOUT


class Confirmation:
    """How a store confirms its puts: `is_sync` where they wait for the disk, `timeout_ms` at the most."""

    def __init__(self, log: CommitLog, *, is_sync: bool, timeout_ms: int) -> None:
        self._log = log
        self.is_sync = is_sync
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

    def reason(self, status: PutStatus) -> str:
        """Why a put that is in the log was answered so; "" for PUT_OK."""
        return self._unconfirmed if status is UNCONFIRMED else ""


def waits_for_disk(message: Message) -> bool:
    """Whether a put of the message waits for the disk where the store does (Java: isWaitStoreMsgOK)."""
    if not message.wait_store_ok:
        return False
    wanted = message.properties.get(properties.WAIT)
    return wanted is None or wanted.lower() == "true"
