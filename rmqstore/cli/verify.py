"""`rmqstore verify`: what is damaged in a store, with file, offset and reason."""

from collections.abc import Iterator
from typing import Any

import click
from rich.cells import cell_len

from rmqstore.cli.decoding.options import body_bytes_max, body_limit_option
from rmqstore.cli.output import (
    byte_size,
    counted,
    given_paths,
    print_json,
    printable,
    progress_bar,
    store_arguments,
    width,
    wrapped,
)
from rmqstore.snapshot.finding import DAMAGE, Finding
from rmqstore.snapshot.opening import look_at
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.snapshot.verify import verify as verify_store

_EXAMPLE = """\b
Examples:
  rmqstore verify /data/rocketmq/store
  rmqstore verify /data/rmq/broker-a --json | jq .damageCount
"""


@click.command(epilog=_EXAMPLE, short_help="Check a whole store for damage.")
@store_arguments
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of lines.")
@body_limit_option
@click.option("--quiet", is_flag=True, help="Do not show notes; damage is always shown.")
@click.pass_context
def verify(ctx: click.Context, stores: tuple[str, ...], as_json: bool, quiet: bool) -> None:
    """Check records, queue entries, index items and small files against each other.

    Lists what is damaged, with file, byte position and reason; exit status 1 if anything is. Notes are what a healthy
    broker leaves: a tail that is not dispatched yet, files made in advance.
    """
    snapshot = look_at(given_paths(stores))
    documents: list[dict[str, Any]] = []
    damage_count = note_count = 0
    for store in snapshot.stores:
        if not as_json and len(snapshot.stores) > 1:
            click.echo(printable(store.path))
        counts = {True: 0, False: 0}
        listed: list[dict[str, Any]] = []
        for finding in _findings(store):
            is_damage = finding.severity == DAMAGE
            counts[is_damage] += 1
            if quiet and not is_damage:
                continue
            if as_json:
                listed.append(_as_json(finding))
            else:
                click.echo(_line(finding, store.path))
        documents.append(
            {
                "path": store.path, "brokerName": store.broker_name, "logBytes": store.log_end - store.log_start,
                "damageCount": counts[True], "noteCount": counts[False], "findings": listed,
            }
        )  # fmt: skip
        damage_count, note_count = damage_count + counts[True], note_count + counts[False]
    if as_json:
        print_json({"damageCount": damage_count, "noteCount": note_count, "stores": documents})
    else:
        size = byte_size(sum(store.log_end - store.log_start for store in snapshot.stores))
        summary = counted(damage_count, "damaged place") if damage_count else "no damage"
        click.echo(f"{summary}, {counted(note_count, 'note')}; {size} of commitlog checked")
    ctx.exit(1 if damage_count else 0)


def _findings(store: StoreExtent) -> Iterator[Finding]:
    """The findings of one store with a bar that shows how far the log is checked."""
    with progress_bar() as bar:
        task = bar.add_task("checking", total=store.log_end - store.log_start)

        def tell(done: int) -> None:
            bar.update(task, completed=done)

        yield from verify_store(store, tell, body_bytes_max=body_bytes_max())


def _as_json(finding: Finding) -> dict[str, Any]:
    document = {
        "severity": finding.severity, "path": finding.path, "position": finding.position, "reason": finding.reason,
    }  # fmt: skip
    if finding.message is not None:
        topic, queue_id, queue_offset, keys = finding.message
        document["message"] = {"topic": topic, "queueId": queue_id, "queueOffset": queue_offset, "keys": keys}
    return document


def _line(finding: Finding, root: str) -> str:
    """One line when it fits, else the reason below the place."""
    place = f"{finding.severity:6}  {printable(finding.path.removeprefix(root + '/'))} @ {finding.position}: "
    said = finding.reason if finding.message is None else f"{finding.reason} ({finding.message})"
    if cell_len(place) + cell_len(said) <= width():
        return place + printable(said)
    return f"{place.rstrip()}\n{wrapped(' ' * 8, printable(said))}"
