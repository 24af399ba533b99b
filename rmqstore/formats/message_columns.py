"""Many message records at once: where their fields lie and what they hold, as numpy vectors.

Agrees with the scalar codec in `message`, which is the specification.  Fields are read through byte-strided views of
the page: one gather per field, no copy of whole records.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rmqstore.formats import message, sys_flag

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32] | npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def gather(page: Bytes, positions: Places, kind: str) -> npt.NDArray[np.signedinteger]:
    """Big-endian integers of numpy kind i1, i2, i4 or i8 at byte `positions`: uint8[nbytes], int64[n] → native int[n].

    Each position + size must lie within the page (IndexError beyond its end); negative positions are the caller's
    error.
    """
    dtype = np.dtype(f">{kind}")
    values: npt.NDArray[np.signedinteger] = _opaque(page, positions, dtype.itemsize).view(dtype)
    return values.astype(dtype.newbyteorder("="))


def _opaque(page: Bytes, positions: Places, size: int, shift: int = 0) -> npt.NDArray[np.void]:
    """`size` bytes that begin `shift` bytes after each position as V<size>[n] (copy).

    numpy gathers opaque bytes twice as fast as unaligned numbers, and six times as fast as structures.
    """
    shift = min(shift, len(page))
    view: npt.NDArray[np.void] = np.ndarray((max(len(page) - shift - size + 1, 0),), f"V{size}", page, shift, (1,))
    return view[positions]


def gather_bytes(page: Bytes, positions: Places, size: int) -> npt.NDArray[np.bytes_]:
    """`size` bytes at each of `positions`: uint8[nbytes], int64[n] → S<size>[n] (copy); size ≥ 1, bounds as
    `gather`.
    """
    view: npt.NDArray[np.bytes_] = np.ndarray((max(len(page) - size + 1, 0),), f"S{size}", page, strides=(1,))
    return view[positions]


def gather_rows(page: Bytes, positions: Ints, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Structures of `dtype` at byte `positions`: uint8[nbytes], int64[n] → structured[n] (copy); bounds as `gather`."""
    return _opaque(page, positions, dtype.itemsize).view(dtype)


def take_rows(rows: npt.NDArray[np.void], numbers: npt.NDArray[np.intp] | Mask) -> npt.NDArray[np.void]:
    """rows[numbers] of a structured array, copied as opaque bytes for the same reason."""
    taken: npt.NDArray[np.void] = rows.view(f"V{rows.dtype.itemsize}")[numbers].view(rows.dtype)
    return taken


@dataclass(slots=True)
class Located:
    """Where the parts of n records lie in a page; vectors of n, int64 unless said otherwise.

    `fronts` are copies of the records' fixed fields, message.FRONT_V4.dtype; its addresses and ports mean something
    only for IPv4 hosts.  Rows whose `sound` is False hold no whole record: their other values mean nothing.
    `topic` is the name that all of them have, where `locate` was told which to expect and found it in every row.
    """

    page: Bytes
    starts: Ints
    sound: Mask
    fronts: npt.NDArray[np.void]
    total_size: Ints
    flags: npt.NDArray[np.int32]
    store_host_at: Ints
    body_at: Ints
    body_size: Ints
    topic_at: Ints
    topic_size: Ints
    properties_at: Ints
    properties_size: Ints
    topic: bytes = b""

    def head(self, name: str) -> npt.NDArray[np.signedinteger]:
        """A fixed field by its name in message.HEAD, STORE_TIME or FOOT, in native byte order."""
        column = self.fronts[name]
        native: npt.NDArray[np.signedinteger] = column.astype(column.dtype.newbyteorder("="))
        return native

    def store_timestamp(self) -> Ints:
        """Milliseconds since the epoch by the broker's clock."""
        return self.head("store_timestamp").astype(np.int64, copy=False)

    def topic_of(self, row: int) -> bytes:
        """The name of one sound record's topic."""
        start = int(self.topic_at[row])
        return self.topic or self.page[start : start + int(self.topic_size[row])].tobytes()

    def take(self, rows: npt.NDArray[np.intp] | Mask) -> "Located":
        """The same for some rows: their numbers or a mask."""
        apart = ("page", "starts", "sound", "fronts", "topic")
        plain = [getattr(self, name)[rows] for name in self.__slots__ if name not in apart]
        taken = Located(self.page, self.starts[rows], self.sound[rows], take_rows(self.fronts, rows), *plain)
        taken.topic = self.topic
        return taken


