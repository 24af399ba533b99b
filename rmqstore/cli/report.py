"""`rmqstore report`: a store's figures as one HTML file."""

import time
from typing import Any

import click
from rich.progress import TaskID

from rmqstore import __version__
from rmqstore.cli.inspection.document import store_document
from rmqstore.cli.message_output import is_terminal
from rmqstore.cli.output import byte_size, given_paths, printable, progress_bar, store_arguments, whole_text
from rmqstore.config import wrong_hours
from rmqstore.engine.log.retention.plan import RetentionPolicy
from rmqstore.report import Figures, Wishes, cards_of, collect, output_path, page_of, replace_output
from rmqstore.snapshot.opening import look_at
from rmqstore.snapshot.reader import SnapshotReader

_HOUR = 3_600_000
_STANDARD_OUTPUT = ("-", "/dev/stdout")


def _hours(ctx: click.Context, param: click.Parameter, text: str) -> str:
    mistakes = wrong_hours("hours", text)
    if mistakes:
        raise click.BadParameter(mistakes[0].removeprefix("hours="))
    return whole_text(ctx, param, text) or text


def _file(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    if not text:
        raise click.BadParameter("is empty; name a file, or - for standard output")
    return text


_EXAMPLE = """\b
Example:
  rmqstore report /data/rocketmq/store -o report.html
"""


@click.command(epilog=_EXAMPLE, short_help="Write one HTML page that shows a store.")
@store_arguments
@click.option(
    "-o", "--output", metavar="FILE", required=True, callback=_file,
    help="The file to write or replace; - is standard output.",
)  # fmt: skip
@click.option("--title", callback=whole_text, help="The title of the page; by default the names of the brokers.")
@click.option(
    "--top", type=click.IntRange(1, 50), default=10, show_default=True, metavar="N",
    help="The number of topics with a separate line in the traffic plot.",
)  # fmt: skip
@click.option("--no-traffic", is_flag=True, help="Do not read all messages: leave out traffic over time and sizes.")
@click.option("--no-verify", is_flag=True, help="Do not check the store for damage; the check reads the whole store.")
@click.option(
    "--file-reserved-hours", type=click.IntRange(1, 24 * 3650), default=72, show_default=True, metavar="HOURS",
    help="The broker's fileReservedTime, for the forecast of expiry.",
)  # fmt: skip
@click.option(
    "--delete-when", default="04", show_default=True, metavar="HOURS", callback=_hours,
    help="The broker's deleteWhen: hours of the day, separated by ;.",
)  # fmt: skip
def report(stores: tuple[str, ...], output: str, title: str | None, delete_when: str, **given: Any) -> None:
    """Write one HTML file that shows a store: traffic, sizes, lag, what waits, transactions, disk, damage.

    The file needs nothing else and loads nothing, so it can be mailed. Times in it are UTC. All messages are read once
    for traffic and sizes, and once more to check them; of a very large store leave out what takes too long.

    \b
    rmqstore report /data/rocketmq/store -o report.html
    rmqstore report /data/a /data/b -o shop.html --title "Shop, before the move"
    """
    policy = RetentionPolicy(reserved_ms=given["file_reserved_hours"] * _HOUR, delete_when=delete_when)
    snapshot = look_at(given_paths(stores))
    held = [path for store in snapshot.stores for path in (store.path, *store.extra_logs)]
    path = None if output in _STANDARD_OUTPUT else output_path(output, held)  # refused before anything takes long
    if path is None and is_terminal():
        raise click.UsageError(
            "-o -: standard output is a terminal, which cannot show the page; name a file, or redirect it with > or |"
        )
    wishes = Wishes(
        title or "RocketMQ store of " + ", ".join(store.broker_name for store in snapshot.stores),
        time.time_ns() // 1_000_000, f"rmqstore {__version__}", top=given["top"],
        reads_traffic=not given["no_traffic"], verifies=not given["no_verify"], policy=policy,
    )  # fmt: skip
    figures = _collected(snapshot, wishes)
    page = page_of(figures)
    if path is None:
        click.echo(page, nl=False)
    else:
        replace_output(path, page)
    for each in figures.missing:
        click.echo(printable(f"{each.broker}: {each.part} could not be read: {each.reason}"), err=True)
    said = f"{byte_size(len(page))}, {_summary(figures)}"
    click.echo(said if path is None else f"{printable(path)}: {said}", err=path is None)


def _collected(snapshot: SnapshotReader, wishes: Wishes) -> Figures:
    """The figures, with a bar for each long part."""
    documents = [store_document(store) for store in snapshot.stores]
    total = sum(store.log_end - store.log_start for store in snapshot.stores)
    with progress_bar() as bar:
        tasks: dict[str, TaskID] = {}

        def tell(what: str, done: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.advance(tasks[what], done)

        return collect(snapshot, documents, wishes, tell)


def _summary(figures: Figures) -> str:
    said = [f"{card.shown} {card.label}" for card in cards_of(figures) if card.name in ("messages", "damage")]
    return ", ".join(said)
