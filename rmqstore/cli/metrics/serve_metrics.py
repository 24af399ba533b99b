"""`rmqstore serve-metrics`: the figures of stores for Prometheus."""

import time

import click

from rmqstore.cli.metrics.scrapes import CONTENT_TYPE, METRICS_PATH, Scrapes, metrics_place
from rmqstore.cli.metrics.watch import Looks, Watched
from rmqstore.cli.output import debug_option, mistakes_in_command, printable
from rmqstore.cli.signals import until_signalled
from rmqstore.stats_text import metrics_core

_NAP_S = 0.2
_EXAMPLE = """\b
Examples:
  rmqstore serve-metrics /data/rocketmq/store
  rmqstore serve-metrics /data/rmq --listen 9097 --every 30
"""


@click.command("serve-metrics", epilog=_EXAMPLE, short_help="Answer GET /metrics of Prometheus.")
@click.argument("stores", metavar="STORE...", nargs=-1, required=True)
@click.option(
    "--listen", default="9096", show_default=True, metavar="[HOST:]PORT",
    help="Where GET /metrics is answered; loopback where only a port is given, 0 is any that is free.",
)  # fmt: skip
@click.option("--open-to-network", is_flag=True, help="Listen on another address than loopback; it asks nobody.")
@click.option(
    "--every", "every_s", type=click.FloatRange(0.1, 3600), default=10.0, show_default=True, metavar="SECONDS",
    help="Look at the stores again at the most so often, however often somebody asks.",
)  # fmt: skip
@click.option(
    "--series", "series_max", type=click.IntRange(1, 100_000), default=2000, show_default=True, metavar="N",
    help="The most queues, and the most groups, that have samples, of each store; the largest topics and lags first.",
)  # fmt: skip
@debug_option
def serve_metrics(stores: tuple[str, ...], listen: str, open_to_network: bool, every_s: float, series_max: int) -> None:
    """Answer GET /metrics with the figures of stores, in the format of OpenMetrics; for Prometheus.

    STORE is a store, a replica, or a directory of stores as `rmqstore replicate` makes it. Nothing is written there. A
    store that goes away has rmqstore_up 0 until it comes back. Ctrl-C or SIGTERM ends it.
    """
    with mistakes_in_command():
        place = metrics_place(listen, is_open_to_network=open_to_network, option="--listen")
    metrics_core()  # refused before anything is looked at
    with until_signalled() as is_over:
        looks = Looks(
            [Watched(store, series_max) for store in dict.fromkeys(stores)], every_s,
            lambda line: click.echo(printable(line), err=True),
        )  # fmt: skip
        with Scrapes(place, CONTENT_TYPE, looks.text, option="--listen") as scrapes:
            click.echo(f"metrics: http://{scrapes.address}{METRICS_PATH}", err=True)
            while not is_over():
                time.sleep(_NAP_S)