def locate(page: Bytes, starts: Ints, end: int | None = None, topic: bytes = b"") -> Located:
    """Finds the parts of the records at `starts`; the vector twin of message.read_record.

    `end` (default: the page's) is where readable data ends.  `topic` is the name that all records are expected to have:
    where they do, one look reads what otherwise takes three, each of which may miss every cache.  `sound` tells where a
    whole record with lengths that add up stands; CRCs and meaning are not checked.  Any bytes are safe: sizes are
    checked before they are used.
    """
    end = len(page) if end is None else end
    starts = starts.astype(np.int64, copy=False)
    sound = (starts >= 0) & (starts <= end - message.RECORD_SIZE_MIN)
    if not sound.any():
        return _nothing(page, sound)
    safe = starts if sound.all() else np.where(sound, starts, starts[sound][0])
    fronts = gather_rows(page, safe, message.FRONT_V4.dtype)
    total = fronts["total_size"].astype(np.int64)
    magic = fronts["magic"].astype(np.int32)
    flags = fronts["sys_flag"].astype(np.int32)
    second = magic == message.MAGIC_V2
    has_second = bool(second.any())
    sound &= (magic == message.MAGIC_V1) | second if has_second else magic == message.MAGIC_V1
    topic_width: Ints = 1 + second.astype(np.int64)
    hosts: Ints = np.array(2 * message.HOST_V4.size)
    store_host_at = safe + _STORE_HOST_AT
    is_v6 = flags & (sys_flag.BORN_HOST_V6 | sys_flag.STORE_HOST_V6) != 0
    if is_v6.any():
        hosts, store_host_at = _shift_fronts(page, safe, flags, np.flatnonzero(is_v6 & sound), (fronts, store_host_at))
    variable = total - (message.FIXED_SIZE - message.TOPIC_SIZE_V1.size) - hosts - topic_width
    body_at = safe + (message.FRONT_V4.size - 2 * message.HOST_V4.size) + hosts
    body_size = fronts["body_size"].astype(np.int64)
    sound &= (variable >= 0) & (total <= end - safe) & (body_size >= 0) & (body_size <= variable)
    topic_at: Ints = body_at + body_size + topic_width
    expected = None if has_second or not sound.all() else _properties_after(page, topic_at, topic)
    if expected is not None:
        topic_size = np.full(len(starts), len(topic))
        properties_size = expected
    else:
        topic_size = page[_inside(topic_at - 1, sound)].view(np.int8).astype(np.int64)
        if has_second:
            topic_size = np.where(second, gather(page, _inside(topic_at - 2, sound), "i2").astype(np.int64), topic_size)
        sound &= (topic_size >= 0) & (topic_size <= variable - body_size)
        properties_size = gather(page, _inside(topic_at + topic_size, sound), "i2").astype(np.int64)
    properties_at = topic_at + topic_size + message.PROPERTIES_SIZE.size
    sound &= (properties_size >= 0) & (body_size + topic_size + properties_size == variable)
    return Located(
        page, safe, sound, fronts, total, flags, store_host_at, body_at, body_size, topic_at, topic_size,
        properties_at, properties_size, topic if expected is not None else b"",
    )  # fmt: skip


def _properties_after(page: Bytes, topic_at: Ints, topic: bytes) -> Ints | None:
    """Sizes of the properties where `topic` of V1 records stands at each of `topic_at`; None unless it does in every
    row.
    """
    if not 0 < len(topic) < 2**7 or not len(topic_at):
        return None
    head = bytes([len(topic)]) + topic
    width = len(head) + message.PROPERTIES_SIZE.size
    if int(topic_at.max()) - 1 + width > len(page):
        return None
    joints = _opaque(page, topic_at - 1, width)
    if not all((_strided(joints, step, kind) == word).all() for step, kind, word in _words(head)):
        return None
    return _strided(joints, len(head), ">i2").astype(np.int64)


