"""`rmqstore serve`: a store whose log slaves may fetch, before they attach to their own master."""

import time
from typing import Any

import click

from rmqstore.cli.output import byte_size, debug_option, mistakes_in_command, printable
from rmqstore.cli.replication.tls_options import ha_tls, ha_tls_options
from rmqstore.cli.signals import until_signalled
from rmqstore.config import HaConfig
from rmqstore.replica.following.donor import Donor
from rmqstore.replica.remoting.client import RemotingClient, host_and_port
from rmqstore.replica.remoting.cluster import attach_slave

_POLL_S = 0.2
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  nothing listens by it

_EXAMPLE = """\b
Example:
  rmqstore serve /data/rmq/broker-a --ha 10912
"""


@click.command(epilog=_EXAMPLE, short_help="Serve the log of a replica to RocketMQ's slaves.")
@click.argument("store", metavar="STORE", type=click.Path())
@click.option(
    "--ha",
    default="127.0.0.1:10912",
    show_default=True,
    metavar="HOST:PORT",
    help="The address to which slaves connect.",
)
@ha_tls_options
@click.option(
    "--open-to-network",
    is_flag=True,
    help="Allow an address other than loopback without TLS; slaves need no password.",
)
@click.option(
    "--slave",
    metavar="HOST:PORT",
    help="A slave of RocketMQ 5, by its listen port (10911): have it connect to this command.",
)
@click.option(
    "--then",
    metavar="HOST:PORT",
    help="With --slave: the replication port (10912) of its master, to which it connects afterwards.",
)
@debug_option
def serve(store: str, ha: str, open_to_network: bool, slave: str | None, then: str | None, **given: Any) -> None:
    """Let slaves of RocketMQ fetch the whole log of a replica or a backup.

    A new slave that attaches to its master gets the newest log file only (apache/rocketmq 9580). Attached here first,
    it gets all; then give it its master's address, and it goes on from there. Nothing else uses the store meanwhile,
    and Ctrl-C ends it.
    """
    if then is not None and slave is None:
        raise click.UsageError("--then needs --slave")
    with mistakes_in_command():
        config = HaConfig(listen=ha, is_open_to_network=open_to_network, whole_history=True, tls=ha_tls(given))
    with mistakes_in_command():
        config.place()
        for place in filter(None, (slave, then)):
            host_and_port(place)
    if slave is not None and config.place()[0] in _EVERYWHERE:
        raise click.UsageError("--slave: give --ha with the address by which the slave reaches this host")
    with until_signalled() as is_stopping, Donor(store, config) as donor:
        click.echo(f"{printable(donor.path)}: {byte_size(donor.log_end - donor.log_start)} of log at {donor.address}")
        if slave is not None:
            _send(slave, donor.address)
        seen: dict[str, int] = {}
        while not is_stopping():
            time.sleep(_POLL_S)
            for address, end in donor.slaves().items():
                if end >= donor.log_end > seen.get(address, -1):
                    click.echo(f"{address} has the whole log")
                    if slave is not None and then is not None:
                        _send(slave, then)
                seen[address] = end


def _send(slave: str, ha_address: str) -> None:
    """Has the slave go to that replication port."""
    with RemotingClient(slave) as client:
        attach_slave(client, ha_address)
    click.echo(f"{slave} is told to attach to {ha_address}")
