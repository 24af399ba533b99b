"""`rmqstore replicate`: a running cluster's stores, kept up as replicas that Spark and everybody else can read."""

import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import click
from click.core import ParameterSource

from rmqstore.cli.metrics.scrapes import CONTENT_TYPE, METRICS_PATH, Scrapes, metrics_place
from rmqstore.cli.output import byte_size, counted, debug_option, mistakes_in_command, one_line, printable, wrapped
from rmqstore.cli.replication.replica_metrics import metrics_text
from rmqstore.cli.replication.replica_progress import ProgressScreen
from rmqstore.cli.replication.tls_options import ha_tls, ha_tls_options
from rmqstore.cli.signals import until_signalled
from rmqstore.core.locks import Bell
from rmqstore.directory.config_files import masters_levels
from rmqstore.errors import Rejected
from rmqstore.files.reading import LOCAL
from rmqstore.formats.delay_levels import parse_levels
from rmqstore.replica.checking.obstacles import Prospect, look, together
from rmqstore.replica.checking.ports import require_broker, require_name_server, require_replication_port
from rmqstore.replica.following.backoff import Backoff
from rmqstore.replica.following.connection import LinkTls
from rmqstore.replica.following.group import Open, ReplicaGroup, chosen_masters, named_broker
from rmqstore.replica.following.masters import BareMaster, Broker, KnownMaster
from rmqstore.replica.following.preparation import From
from rmqstore.replica.following.replica import Replica, realign
from rmqstore.replica.following.state import ReplicaState
from rmqstore.replica.remoting.client import Access, Refused, Unreachable, host_and_port
from rmqstore.replica.remoting.cluster import ListedMaster
from rmqstore.replica.remoting.signing import Credentials

_FAILED = 1

_EXAMPLE = """\b
Examples:
  rmqstore replicate --namesrv 127.0.0.1:9876 --to /data/rmq
  rmqstore replicate --namesrv 127.0.0.1:9876 --to /data/rmq --check
"""


def _delay_levels(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    try:
        parse_levels(text or "")
    except ValueError as wrong:
        raise click.BadParameter(str(wrong)) from None
    return text


@click.command(epilog=_EXAMPLE, short_help="Replicate a running cluster into local stores.")
@click.option(
    "--namesrv",
    metavar="HOST:PORT",
    help="A name server: replicate all masters of its cluster, each into its own directory.",
)
@click.option(
    "--master", metavar="HOST:PORT", help="One master, by its listen port (10911); DIR itself is its replica."
)
@click.option("--ha", metavar="HOST:PORT", help="An rmqstore master, by its replication port (10912).")
@click.option(
    "--log-file-size",
    type=click.IntRange(4096),
    default=64 * 1024 * 1024,
    show_default=True,
    metavar="BYTES",
    help="With --ha: the size of the master's commitlog files.",
)
@click.option(
    "--delay-levels",
    metavar="TEXT",
    callback=_delay_levels,
    help='With --ha: the delay levels of the master, such as "1s 5s 10s", if they are not RocketMQ\'s defaults.',
)
@ha_tls_options
@click.option(
    "--ha-name",
    metavar="NAME",
    help="With --ha-cert: the host name in the master's certificate, if it is not the one in --ha.",
)
@click.option("--to", "target", metavar="DIR", required=True, type=click.Path(), help="The directory of the replicas.")
@click.option("--cluster", metavar="NAME", help="The cluster, if the name server knows several.")
@click.option(
    "--from",
    "start",
    type=click.Choice(get_args(From)),
    default="earliest",
    show_default=True,
    help="Where a new replica begins: at the oldest message, at the newest file, or after a copied store in DIR.",
)
@click.option("--once", is_flag=True, help="Stop when the replica has everything that the master has now.")
@click.option("--check", is_flag=True, help="Only show what would be replicated, and what prevents it.")
@click.option(
    "--realign",
    is_flag=True,
    help="Show what has to be cut off a replica whose log differs from the master's; --yes cuts it.",
)
@click.option("--yes", is_flag=True, help="With --realign: cut the log of the replica.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line per second instead of a table.")
@click.option("--access-key", envvar="RMQSTORE_ACCESS_KEY", help="The access key, for brokers with access control.")
@click.option(
    "--secret-key", envvar="RMQSTORE_SECRET_KEY", help="The secret key; the variable RMQSTORE_SECRET_KEY is safer."
)
@click.option("--tls", is_flag=True, help="Use TLS to brokers and name servers.")
@click.option("--tls-ca", metavar="FILE", help="The authorities (PEM) that must have signed the brokers' certificates.")
@click.option("--tls-insecure", is_flag=True, help="Accept any certificate.")
@click.option(
    "--file-reserved-hours",
    type=click.IntRange(0),
    metavar="HOURS",
    help="Delete log files that were last written before this age.",
)
@click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    help="Answer GET /metrics at this address, in the OpenMetrics format, for Prometheus.",
)
@click.option(
    "--open-to-network",
    is_flag=True,
    help="With --metrics: allow an address other than loopback; requests need no password.",
)
@debug_option
def replicate(target: str, start: From, as_json: bool, **given: Any) -> None:
    """Follow the masters of a running RocketMQ cluster as their slaves do, and keep a store of each in DIR.

    Each is a store that Spark reads and streams from, a moment behind its master. The brokers are not changed, and no
    consumer group is made. Ctrl-C ends it cleanly; started again, it goes on where it ended.
    """
    _require_effect(given)
    access = Access(credentials=_credentials(given), tls=_tls(given))
    is_for_good = not (given["check"] or given["realign"] or given["once"])
    places, more = (_awaited if is_for_good else _places)(target, access, given)
    if given["ha"] is not None and _lacks_levels(target, given["delay_levels"]):
        click.echo(wrapped("", _LEVELS_UNKNOWN), err=True)
    if given["check"]:
        _check(places, start)
    elif given["realign"]:
        _realign(places, is_agreed=given["yes"])
    else:
        kept: dict[str, Any] = {}
        if given["file_reserved_hours"] is not None:
            kept = {"retention": True, "file_reserved_hours": given["file_reserved_hours"]}

        def opens(places: Mapping[str, _Place]) -> dict[str, Open]:
            return {
                name: partial(Replica, place.path, place.master, start=start, settings=kept)
                for name, place in places.items()
            }

        _follow(opens(places), None if more is None else lambda: opens(more()), as_json, given)