def _strided(values: npt.NDArray[np.void], position: int, kind: str) -> npt.NDArray[np.signedinteger]:
    """The number of numpy kind `kind` at a byte of each value: a view."""
    number: npt.NDArray[np.signedinteger] = np.ndarray((len(values),), kind, values.data, position, (values.itemsize,))
    return number


_STORE_HOST_AT = message.FRONT_V4.offset["store_address"]


def _inside(positions: Ints, sound: Mask) -> Ints:
    """The positions of sound rows; 0, which every page has, for the others."""
    return positions if sound.all() else np.where(sound, positions, 0)


def _shift_fronts(
    page: Bytes, starts: Ints, flags: npt.NDArray[np.int32], rows: npt.NDArray[np.intp],
    parts: tuple[npt.NDArray[np.void], Ints],
) -> tuple[Ints, Ints]:  # fmt: skip
    """Reads the fields that an IPv6 host moves; returns the sizes of both hosts and where storeHost begins.

    `rows` are those with an IPv6 host; of those that the page cuts the fields stay as they are, which sizes then
    refute.
    """
    fronts, store_host_at = parts
    wider = message.HOST_V6.size - message.HOST_V4.size
    born: Ints = np.where(flags & sys_flag.BORN_HOST_V6, wider, 0).astype(np.int64)
    store: Ints = np.where(flags & sys_flag.STORE_HOST_V6, wider, 0).astype(np.int64)
    rows = rows[starts[rows] + message.FRONT_V4.size + born[rows] + store[rows] <= len(page)]
    for name, kind in (*message.STORE_TIME.fields, *message.FOOT.fields):
        shift = born[rows] if name == "store_timestamp" else born[rows] + store[rows]
        fronts[name][rows] = gather(page, starts[rows] + message.FRONT_V4.offset[name] + shift, kind)
    return 2 * message.HOST_V4.size + born + store, store_host_at + born


def _nothing(page: Bytes, sound: Mask) -> Located:
    none: Ints = np.zeros(len(sound), np.int64)
    fronts = np.zeros(len(sound), message.FRONT_V4.dtype)
    flags = np.zeros(len(sound), np.int32)
    return Located(page, none, sound, fronts, none, flags, none, none, none, none, none, none, none)


def equal_bytes(page: Bytes, positions: Ints, sizes: Ints, wanted: bytes) -> Mask:
    """Where the `sizes[i]` bytes at `positions[i]` are `wanted`; positions + sizes lie within the page."""
    same: Mask = sizes == len(wanted)
    if not wanted or not same.any():
        return same
    if same.all():
        return compare_bytes(page, positions, wanted)
    rows = np.flatnonzero(same)
    same[rows] = compare_bytes(page, positions[rows], wanted)
    return same


def compare_bytes(page: Bytes, positions: Places, wanted: bytes) -> Mask:
    """Where `wanted` (not empty) stands at `positions`: bool[n]; bounds as `gather_bytes`.

    In words of 1, 2, 4 or 8 bytes, the last of which may overlap the one before: numpy compares texts slowly, and as if
    padded with NUL.
    """
    same: Mask = np.ones(len(positions), bool)
    for step, kind, word in _words(wanted):
        same &= _opaque(page, positions, word.itemsize, step).view(kind) == word
    return same


class _Word(NamedTuple):
    """A number that stands for some bytes: where they begin, its numpy kind and its value."""

    step: int
    kind: str
    value: np.unsignedinteger


def _words(wanted: bytes) -> Iterator[_Word]:
    """`wanted` in words of one size, which overlap where its length asks for it."""
    width = max(size for size in (1, 2, 4, 8) if size <= len(wanted))
    kind = f"<u{width}"
    for step in sorted({*range(0, len(wanted) - width, width), len(wanted) - width}):
        yield _Word(step, kind, np.frombuffer(wanted, kind, 1, step)[0])
