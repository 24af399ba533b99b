"""Bytes to text as Java's `new String(bytes, UTF_8)` does it."""

import re

# An encoded surrogate (ED A0..BF xx) is one replacement character for Java, two or three for Python.
# ED is never a continuation byte, so each match begins a sequence.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()


def java_text(data: bytes) -> str:
    """UTF-8 `data` as text; never fails: each malformed sequence becomes one U+FFFD, counted as Java counts them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode(errors="replace")
