"""A store as transactions, and the checks of them, need it."""

from typing import Protocol

from rmqstore.formats.stored_message import StoredMessage
from rmqstore.message import GetResult, Message, PutResult, PutStatus


class TransactionLog(Protocol):
    """A store as transactions need it.  None of the puts asks hooks, only `admit`."""

    def admit(self, message: Message) -> Message | PutStatus:
        """A message to a user's topic as the hook for topics leaves it; the status of a refusal."""

    def why_not(self, message: Message) -> str:
        """Why a message was not admitted, in words."""

    def put(self, message: Message) -> PutResult:
        """Stores a message, and waits for the disk as the store and its WAIT say."""

    def put_copy(self, message: Message) -> PutResult:
        """Stores a message without waiting for the disk, whatever its WAIT says."""

    def sync(self) -> None:
        """Makes the log durable as far as it goes.  Raises DurabilityLost, NotNow."""

    def get(self, topic: str, queue_id: int, offset: int, max_count: int) -> GetResult:
        """As Store.get."""

    def message_at(self, physical_offset: int) -> StoredMessage:
        """As Store.message_at; messages need not be dispatched for that."""

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """As Store.bounds."""

    def query(self, topic: str, key: str, max_count: int) -> list[StoredMessage] | None:
        """As Store.query; None where the store has no index."""

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """As Store.offset_at, the lower boundary."""


class GroupOffsets(Protocol):
    """The committed offsets of groups."""

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """The next queue offset of a group, None where it has none."""

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Sets it."""

    def persist(self) -> None:
        """Makes all of them durable."""
