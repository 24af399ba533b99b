"""The browser of the browser tests, one for all, and figures of stores."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import rmqstore
from rmqstore.cli.inspection.document import store_document
from rmqstore.report import Figures, Wishes, collect
from tests.golden.conftest import store_of
from tests.report.chromium import Chromium
from tests.report.stores import HARMS, NAMES, hostile_store

__all__ = ["browser", "figures_of", "hostile_figures", "store_of"]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """One headless browser; each test opens pages of its own in it."""
    with Chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


def figures_of(store: Path, **wishes: object) -> Figures:
    """The figures of a store; `wishes` as those of a report."""
    snapshot = rmqstore.open_snapshot(store)
    given = {"title": "A store", "now_ms": 1_800_000_000_000, "made_by": "a test"} | wishes
    documents = [store_document(one) for one in snapshot.stores]
    return collect(snapshot, documents, Wishes(**given), lambda _what, _done: None)  # type: ignore[arg-type]


def hostile_figures(tmp_path: Path) -> Figures:
    """Names that no queue may have as well: as lines of the traffic, as title, broker and path."""
    figures = figures_of(hostile_store(tmp_path), title="".join(HARMS))
    assert figures.traffic is not None
    line = figures.traffic.lines[0]
    traffic = replace(figures.traffic, lines=tuple(line._replace(topic=name) for name in NAMES))
    stores = [replace(store, broker="".join(NAMES), path=f"/{HARMS[0]}") for store in figures.stores]
    return replace(figures, traffic=traffic, stores=tuple(stores))
