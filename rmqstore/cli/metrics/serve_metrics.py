"""`rmqstore serve-metrics`: the figures of stores for Prometheus."""

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import click

from rmqstore import NotAStore, Snapshot, StoresIn, open_snapshot
from rmqstore.cli.metrics.scrapes import CONTENT_TYPE, METRICS_PATH, Scrapes, metrics_place
from rmqstore.cli.metrics.store_metrics import ExtentFigures, PlaceFigures, figures_of, metrics_text
from rmqstore.cli.output import debug_option, mistakes_in_command, printable
from rmqstore.cli.signals import until_signalled
from rmqstore.directory.store_root import found_store
from rmqstore.errors import StoreError
from rmqstore.files.reading import canonical_path
from rmqstore.snapshot.store_paths import Paths
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.stats_text import metrics_core

# --- Places that are looked at for their figures: a store each, or a directory of stores; however often somebody
# asks.


def watched_paths(path: str) -> Paths:
    """A path as `open_snapshot` takes it: a directory in which stores are is StoresIn."""
    try:
        found_store(path, may_be_ledger=True)
    except NotAStore:
        with suppress(StoreError, OSError):
            open_snapshot(StoresIn(path))
            return StoresIn(path)
    return path


class Watched:
    """One place.  It may go away and come again: it is looked for at every look."""

    def __init__(self, path: str, series_max: int) -> None:
        """The first look, which has to find it.  Raises as `open_snapshot`."""
        self.path, self._series_max = canonical_path(path), series_max
        self._paths = watched_paths(path)
        self._figures: dict[int, tuple[StoreExtent, ExtentFigures]] = {}
        self._snapshot: Snapshot | None = open_snapshot(self._paths)
        self.failure: str | None = None

    def look(self) -> PlaceFigures:
        """The figures as they are now; those of before for a store that did not change."""
        began_s = time.monotonic()
        stores: tuple[ExtentFigures, ...] | None = None
        try:
            self._snapshot = open_snapshot(self._paths) if self._snapshot is None else self._snapshot.refresh()
            stores = tuple(map(self._figures_of, self._snapshot.stores))
            self._figures = {id(store): self._figures[id(store)] for store in self._snapshot.stores}
            self.failure = None
        except (StoreError, OSError) as error:
            self._snapshot, self.failure = None, str(error)
            self._figures.clear()
        return PlaceFigures(self.path, stores, _disk_of(self.path), time.monotonic() - began_s)

    def _figures_of(self, store: StoreExtent) -> ExtentFigures:
        """A store that is the same object is the same store: nothing in it is new, but what groups have consumed."""
        known = self._figures.get(id(store))
        fresh = figures_of(store, self._series_max) if known is None else known[1].with_lags_of(store, self._series_max)
        self._figures[id(store)] = store, fresh
        return fresh


def _disk_of(path: str) -> tuple[int, int] | None:
    with suppress(OSError):
        size, _, free = shutil.disk_usage(path)
        return size, free
    return None


class Looks:
    """The text of all places, made again once the last one is `every_s` old; any thread may ask.

    Whoever asks while a look is under way gets the text of before.
    """

    def __init__(self, places: Sequence[Watched], every_s: float, tell: Callable[[str], None]) -> None:
        """`tell` hears in a line of a place that goes away, and of one that is back."""
        self._places, self._every_s, self._tell = places, every_s, tell
        self._looking = threading.Lock()
        self._seen = [place.look() for place in places]
        self._looked_s = time.monotonic()

    def text(self) -> str:
        """The figures as OpenMetrics."""
        if time.monotonic() - self._looked_s >= self._every_s and self._looking.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._looking.release()
        return metrics_text(self._seen, time.time_ns() // 1_000_000)

    def _look(self) -> None:
        seen = []
        for place in self._places:
            before = place.failure
            seen.append(place.look())
            if place.failure is not None and before is None:
                self._tell(f"{place.path} is away: {place.failure}")
            elif before is not None and place.failure is None:
                self._tell(f"{place.path} is back")
        self._seen, self._looked_s = seen, time.monotonic()


# ---

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
