"""Text that is looked for in bodies, many at once."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqstore.errors import Rejected
from rmqstore.formats.message_columns import Mask
from rmqstore.records.gather import are_texts, bytes_of


@dataclass(frozen=True, slots=True)
class BodyText:
    """A fixed text, or a regular expression (RE2's), that a body has somewhere in it.

    A body that is UTF-8 is compared by characters, any other by bytes.  Raises Rejected for an empty text, and for what
    is no expression.
    """

    text: str
    is_expression: bool = False
    ignores_case: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not self.text:
            raise Rejected("an empty text is in every body: leave it out")
        try:
            self._matches(pa.array(["a"], pa.string()))
        except pa.ArrowInvalid as error:
            reason = str(error).removeprefix("Invalid regular expression: ")
            raise Rejected(f"{self.text!r} is no regular expression of RE2: {reason}") from None

    def is_in(self, bodies: pa.Array) -> Mask:
        """bool[n]: which bodies, binary[n], have it."""
        if not self.is_expression and not self.ignores_case:
            # Bytes will do: no character of UTF-8 is a part of another.  Mostly it is in none, which is seen at once.
            data, offsets = bytes_of(bodies)
            if data[offsets[0] : offsets[-1]].tobytes().find(self.text.encode()) < 0:
                return np.zeros(len(bodies), bool)
            return _true(self._matches(bodies))
        try:
            return _true(self._matches(bodies.cast(pa.string())))
        except pa.ArrowInvalid:
            is_text = pa.array(are_texts(bodies))
        texts = pc.if_else(is_text, bodies, pa.scalar(None, pa.binary())).cast(pa.string())
        others = pc.if_else(is_text, pa.scalar(None, pa.binary()), bodies)
        return _true(self._matches(texts)) | _true(self._matches(others))

    def _matches(self, values: pa.Array) -> pa.Array:
        match = pc.match_substring_regex if self.is_expression else pc.match_substring
        return match(values, self.text, ignore_case=self.ignores_case)


def _true(answers: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(answers, False).to_numpy(zero_copy_only=False), bool)
