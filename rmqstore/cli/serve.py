"""`rmqstore serve`: a store whose log slaves may fetch, before they attach to their own master."""

import time
from typing import Any

import click

from rmqstore.cli.output import byte_size, debug_option, printable
from rmqstore.cli.signals import until_signalled
from rmqstore.cli.tls_options import ha_tls, ha_tls_options
from rmqstore.config import HaConfig
from rmqstore.replication.following.donor import Donor

_POLL_S = 0.2


@click.command()
@click.argument("store", metavar="STORE", type=click.Path())
@click.option("--ha", default="127.0.0.1:10912", show_default=True, metavar="HOST:PORT", help="Where slaves attach.")
@ha_tls_options
@click.option(
    "--open-to-network",
    is_flag=True,
    help="Listen on another address than loopback without TLS: there are no passwords.",
)
@debug_option
def serve(store: str, ha: str, open_to_network: bool, **given: Any) -> None:
    """Let slaves of RocketMQ fetch the whole log of a replica or a backup.

    A new slave that attaches to its master gets the newest log file only (apache/rocketmq 9580). Attached here first,
    it gets all; then give it its master's address, and it goes on from there. Nothing else uses the store meanwhile,
    and Ctrl-C ends it.
    """
    config = HaConfig(listen=ha, is_open_to_network=open_to_network, whole_history=True, tls=ha_tls(given))
    with until_signalled() as is_stopping, Donor(store, config) as donor:
        click.echo(f"{printable(donor.path)}: {byte_size(donor.log_end - donor.log_start)} of log at {donor.address}")
        seen: dict[str, int] = {}
        while not is_stopping():
            time.sleep(_POLL_S)
            for slave, end in donor.slaves().items():
                if end >= donor.log_end > seen.get(slave, -1):
                    click.echo(f"{slave} has all of it")
                seen[slave] = end
