"""`rmqstore replicate`: a running cluster's stores, kept up as replicas that Spark and everybody else can read."""

import json
import ssl
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self, get_args

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from rmqstore.cli.output import (
    byte_size,
    counted,
    debug_option,
    escaped,
    iso,
    moment_of,
    one_line,
    printable,
    utc,
    wrapped,
)
from rmqstore.cli.signals import until_signalled
from rmqstore.cli.tls_options import ha_tls, ha_tls_options
from rmqstore.errors import Rejected
from rmqstore.remoting.client import Access
from rmqstore.remoting.signing import Credentials
from rmqstore.replication.following.connection import LinkTls
from rmqstore.replication.following.group import ReplicaGroup, chosen_masters, named_broker
from rmqstore.replication.following.masters import BareMaster, Broker, KnownMaster
from rmqstore.replication.following.preparation import From, obstacles
from rmqstore.replication.following.replica import Replica, realign
from rmqstore.replication.following.state import ReplicaState

_FAILED = 1
_RATE_WINDOW_S = 10.0
_SHOW_S = 1.0


@click.command()
@click.option("--namesrv", metavar="HOST:PORT", help="A name server: all masters of its cluster, a directory each.")
@click.option(
    "--master", metavar="HOST:PORT", help="One master, by its listen port (10911): its replica is DIR itself."
)
@click.option("--ha", metavar="HOST:PORT", help="A store of ours that is a master, by its replication port (10912).")
@click.option(
    "--log-file-size",
    type=click.IntRange(4096),
    default=64 * 1024 * 1024,
    show_default=True,
    metavar="BYTES",
    help="With --ha: the size of the master's commitlog files.",
)
@ha_tls_options
@click.option(
    "--ha-name", metavar="NAME", help="With --ha-cert: the host name in the master's certificate, if not that of --ha."
)
@click.option("--to", "target", metavar="DIR", required=True, type=click.Path(), help="Where the replicas are.")
@click.option("--cluster", metavar="NAME", help="Which cluster, where the name server knows several.")
@click.option(
    "--from",
    "start",
    type=click.Choice(get_args(From)),
    default="earliest",
    show_default=True,
    help="Where a new replica begins: the oldest message, the newest file, or a copied store that stands in DIR.",
)
@click.option("--once", is_flag=True, help="Catch up with what the master has now, then stop.")
@click.option("--check", is_flag=True, help="Only say what would be replicated, and what stands in the way.")
@click.option(
    "--realign", is_flag=True, help="Say what would be cut off a replica whose master has another log; --yes cuts it."
)
@click.option("--yes", is_flag=True, help="With --realign: cut it off.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line a second instead of a table.")
@click.option("--access-key", envvar="RMQSTORE_ACCESS_KEY", help="For brokers with access control.")
@click.option("--secret-key", envvar="RMQSTORE_SECRET_KEY", help="Better by the variable RMQSTORE_SECRET_KEY.")
@click.option("--tls", is_flag=True, help="Ask brokers and name servers inside TLS.")
@click.option("--tls-ca", metavar="FILE", help="The certificates that brokers' own are held against.")
@click.option("--tls-insecure", is_flag=True, help="Take any certificate.")
@click.option("--file-reserved-hours", type=click.IntRange(0), metavar="HOURS", help="Delete log files that are older.")
@debug_option
def replicate(target: str, start: From, as_json: bool, **given: Any) -> None:
    """Follow the masters of a running RocketMQ cluster as their slaves do, and keep a store of each in DIR.

    Each is a store that Spark reads and streams from, a moment behind its master. The brokers are not changed, and no
    consumer group is made. Ctrl-C ends it cleanly; started again, it goes on where it ended.
    """
    access = Access(credentials=_credentials(given), tls=_tls(given))
    places = _places(target, access, given)
    if given["check"]:
        _check(places)
    elif given["realign"]:
        _realign(places, is_agreed=given["yes"])
    else:
        _follow(places, start, as_json, given)


class _Place(NamedTuple):
    """A master, and the directory of its replica."""

    master: KnownMaster
    path: str


def _places(target: str, access: Access, given: Mapping[str, Any]) -> dict[str, _Place]:
    """The masters by name.  Raises UsageError unless they are named in one way."""
    if sum(given[name] is not None for name in ("namesrv", "master", "ha")) != 1:
        raise click.UsageError("give --namesrv for a cluster, --master for one broker, or --ha for a store of ours")
    link_tls = _link_tls(given)
    if given["namesrv"] is not None:
        found = chosen_masters(given["namesrv"], given["cluster"], access)
        return {
            one.broker_name: _Place(named_broker(one, given["namesrv"], access), str(Path(target, one.broker_name)))
            for one in found
        }
    if given["ha"] is not None:
        return {given["ha"]: _Place(BareMaster(given["ha"], given["log_file_size"], tls=link_tls), target)}
    broker = Broker(given["master"], access)
    return {broker.settings().broker_name: _Place(broker, target)}


def _follow(places: Mapping[str, _Place], start: From, as_json: bool, given: Mapping[str, Any]) -> None:
    kept: dict[str, Any] = {}
    if given["file_reserved_hours"] is not None:
        kept = {"retention": True, "file_reserved_hours": given["file_reserved_hours"]}
    with ExitStack() as opened, until_signalled() as is_stopping:
        replicas = {
            name: opened.enter_context(Replica(place.path, place.master, start=start, settings=kept))
            for name, place in places.items()
        }
        group = ReplicaGroup(replicas)
        with _Screen(as_json) as screen:
            group.run(screen.show, is_stopping, once=given["once"])
    for name, failure in group.failures.items():
        click.echo(f"{printable(name)}: {one_line(failure)}", err=True)
    if group.failures:
        raise SystemExit(_FAILED)


