"""Options by which commands choose messages of several topics: names and patterns, times, tags, keys."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from rmqstore import Rejected
from rmqstore.cli.choices import chosen_keys, chosen_tags
from rmqstore.cli.output import whole_text
from rmqstore.core.arguments import moment_ms
from rmqstore.snapshot.search.meant_topics import MeantTopics
from rmqstore.snapshot.search.window import Window

Command = TypeVar("Command", bound=Callable[..., Any])


class Moment(NamedTuple):
    """A time as it was written, and what it means now, in ms."""

    said: str
    at_ms: int


def chosen_moment(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Moment | None:
    """The callback of --since and --until."""
    if text is None:
        return None
    try:
        return Moment(text.strip(), moment_ms(whole_text(_ctx, _param, text) or "", time.time_ns() // 1_000_000))
    except Rejected as mistake:
        raise click.BadParameter(str(mistake)) from None


def message_options(command: Command) -> Command:
    """Adds --topic, --include-system-topics, --tags, --key, --since, --until and --born."""
    options = (
        click.option(
            "--topic", "topics", multiple=True, callback=whole_texts, metavar="NAME",
            help="Only this topic, or those of a pattern such as 'orders*'; repeatable.  By default all but "
                "RocketMQ's own; `query --key` searches these, too.",
        ),
        click.option(
            "--include-system-topics", is_flag=True,
            help="Include RocketMQ's own topics: retries, dead letters, delayed messages.  A topic such as '%DLQ%*' "
                "needs no such option.",
        ),
        click.option("--tags", callback=chosen_tags, help='Only these tags: "paid", "paid || shipped".'),
        click.option("--key", callback=chosen_keys, help='Only messages with this key or message id; "a || b".'),
        click.option(
            "--since", callback=chosen_moment, metavar="TIME",
            help="Stored at this time or later: 2h, yesterday, ISO 8601 with a zone, or milliseconds.",
        ),
        click.option("--until", callback=chosen_moment, metavar="TIME", help="Stored before this time."),
        click.option("--born", is_flag=True, help="--since and --until mean the time when a message was sent."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def meant_topics(topics: Sequence[str], include_system_topics: bool) -> MeantTopics:
    """The topics of --topic.  Raises click.BadParameter."""
    try:
        return MeantTopics.of(topics, with_system_topics=include_system_topics)
    except Rejected as mistake:
        raise click.BadParameter(str(mistake), param_hint="--topic") from None


def meant_window(since: Moment | None, until: Moment | None, born: bool) -> Window:
    """The times of --since and --until.  Raises click.UsageError."""
    if born and since is None and until is None:
        raise click.UsageError("--born changes the meaning of --since and --until: give one of them")
    try:
        return Window(
            None if since is None else since.at_ms, None if until is None else until.at_ms,
            "bornTimestamp" if born else "storeTimestamp",
        )  # fmt: skip
    except Rejected as mistake:
        raise click.UsageError(f"--since and --until: {mistake}") from None


def whole_texts(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """The callback of an option that is a text and may come again."""
    return tuple(whole_text(ctx, param, text) or "" for text in given)
