"""The line of ours in an error of Spark."""

import pytest
from pyspark.errors import PySparkException


def advice_in(error: Exception) -> str:
    """What a Spark error says in our words: the line that Spark puts its own words before, with no frames around it."""
    text = str(error).split("JVM stacktrace:")[0].split("SQLSTATE:")[0]
    assert "Traceback" not in text
    assert 'File "' not in text
    line = text.rstrip().splitlines()[-1]
    return line[line.index("rmqstore.errors.") :]


def advice_of(action) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return advice_in(caught.value)
