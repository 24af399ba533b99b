"""The options of mutual TLS on a replication link, which two commands have."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from rmqstore.config import HaTls

_Command = TypeVar("_Command", bound=Callable[..., Any])
_FILES = {
    "ha_cert": "TLS between rmqstore stores: the certificate of this side, PEM.",
    "ha_key": "The private key of --ha-cert, PEM, without a passphrase.",
    "ha_ca": "The authority (PEM) that must have signed the other side's certificate.",
}


def ha_tls_options(command: _Command) -> _Command:
    """The command with --ha-cert, --ha-key and --ha-ca."""
    for name, words in reversed(_FILES.items()):
        command = click.option(_option(name), metavar="FILE", type=click.Path(), help=words)(command)
    return command


def ha_tls(given: Mapping[str, Any]) -> HaTls | None:
    """The three files; None where none is given.  Raises UsageError where one is missing."""
    missing = [_option(name) for name in _FILES if given[name] is None]
    if len(missing) == len(_FILES):
        return None
    if missing:
        raise click.UsageError(f"--ha-cert, --ha-key and --ha-ca: give all three; {' and '.join(missing)} missing")
    return HaTls(cert_file=given["ha_cert"], key_file=given["ha_key"], ca_file=given["ha_ca"])


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
