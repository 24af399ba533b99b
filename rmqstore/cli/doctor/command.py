"""`rmqstore doctor`: facts of this machine and of stores, and what to do about each problem."""

from collections.abc import Iterable

import click

from rmqstore.cli.doctor.compiled_home import write_home
from rmqstore.cli.doctor.finding import Fact
from rmqstore.cli.doctor.machine import machine_facts
from rmqstore.cli.doctor.spark import spark_facts
from rmqstore.cli.doctor.stores import store_facts
from rmqstore.cli.doctor.trial import tried_facts
from rmqstore.cli.output import counted, debug_option, print_json, printable, wrapped
from rmqstore.errors import in_one_line

_EXAMPLE = """\b
Examples:
  rmqstore doctor
  rmqstore doctor /data/rocketmq/store --json
  rmqstore doctor --write-pyspark-zip ~/spark-compiled
"""
_MARKS = {"good": "  ", "odd": "? ", "broken": "! "}
_NAME_WIDTH = 15


@click.command("doctor", epilog=_EXAMPLE, short_help="Say what this machine lacks, and what to do about it.")
@click.argument("stores", metavar="[STORE]...", nargs=-1)
@click.option(
    "--try", "tries", is_flag=True,
    help="Try locks, maps, sparse files and syncs in a directory beside each STORE, which is removed again.",
)  # fmt: skip
@click.option(
    "--write-pyspark-zip", "home", metavar="DIR",
    help="Write DIR, a SPARK_HOME of links to the one that is installed, with a pyspark.zip whose modules are compiled;"
    " or that one itself.  Nothing else is looked at.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of lines.")
@debug_option
@click.pass_context
def doctor(ctx: click.Context, stores: tuple[str, ...], tries: bool, home: str | None, as_json: bool) -> None:
    """Look whether this machine can do what rmqstore asks of it, and what stands in the way.

    Versions, and whether Spark's fit together; memory, limits, the terminal; of each STORE its disk, who writes to it
    and its state. ? is a drawback, ! is broken: then the exit status is 1. Nothing is written to a STORE.
    """
    if tries and not stores:
        raise click.UsageError("--try belongs to a STORE: it is tried beside that")
    if home is not None and stores:
        raise click.UsageError("--write-pyspark-zip goes without a STORE")
    facts = list(write_home(home)) if home is not None else [*machine_facts(), *spark_facts()]
    for store in dict.fromkeys(stores):
        facts += store_facts(store)
        if tries:
            facts += tried_facts(store)
    broken = sum(fact.state == "broken" for fact in facts)
    if as_json:
        print_json({"isSound": not broken, "facts": [fact._asdict() for fact in facts]})
    else:
        _show(facts)
        odd = sum(fact.state == "odd" for fact in facts)
        said = f"{counted(broken, 'problem')}, {counted(odd, 'drawback')}"
        click.echo("all is well" if not broken and not odd else said)
    ctx.exit(1 if broken else 0)


def _show(facts: Iterable[Fact]) -> None:
    area = None
    for fact in facts:
        if fact.area != area:
            click.echo(printable(in_one_line(fact.area)))
            area = fact.area
        head = f"{_MARKS[fact.state]}{fact.name:{_NAME_WIDTH}} "
        click.echo(wrapped(head, in_one_line(fact.value)))
        if fact.advice:
            click.echo(wrapped(" " * len(head) + "-> ", in_one_line(fact.advice)))
