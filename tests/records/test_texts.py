"""Which values are UTF-8, many at once."""

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.records.gather import are_texts

pytestmark = pytest.mark.stores

# Of each kind of byte that UTF-8 knows one at least, and those next to the bounds of second bytes.
KINDS = bytes.fromhex("00 41 7f 80 8f 90 9f a0 bf c0 c1 c2 df e0 e1 ed ef f0 f1 f4 f5 ff")


def is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.lists(st.one_of(st.none(), st.binary(max_size=5), st.text(max_size=4).map(str.encode)), max_size=9))
def test_which_values_are_texts(values: list[bytes | None]) -> None:
    array = pa.array(values, pa.binary())
    assert are_texts(array).tolist() == list(map(is_text, values))
    assert are_texts(array[1:]).tolist() == list(map(is_text, values[1:]))


def test_every_row_of_up_to_three_kinds_of_bytes() -> None:
    """Beside each other, so that what one value ends with could go on in the next."""
    values = [bytes(chosen) for size in range(4) for chosen in itertools.product(KINDS, repeat=size)]
    assert are_texts(pa.array(values, pa.binary())).tolist() == list(map(is_text, values))
