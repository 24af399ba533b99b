"""The transient write pool: buffers in memory that take writes before they are committed to a file."""

from collections.abc import Collection


class TransientPool:
    """At most `count` buffers of `size` bytes (RocketMQ: TransientStorePool); one thread at a time.

    A buffer is made when it is first asked for, so an idle pool costs nothing.  It keeps what its last user left in it.
    The user says which are in use: nothing has to be given back, so an exception cannot lose one.
    """

    def __init__(self, count: int, size: int) -> None:
        if count < 0 or size <= 0:
            raise ValueError(f"a pool of {count} buffers of {size} bytes")
        self.count = count
        self.size = size
        self._buffers: list[bytearray] = []

    def unused(self, in_use: Collection[bytearray]) -> bytearray | None:
        """A buffer of `size` bytes that is none of those in use; None if all are."""
        taken = {id(buffer) for buffer in in_use}
        for buffer in self._buffers:
            if id(buffer) not in taken:
                return buffer
        if len(self._buffers) >= self.count:
            return None
        self._buffers.append(bytearray(self.size))
        return self._buffers[-1]
