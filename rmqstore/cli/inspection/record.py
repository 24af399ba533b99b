"""One record of the commitlog, field by field."""

from typing import Any

import click

from rmqstore import StoredMessage
from rmqstore.arguments import I64_MAX
from rmqstore.cli.output import body_fields, body_text, iso, print_json, printable
from rmqstore.formats.message_id import offset_of_id

_RECORD_FIELDS = (
    "topic", "broker_name", "queue_id", "queue_offset", "tags", "keys", "body", "properties", "flag", "sys_flag",
    "born_timestamp", "store_timestamp", "born_host", "store_host", "msg_id", "offset_msg_id", "reconsume_times",
    "prepared_transaction_offset", "physical_offset", "store_size", "body_crc",
)  # fmt: skip


class RecordPlace(click.ParamType):  # type: ignore[type-arg]  # generic for type checkers only
    """Where a record begins, or its offset message id, which is longer than any offset."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value)
        if offset_of_id(text) is not None:
            return text
        if not (text.isascii() and text.isdigit()):
            self.fail(f"{text!r}: an offset of the commitlog, or an offset message id", param, ctx)
        if int(text) > I64_MAX:
            self.fail(f"{text}: beyond any commitlog, which ends before {I64_MAX}", param, ctx)
        return int(text)


def show_record(message: StoredMessage, as_json: bool) -> None:
    """Prints it."""
    values = {name: getattr(message, name) for name in _RECORD_FIELDS}
    if message.corrupt_reason is not None:
        values["corrupt_reason"] = message.corrupt_reason
    if as_json:
        body = body_fields(values.pop("body"))
        document = {_camel(name): value for name, value in values.items()}
        for name in ("bornTimestamp", "storeTimestamp"):
            document[name] = iso(document[name])
        print_json(document | body)
        return
    body_shown, properties = body_text(values.pop("body"), "\n  "), values.pop("properties")
    for name, value in values.items():
        shown = iso(value) if name.endswith("_timestamp") else value
        click.echo(f"{_camel(name):25}  {printable('' if shown is None else str(shown))}".rstrip())
    click.echo("properties")
    for name, value in properties.items():
        click.echo(printable(f"  {name:23}  {value}"))
    click.echo(f"body\n  {body_shown}")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
