"""The command line as a test calls it, and the golden stores."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rmqstore.cli import main
from tests.golden.conftest import store_of

__all__ = ["Run", "document_of", "last_line", "run", "store_of"]

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Runs `rmqstore ARGUMENTS`; what it prints on standard output and on standard error stays apart."""

    def invoke(*arguments: object) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return invoke


def last_line(text: str) -> str:
    """The last line that is not empty."""
    return text.strip().splitlines()[-1]


def document_of(result: Result) -> Any:
    """The JSON document that a command printed; it must have ended well."""
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)
