"""Many message records at once: where their fields lie and what they hold, as numpy vectors.

Agrees with the scalar codec in `message`, which is the specification.  Fields are read through byte-strided views of the
page: one gather per field, no copy of whole records.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmqstore.formats import message, sys_flag

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def gather(page: Bytes, positions: Ints, kind: str) -> npt.NDArray[np.signedinteger]:
    """Big-endian integers of numpy kind i1, i2, i4 or i8 at byte `positions`: uint8[nbytes], int64[n] → native int[n].

    Each position + size must lie within the page (IndexError beyond its end); negative positions are the caller's error.
    """
    dtype = np.dtype(f">{kind}")
    room = len(page) - dtype.itemsize + 1
    view: npt.NDArray[np.signedinteger] = np.ndarray((max(room, 0),), dtype, page, strides=(1,))
    return view[positions].astype(dtype.newbyteorder("="))


def gather_bytes(page: Bytes, positions: Ints, size: int) -> npt.NDArray[np.bytes_]:
    """`size` bytes at each of `positions`: uint8[nbytes], int64[n] → S<size>[n] (copy); size ≥ 1, bounds as `gather`."""
    view: npt.NDArray[np.bytes_] = np.ndarray((max(len(page) - size + 1, 0),), f"S{size}", page, strides=(1,))
    return view[positions]


@dataclass(slots=True)
class Located:
    """Where the parts of n records lie in a page; vectors of n, int64 unless said otherwise.

    Rows whose `sound` is False hold no whole record: their other values mean nothing but stay inside the page.
    """

    page: Bytes
    starts: Ints
    sound: Mask
    total_size: Ints
    magic: npt.NDArray[np.int32]
    flags: npt.NDArray[np.int32]
    store_time_at: Ints
    store_host_at: Ints
    foot_at: Ints
    body_at: Ints
    body_size: Ints
    topic_at: Ints
    topic_size: Ints
    properties_at: Ints
    properties_size: Ints

    def head(self, name: str) -> npt.NDArray[np.signedinteger]:
        """A field of message.HEAD by name."""
        return gather(self.page, self.starts + message.HEAD.offset[name], message.HEAD.kind[name])

    def foot(self, name: str) -> npt.NDArray[np.signedinteger]:
        """A field of message.FOOT by name."""
        return gather(self.page, self.foot_at + message.FOOT.offset[name], message.FOOT.kind[name])

    def store_timestamp(self) -> Ints:
        """Milliseconds since the epoch by the broker's clock."""
        return gather(self.page, self.store_time_at, "i8").astype(np.int64, copy=False)

    def take(self, rows: npt.NDArray[np.intp] | Mask) -> "Located":
        """The same for some rows: their numbers or a mask."""
        return Located(self.page, *(getattr(self, name)[rows] for name in self.__slots__ if name != "page"))


def locate(page: Bytes, starts: Ints, end: int | None = None) -> Located:
    """Finds the parts of the records at `starts`; the vector twin of message.read_record.

    `end` (default: the page's) is where readable data ends.  `sound` tells where a whole record with lengths that add up
    stands; CRCs and meaning are not looked at.  Any bytes are safe: sizes are checked before they are followed.
    """
    end = len(page) if end is None else end
    starts = starts.astype(np.int64, copy=False)
    sound = (starts >= 0) & (starts <= end - message.RECORD_SIZE_MIN)
    if not sound.all() and not sound.any():
        return _nothing(page, starts, sound)
    safe = starts if sound.all() else np.where(sound, starts, starts[sound][0])
    total = gather(page, safe + message.HEAD.offset["total_size"], "i4").astype(np.int64)
    magic = gather(page, safe + message.HEAD.offset["magic"], "i4")
    flags = gather(page, safe + message.HEAD.offset["sys_flag"], "i4")
    second = magic == message.MAGIC_V2
    has_second = bool(second.any())
    sound &= (magic == message.MAGIC_V1) | second if has_second else magic == message.MAGIC_V1
    born: Ints | int
    store: Ints | int
    born, store = message.HOST_V4.size, message.HOST_V4.size
    if (flags & (sys_flag.BORN_HOST_V6 | sys_flag.STORE_HOST_V6)).any():
        born = np.where(flags & sys_flag.BORN_HOST_V6, message.HOST_V6.size, message.HOST_V4.size)
        store = np.where(flags & sys_flag.STORE_HOST_V6, message.HOST_V6.size, message.HOST_V4.size)
    topic_width: Ints | int = 1 + second.astype(np.int64) if has_second else 1
    variable = total - (message.FIXED_SIZE - 1) - born - store - topic_width
    sound &= (variable >= 0) & (total <= end - safe)
    store_time_at = safe + message.HEAD.size + born
    store_host_at = store_time_at + message.STORE_TIME.size
    foot_at = store_host_at + store
    body_at = foot_at + message.FOOT.size
    all_sound = bool(sound.all())

    def inside(positions: Ints) -> Ints:
        return positions if all_sound else np.where(sound, positions, 0)

    body_size = gather(page, inside(foot_at + message.FOOT.offset["body_size"]), "i4").astype(np.int64)
    sound &= (body_size >= 0) & (body_size <= variable)
    all_sound = bool(sound.all())
    topic_at = body_at + body_size + topic_width
    topic_size = gather(page, inside(topic_at - 1), "i1").astype(np.int64)
    if has_second:
        wide = gather(page, inside(topic_at - 2), "i2").astype(np.int64)
        topic_size = np.where(second, wide, topic_size)
    sound &= (topic_size >= 0) & (topic_size <= variable - body_size)
    all_sound = bool(sound.all())
    properties_at = topic_at + topic_size + message.PROPERTIES_SIZE.size
    properties_size = gather(page, inside(topic_at + topic_size), "i2").astype(np.int64)
    sound &= (properties_size >= 0) & (body_size + topic_size + properties_size == variable)
    return Located(
        page, safe, sound, total, magic, flags, store_time_at, store_host_at, foot_at, body_at, body_size,
        topic_at, topic_size, properties_at, properties_size,
    )  # fmt: skip


def _nothing(page: Bytes, starts: Ints, sound: Mask) -> Located:
    none = np.zeros(len(starts), np.int64)
    short = np.zeros(len(starts), np.int32)
    return Located(page, none, sound, none, short, short, *([none] * 9))


def equal_bytes(page: Bytes, positions: Ints, sizes: Ints, wanted: bytes) -> Mask:
    """Where the `sizes[i]` bytes at `positions[i]` are `wanted`; positions + sizes lie within the page."""
    same = sizes == len(wanted)
    if not wanted or not same.any():
        return same
    if same.all():
        return _compare(page, positions, wanted)
    rows = np.flatnonzero(same)
    same[rows] = _compare(page, positions[rows], wanted)
    return same


def _compare(page: Bytes, positions: Ints, wanted: bytes) -> Mask:
    """numpy compares S values as if padded with NUL, so a wanted text that ends in NUL is compared byte by byte."""
    if wanted.endswith(b"\0"):
        found = page[positions[:, None] + np.arange(len(wanted))]
        return np.asarray((found == np.frombuffer(wanted, np.uint8)).all(axis=1))
    return np.asarray(gather_bytes(page, positions, len(wanted)) == wanted)
