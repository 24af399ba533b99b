"""One table per format: the struct, the numpy dtype and the named offsets all come from it."""

import struct

import numpy as np

_STRUCT_CODE = {"i1": "b", "i2": "h", "i4": "i", "i8": "q"}


class Layout:
    """Fixed-size fields in order, big-endian, unpadded, signed, as every binary integer of RocketMQ is.

    `Layout(("offset", "i8"), ("size", "i4"))`; kinds are numpy's i1, i2, i4, i8.  `struct` is the scalar codec,
    `dtype` the vector one, `offset[name]` the byte position of a field, `size` the bytes of the whole.
    """

    def __init__(self, *fields: tuple[str, str]) -> None:
        self.fields = fields
        self.names = tuple(name for name, _ in fields)
        self.dtype = np.dtype([(name, f">{kind}") for name, kind in fields])
        self.struct = struct.Struct(">" + "".join(_STRUCT_CODE[kind] for _, kind in fields))
        self.size = self.struct.size
        self.kind = dict(fields)
        self.offset: dict[str, int] = {}
        position = 0
        for name, kind in fields:
            self.offset[name] = position
            position += int(kind[1:])
        assert self.dtype.itemsize == self.size == position

    def read(self, buffer: bytes | memoryview, position: int = 0) -> dict[str, int]:
        """The fields at `position` by name.  Raises struct.error if the buffer ends before them."""
        return dict(zip(self.names, self.struct.unpack_from(buffer, position), strict=True))

    def may_hold(self, written: bytes, name: str, least: int, most: int | None = None) -> bool:
        """Whether field `name` may be a value of [least, most], or `least` alone, where a write ended behind `written`.

        What the write did not reach may be any value.
        """
        position, size = self.offset[name], int(self.kind[name][1:])
        found = written[position : position + size]
        lowest, highest = int.from_bytes(found.ljust(size, b"\0")), int.from_bytes(found.ljust(size, b"\xff"))
        least, most = (value % 2 ** (8 * size) for value in (least, least if most is None else most))
        return lowest <= most and highest >= least