# Options that have no effect without another one, or beside it.
_BELONGS = (("yes", "realign"), ("open_to_network", "metrics"), ("cluster", "namesrv"), ("delay_levels", "ha"))
_NOT_WITH_HA = ("tls", "tls_ca", "tls_insecure", "access_key", "secret_key")


_LEVELS_UNKNOWN = (
    "the delay levels of the master are not known: name them with --delay-levels; without it RocketMQ's defaults say "
    "when delayed messages are due"
)


def _lacks_levels(target: str, levels: str | None) -> bool:
    return levels is None and not masters_levels(LOCAL, target)


def _require_effect(given: Mapping[str, Any]) -> None:
    """Raises UsageError for an option that would do nothing: whoever gave it thinks that it does."""
    for name, owner in _BELONGS:
        if given[name] and not given[owner]:
            raise click.UsageError(f"{_option(name)} needs {_option(owner)}")
    for name in _NOT_WITH_HA:
        source = click.get_current_context().get_parameter_source(name)
        if given["ha"] is not None and source is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{_option(name)} is for brokers: with --ha use --ha-cert for TLS")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


class _Place(NamedTuple):
    """A master, and the directory of its replica."""

    master: KnownMaster
    path: str


class _Places(NamedTuple):
    """The masters by name; `more` says those that there are at a later time, where there may be others then."""

    present: dict[str, _Place]
    more: "Callable[[], dict[str, _Place]] | None" = None


def _places(target: str, access: Access, given: Mapping[str, Any]) -> _Places:
    """Raises UsageError unless the masters are named in one way."""
    if sum(given[name] is not None for name in ("namesrv", "master", "ha")) != 1:
        raise click.UsageError("give --namesrv for a cluster, --master for one broker, or --ha for an rmqstore master")
    with mistakes_in_command():
        for address in (given["namesrv"] or given["master"] or given["ha"]).split(";"):
            if given["namesrv"] is None or address.strip():
                host_and_port(address)
    link_tls = _link_tls(given)
    if given["namesrv"] is not None:
        _require_name_servers(given["namesrv"], access)
        first = chosen_masters(given["namesrv"], given["cluster"], access)

        def placed(found: Sequence[ListedMaster]) -> dict[str, _Place]:
            return {
                one.broker_name: _Place(named_broker(one, given["namesrv"], access), str(Path(target, one.broker_name)))
                for one in found
            }

        return _Places(placed(first), lambda: placed(chosen_masters(given["namesrv"], first[0].cluster, access)))
    if given["ha"] is not None:
        require_replication_port(given["ha"], access)
        bare = BareMaster(given["ha"], given["log_file_size"], tls=link_tls, delay_levels=given["delay_levels"])
        return _Places({given["ha"]: _Place(bare, target)})
    require_broker(given["master"], access)
    broker = Broker(given["master"], access)
    return _Places({broker.settings().broker_name: _Place(broker, target)})


