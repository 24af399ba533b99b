"""The transient write pool: buffers in memory that take writes before they are committed to a file."""

import threading


class TransientPool:
    """At most `count` buffers of `size` bytes (RocketMQ: TransientStorePool); any thread.

    A buffer is made when it is first borrowed, so an idle pool costs nothing.  It keeps what its last user left in it.
    """

    def __init__(self, count: int, size: int) -> None:
        if count < 0 or size <= 0:
            raise ValueError(f"a pool of {count} buffers of {size} bytes")
        self.count = count
        self.size = size
        self._idle: list[bytearray] = []
        self._lent: dict[int, bytearray] = {}
        self._lock = threading.Lock()  # guards the two above

    @property
    def free(self) -> int:
        """How many buffers can be borrowed now."""
        return self.count - len(self._lent)

    def borrow(self) -> bytearray | None:
        """A buffer of `size` bytes, the caller's until it is given back; None if all are lent."""
        with self._lock:
            if len(self._lent) >= self.count:
                return None
            buffer = self._idle.pop() if self._idle else bytearray(self.size)
            self._lent[id(buffer)] = buffer
            return buffer

    def give_back(self, buffer: bytearray) -> None:
        """Takes a borrowed buffer back.  Raises ValueError for one that is not lent."""
        with self._lock:
            if self._lent.get(id(buffer)) is not buffer:
                raise ValueError("this buffer was not borrowed here, or was given back already")
            del self._lent[id(buffer)]
            self._idle.append(buffer)