def _check(places: Mapping[str, _Place]) -> None:
    """Shows what would be replicated, and what stands in the way."""
    is_fine = True
    for name, (master, path) in places.items():
        present = master.present()
        what = "a store of ours"
        if present is not None:
            what = f"RocketMQ {present.version}, {byte_size(present.log_end - present.log_start)} of log"
        click.echo(f"{printable(name)}: {printable(what)} at {master.address} -> {path}")
        for obstacle in obstacles(master.settings(), present, path, master.link_tls):
            is_fine = False
            click.echo(wrapped("  ", obstacle))
    if not is_fine:
        raise SystemExit(_FAILED)
    click.echo("nothing stands in the way")


def _realign(places: Mapping[str, _Place], *, is_agreed: bool) -> None:
    for name, (master, path) in places.items():
        found = realign(path, master, may_cut=is_agreed)
        if not found.cut_bytes:
            click.echo(f"{printable(name)}: the replica is a part of its master's log, nothing is to be cut")
            continue
        what = f"{counted(found.record_count, 'record')}, {byte_size(found.cut_bytes)}, from offset {found.offset} on"
        click.echo(f"{printable(name)}: {what}: {'cut off' if is_agreed else 'would be cut off with --yes'}")


def _credentials(given: Mapping[str, Any]) -> Credentials | None:
    access_key, secret_key = given["access_key"], given["secret_key"]
    if (access_key is None) != (secret_key is None):
        raise click.UsageError("--access-key and --secret-key belong together")
    return None if access_key is None else Credentials(access_key, secret_key)


def _link_tls(given: Mapping[str, Any]) -> LinkTls | None:
    files = ha_tls(given)
    if files is None and given["ha_name"] is not None:
        raise click.UsageError("--ha-name goes with --ha-cert, --ha-key and --ha-ca")
    if files is None:
        return None
    if given["ha"] is None:
        raise click.UsageError("--ha-cert goes with --ha: RocketMQ's own brokers have no TLS on their replication port")
    return LinkTls(files, given["ha_name"] or "")


def _tls(given: Mapping[str, Any]) -> ssl.SSLContext | None:
    authority, is_insecure = given["tls_ca"], given["tls_insecure"]
    if not (given["tls"] or authority or is_insecure):
        return None
    try:
        context = ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise Rejected(f"--tls-ca {authority}: {error.strerror or error}") from None
    if is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class _Rate:
    """Bytes a second over the last few seconds."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []

    def of(self, now_s: float, log_end: int) -> float:
        self._seen = [*((when, end) for when, end in self._seen if now_s - when < _RATE_WINDOW_S), (now_s, log_end)]
        (first_s, first), (last_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0


class _Screen:
    """The progress: a table on a terminal, a JSON line a second where that is asked for, and one line at the end."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._rates: dict[str, _Rate] = {}
        self._shown_s = 0.0
        self._last: dict[str, ReplicaState] = {}
        console = Console(stderr=True)
        self._live = Live(console=console, transient=True, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None and not self._as_json:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        for name, state in self._last.items():
            self._say(name, state)

    def show(self, states: dict[str, ReplicaState]) -> None:
        """Shows the states, once a second at the most."""
        self._last = states
        now_s = time.monotonic()
        rates = {name: self._rates.setdefault(name, _Rate()).of(now_s, state.log_end) for name, state in states.items()}
        if now_s - self._shown_s < _SHOW_S:
            return
        self._shown_s = now_s
        if self._as_json:
            for name, state in states.items():
                self._say(name, state, rates[name])
        elif self._live is not None:
            self._live.update(_table(states, rates), refresh=True)

    def _say(self, name: str, state: ReplicaState, rate: float | None = None) -> None:
        if self._as_json:
            click.echo(escaped(json.dumps(_document(name, state, rate))))
        else:
            behind = "" if state.behind_bytes is None else f", {byte_size(state.behind_bytes)} behind"
            newest = f", newest message {utc(state.newest_ms)}" if state.newest_ms else ""
            size = byte_size(state.log_end - state.log_start)
            click.echo(f"{printable(name)}: {size} of log{behind}{newest}")


def _document(name: str, state: ReplicaState, rate: float | None) -> dict[str, Any]:
    return {
        "broker": name,
        "phase": state.phase,
        "logStart": state.log_start,
        "logEnd": state.log_end,
        "masterEnd": state.master_end,
        "behindBytes": state.behind_bytes,
        "bytesPerSecond": None if rate is None else round(rate),
        "newestStoreTimestamp": iso(moment_of(state.newest_ms)),
        "error": state.error,
    }


def _table(states: Mapping[str, ReplicaState], rates: Mapping[str, float]) -> Table:
    table = Table(box=None, pad_edge=False)
    for head in ("broker", "state"):
        table.add_column(head, no_wrap=True)
    for head in ("log", "behind", "rate"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("newest, or why it waits", overflow="ellipsis", no_wrap=True)
    for name, state in states.items():
        behind = "" if state.behind_bytes is None else byte_size(state.behind_bytes)
        size = byte_size(state.log_end - state.log_start)
        words = printable(state.error) or utc(state.newest_ms)
        table.add_row(printable(name), state.phase, size, behind, f"{byte_size(int(rates[name]))}/s", words)
    return table
