"""Failures of a table's library, told in one line that holds the cause."""

import socket

import pytest
from pyarrow import fs as pa_fs

from rmqstore.lake import Consent, TableFailed
from rmqstore.lake.delta import DeltaSink
from rmqstore.lake.sink import told


def refusing_address() -> str:
    """Of this host, where nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{one.getsockname()[1]}"


def test_an_object_store_that_refuses_is_told_with_the_cause() -> None:
    options = {
        "AWS_ENDPOINT_URL": refusing_address(), "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true", "max_retries": "0", "retry_timeout": "1s",
    }  # fmt: skip
    table = DeltaSink("s3://bucket/orders", pa_fs.LocalFileSystem(), options, None, Consent())
    with pytest.raises(TableFailed) as caught:
        table.look()
    line = str(caught.value)
    assert line.startswith("s3://bucket/orders: OSError: ")
    assert "Generic S3 error: Error performing GET http://127.0.0.1:" in line
    assert "Connection refused" in line
    assert not any(sign in line for sign in ("\x1b", "[31m", "↳", "\n"))
    assert line.endswith("; repair that and run it again: it continues from the table's offsets")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no reason is given"),
        ("\n  \n", "no reason is given"),
        ("outer", "outer"),
        ("outer.\n  what somebody else printed\n", "outer"),
        ("outer:\n\nCaused by:\n    0: middle\n    1: inner.\n", "outer: middle: inner"),
        ("outer\n  ↳ middle\n   ↳ middle\n    ↳ inner", "outer: middle: inner"),
        ("outer\nCaused by: inner\n[SQL: select]", "outer: inner"),
    ],
)
def test_the_lines_of_causes_are_taken_and_no_others(text: str, said: str) -> None:
    with pytest.raises(TableFailed) as caught, told("t"):
        raise ValueError(text)
    assert caught.value.reason == f"ValueError: {said}"


def test_an_error_that_was_raised_from_another_names_it() -> None:
    with pytest.raises(TableFailed) as caught, told("t"):
        raise ValueError("outer") from OSError("in\x1b[1mner\nmore")
    assert caught.value.reason == "ValueError: outer: inner"
    with pytest.raises(TableFailed) as caught, told("t"):
        raise ValueError("outer (inner)") from OSError("inner")
    assert caught.value.reason == "ValueError: outer (inner)"
