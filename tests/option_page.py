"""docs/options.md, made of the tables in the code: `make options` writes it, tests/test_docs.py holds it to them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click

from rmqstore.cli import main
from spark_source import tables
from spark_source.options import reads as options
from spark_source.options import writes as sink_options
from spark_source.options.reads import BATCH_ONLY, STREAM_PARSERS
from spark_source.options.texts import READ, WRITE, OptionText

PAGE = Path(__file__).parents[1] / "docs" / "options.md"
_HEAD = """# All options

Made of the tables in the code by `make options`; do not edit it by hand.

Names of Spark options are taken in any case, and all are checked together; an unknown one is refused with the nearest
name.

"""
_READ_HEAD = """## Reading with Spark

`spark.read` takes those that are marked under *read*, `spark.readStream` those under *stream*, and `spark.read` of a
table on the side, `option("table", …)`, those under *table*.

More than a line on some of them: [time windows](spark.md#time-windows),
[limits of a trigger](spark.md#limits-of-a-trigger), [messages that are gone](spark.md#messages-that-are-gone),
[bodies that are JSON](spark.md#bodies-that-are-json), [in Avro and Protobuf](spark.md#bodies-in-avro-and-protobuf).

"""
_WRITE_HEAD = """## Writing with Spark

`df.write` and `df.writeStream`; the latter also takes Spark's own `checkpointLocation` and `queryName`.

"""
_CLI_HEAD = """## The command line

`STORE` is a store's directory. Commands that read take several, also as `NAME=PATH`, or the directory in which all are.

"""
# What a batch is known by; a stream's is by its checkpoint.
_ONE_BATCH = ("writerId", "batchId")


def page() -> str:
    """The whole page."""
    batch, stream = options.PARSERS, {**options.PARSERS, **STREAM_PARSERS}
    read = _table(
        READ,
        {
            "read": batch,
            "stream": [name for name in stream if name.lower() not in BATCH_ONLY],
            "table": [name for name in READ if name.lower() in {"table", *map(str.lower, tables.PARSERS)}],
        },
    )
    of_streams = [name for name in sink_options.PARSERS if name not in _ONE_BATCH]
    written = _table(WRITE, {"write": sink_options.PARSERS, "stream": of_streams})
    return "".join([_HEAD, _READ_HEAD, *read, "\n", _WRITE_HEAD, *written, "\n", _CLI_HEAD, *_commands()])


def _table(texts: Mapping[str, OptionText], takers: Mapping[str, Iterable[str]]) -> Iterator[str]:
    yield _row("option", *takers, "default", "")
    yield _row("---", *("---" for _ in takers), "---", "---")
    sets = [set(names) for names in takers.values()]
    for name, text in texts.items():
        marks = ["x" if name in names else "" for names in sets]
        yield _row(f"`{name}`", *marks, f"`{text.default}`" if text.default else "", text.meaning)


def _commands() -> Iterator[str]:
    yield _row("command", "option", "")
    yield _row("---", "---", "---")
    for name, command in sorted(main.commands.items()):
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                kind = "N" if isinstance(parameter.type, click.IntRange) else "TEXT"
                value = "" if parameter.is_flag else f" {parameter.metavar or kind}"
                yield _row(f"`{name}`", f"`{parameter.opts[0]}{value}`", parameter.help or "")


def _row(*cells: str) -> str:
    shown = (cell.replace("|", "\\|") for cell in cells)
    return re.sub(r"(?<=\|)  (?=\|)", " ", "| " + " | ".join(shown) + " |").rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