def _awaited(target: str, access: Access, given: Mapping[str, Any]) -> _Places:
    """As `_places`, once a name server, or the one master, answers; until then it says once that it waits."""
    backoff, bell, is_told = Backoff(), Bell(), False
    with until_signalled(bell.ring) as is_over:
        while not is_over():
            try:
                return _places(target, access, given)
            except Unreachable as silence:
                if not is_told:
                    click.echo(f"waiting: {one_line(silence)}", err=True)
                is_told = True
                bell.wait(backoff.wait_s())
    raise SystemExit(0)


def _require_name_servers(addresses: str, access: Access) -> None:
    """Looks at them up to the first that answers, as whoever asks them does."""
    for address in filter(None, map(str.strip, addresses.split(";"))):
        try:
            return require_name_server(address, access)
        except Unreachable:  # told by the question itself, where no other answers
            continue
    return None


def _follow(
    opens: Mapping[str, Open], more: Callable[[], Mapping[str, Open]] | None, as_json: bool, given: Mapping[str, Any]
) -> None:
    with ExitStack() as opened:
        show = _shown_to_scrapers(opened, list(opens), given)
        is_stopping = opened.enter_context(until_signalled())
        group = opened.enter_context(ReplicaGroup(opens, more, is_stopping))
        show(group.states)
        with ProgressScreen(as_json) as screen:
            group.run(screen.show, is_stopping, once=given["once"])
    for name, failure in group.failures.items():
        click.echo(f"{printable(name)}: {one_line(failure)}", err=True)
    if group.failures:
        raise SystemExit(_FAILED)


_States = Callable[[], Mapping[str, ReplicaState]]


def _shown_to_scrapers(opened: ExitStack, names: Sequence[str], given: Mapping[str, Any]) -> Callable[[_States], None]:
    """Opens the port of the metrics, if one is asked for, before any replica is opened; the answer is called with what
    gives the states, once there are any."""
    source: list[_States] = [lambda: {name: ReplicaState() for name in names}]
    if given["metrics"] is not None:
        with mistakes_in_command():
            place = metrics_place(given["metrics"], is_open_to_network=given["open_to_network"])
        scrapes = opened.enter_context(Scrapes(place, CONTENT_TYPE, lambda: metrics_text(source[-1]())))
        click.echo(f"metrics: http://{scrapes.address}{METRICS_PATH}", err=True)
    return source.append


def _check(places: Mapping[str, _Place], start: From) -> None:
    """Shows what would be replicated, and what stands in the way."""
    seen: list[Prospect] = []
    is_fine = True
    for name, (master, path) in places.items():
        what, obstacles = "a store of ours", list[str]()
        try:
            settings, present = master.settings(), master.present()
            if present is not None:
                what = f"RocketMQ {present.version}, {byte_size(present.log_end - present.log_start)} of log"
            seen.append(look(settings, present, path, start, master.link_tls))
            obstacles = seen[-1].obstacles
        except (Unreachable, Refused) as failure:
            what, obstacles = "a master that does not respond", [f"the listen port does not answer: {failure}"]
        click.echo(f"{printable(name)}: {printable(what)} at {master.address} -> {printable(path)}")
        for obstacle in obstacles:
            is_fine = False
            click.echo(wrapped("  ", obstacle))
    if needed := together(seen):
        is_fine = False
        click.echo(wrapped("", needed))
    if not is_fine:
        raise SystemExit(_FAILED)
    click.echo("nothing prevents the replication")


def _realign(places: Mapping[str, _Place], *, is_agreed: bool) -> None:
    for name, (master, path) in places.items():
        found = realign(path, master, may_cut=is_agreed)
        if not found.cut_bytes:
            click.echo(f"{printable(name)}: the replica's log is a part of its master's log, so nothing has to be cut")
            continue
        what = f"{counted(found.record_count, 'record')}, {byte_size(found.cut_bytes)}, from offset {found.offset} on"
        click.echo(f"{printable(name)}: {what}: {'cut off' if is_agreed else 'would be cut off with --yes'}")


def _credentials(given: Mapping[str, Any]) -> Credentials | None:
    access_key, secret_key = given["access_key"], given["secret_key"]
    if (access_key is None) != (secret_key is None):
        raise click.UsageError("--access-key and --secret-key: give both")
    return None if access_key is None else Credentials(access_key, secret_key)


def _link_tls(given: Mapping[str, Any]) -> LinkTls | None:
    files = ha_tls(given)
    if files is None and given["ha_name"] is not None:
        raise click.UsageError("--ha-name needs --ha-cert, --ha-key and --ha-ca")
    if files is None:
        return None
    if given["ha"] is None:
        raise click.UsageError("--ha-cert needs --ha: RocketMQ's brokers have no TLS on their replication port")
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
