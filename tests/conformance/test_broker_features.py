"""The broker's storage features against real brokers of 5: what one side left half way goes on at the other.

Every message is followed through its whole life: who got it, how often, when, with which content, and how it ended.
Needs the oracle and the broker (`make conformance`).
"""

import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from rmqstore.config import StoreConfig
from rmqstore.formats import names
from tests.conformance.broker import RELEASES_OF_5, Rocketmq, broker
from tests.conformance.brokers_turn import Theirs, broker_settings, is_consumers, is_near, tables_of
from tests.conformance.handover import (
    CHECKED,
    CHECKS_MAX,
    FAR_LEVEL,
    GROUPS,
    LATER,
    LEVELS,
    ORDERS,
    QUEUES,
    RETRIES_MAX,
    Book,
    Ours,
    begin,
)
from tests.conformance.replicas import Clusters

EMBEDDED = StoreConfig.embedded(delay_levels=LEVELS, **CHECKED)
BROKER = StoreConfig.broker(delay_levels=LEVELS, **CHECKED)


@pytest.mark.parametrize("rocketmq", RELEASES_OF_5, ids=lambda rocketmq: rocketmq.release)
@pytest.mark.parametrize(
    ("config", "is_closed", "how"),
    [(BROKER, True, signal.SIGKILL), (EMBEDDED, False, signal.SIGTERM)],
    ids=["closed by us, killed there", "left open by us, stopped there"],
)
def test_a_store_goes_to_a_broker_and_back(
    config: StoreConfig, is_closed: bool, how: signal.Signals, rocketmq: Rocketmq, clusters: Clusters, tmp_path: Path
) -> None:
    """Delays, transactions, retry chains and offsets that one side left half way are taken up by the other."""
    book, path = Book(), tmp_path / "store"
    ours = begin(path, config, book)
    tables = tables_of(ours)
    left = path if is_closed else _copy(path, tmp_path / "left")
    book.again = Counter() if is_closed else ours.delivered_again()
    ours.store.close()
    assert bool(book.again) != is_closed

    named = clusters(rocketmq).name_server
    with broker(tmp_path / "broker", left, named, broker_settings(config), rocketmq) as (running, client):
        theirs = Theirs(running, client, book)
        theirs.compare_tables(tables)
        theirs.start_clients()
        theirs.finish_what_is_due()
        book.judge("at the broker", is_near)
        theirs.begin_new()
        offsets = theirs.end(how, left)
        settings = StoreConfig.from_broker_conf(str(running.conf), **CHECKED)
    assert book.problems == []

    ours = Ours(left, settings, book, _now_ms())
    try:
        again = ours.delivered_again()
        assert how == signal.SIGKILL or not again
        book.again += again
        _finish_here(ours, offsets)
    finally:
        ours.store.close()
    book.judge("at the end")
    assert book.problems == []


def _finish_here(ours: Ours, offsets: dict[str, dict[int, int]]) -> None:
    """Has everything come that is due: the near first, nothing of the far a moment before its time, then that too."""
    book = ours.book
    assert {name: one for name, one in ours.committed().items() if is_consumers(name)} == offsets
    assert ours.store.health().warnings == ()
    for _ in range(200):
        ours.run(100)
        for topic in QUEUES:
            ours.consume(topic)
    assert book.missing(is_near) == []
    far = [sent.due_ms for sent in book.sent.values() if sent.level == FAR_LEVEL and sent.is_wanted]
    assert len(book.missing()) == len(far)
    ours.run_at(min(far) - 1)
    ours.consume(LATER)
    assert len(book.missing()) == len(far)
    ours.run_at(max(far))
    ours.consume(LATER)
    assert ours.store.transactions.pending() == []
    last = Counter(got.key for got in book.got if got.key in book.dead() and got.times == RETRIES_MAX)
    assert Counter(message.keys for message in ours.messages(names.DLQ_PREFIX + GROUPS[ORDERS])) == last
    assert last.keys() == book.dead()
    given_up = ours.messages(names.TRANSACTION_CHECK_TOPIC)
    assert sorted(message.keys for message in given_up) == sorted(book.given_up())
    assert {book.asked[key] for key in book.given_up()} == {CHECKS_MAX}


def _copy(store: Path, to: Path) -> Path:
    """The files as they are now, as after a kill; with their holes."""
    subprocess.run(["cp", "-r", "--sparse=always", str(store), str(to)], check=True)
    return to


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
