"""Options that choose messages, checked as they are given."""

import re
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from rmqstore import Rejected
from rmqstore.cli.output import printable, whole_text
from rmqstore.core.arguments import moment_ms
from rmqstore.formats.java_text import java_trim
from rmqstore.formats.wanted_words import key_words, tag_words
from rmqstore.snapshot.search.meant_topics import MeantTopics

Command = TypeVar("Command", bound=Callable[..., Any])

_NOW = "rmqstore.now"


def chosen_tags(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[str, ...]:
    """The callback of --tags; refuses an empty text, such as that of an unset shell variable."""
    if text is None:
        return ()
    try:
        return tag_words(_said(_ctx, _param, text))
    except Rejected as mistake:
        raise click.BadParameter(str(mistake)) from None


def chosen_keys(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[str, ...]:
    """The callback of --key; as chosen_tags."""
    if text is None:
        return ()
    try:
        return key_words(_said(_ctx, _param, text))
    except Rejected as mistake:
        raise click.BadParameter(str(mistake)) from None


def _said(ctx: click.Context, param: click.Parameter, text: str) -> str:
    if not java_trim(text):
        raise click.BadParameter("is empty; leave it out for all messages")
    return whole_text(ctx, param, text) or ""


def topic_name(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """The callback of an option that names a topic."""
    return None if text is None else _said_topic(ctx, param, text)


def topic_names(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> tuple[str, ...]:
    """The callback of a repeatable option that names topics; duplicates are removed."""
    return tuple(dict.fromkeys(_said_topic(ctx, param, text) for text in given))


def _said_topic(ctx: click.Context, param: click.Parameter, text: str) -> str:
    if not text.strip():
        raise click.BadParameter("is empty; `rmqstore inspect STORE` lists the topics")
    return whole_text(ctx, param, text) or ""


def topics_or_pattern(topics: Sequence[str], pattern: str | None, with_system_topics: bool) -> MeantTopics:
    """The topics of --topic, some of which may have * or ?, and of --pattern.  Raises click.UsageError for both."""
    if topics and pattern is not None:
        raise click.UsageError("--topic and --pattern: give only one of them")
    if pattern is not None:
        return MeantTopics(None, pattern, with_system_topics)
    return MeantTopics.of(topics, with_system_topics=with_system_topics)


def name_values(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The callback of a repeatable option NAME=VALUE."""
    found = []
    for text in given:
        name, sign, value = (whole_text(ctx, param, text) or "").partition("=")
        if not sign or not name:
            raise click.BadParameter(f"{printable(text)!r}: write NAME=VALUE")
        found.append((name, value))
    return tuple(found)


def regular_expression(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """The callback of an option that is a Python regular expression."""
    if text is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # a doubled bracket: allowed, and means what it says
            re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"{text!r}: {error}; it is a regular expression for the whole name") from None
    return whole_text(ctx, param, text)


def since_until(command: Command) -> Command:
    """Adds --since and --until, the parameters `since` and `until`: ms, or None."""
    command = click.option(
        "--until", callback=_moment, metavar="TIME", help="Only messages stored before this time; as --since."
    )(command)
    return click.option(
        "--since", callback=_moment, metavar="TIME",
        help="Only messages stored at this time or later: 2026-11-25T09:00Z, or 2h for two hours ago (s, m, h, d, w).",
    )(command)  # fmt: skip


def _moment(ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    try:  # one "now" for both
        return moment_ms(text, ctx.meta.setdefault(_NOW, time.time_ns() // 1_000_000))
    except Rejected as mistake:
        raise click.BadParameter(str(mistake)) from None
