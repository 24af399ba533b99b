"""Odd requests put to RocketMQ's own stores and to ours: the same statuses, the same bytes, the same places in queues.

`odd_requests` is the table, `odd_differences` names every difference.  Needs the oracle (`make conformance`).
"""

import pytest

from rmqstore.core.message import GetStatus, PutStatus
from rmqstore.engine.broker.delay_delivery import SAVE_INTERVAL_S, DelayDelivery
from tests.conformance.java import jvm
from tests.conformance.odd_answers import answers_of, difference
from tests.conformance.odd_differences import NEW, NEWEST, OLD, accepted
from tests.conformance.odd_requests import EVERY
from tests.conformance.odd_stores import JavaStore, OurStore
from tests.conformance.workload import Json

pytestmark = pytest.mark.java

STORES = ("main", "light", "old")
# Nothing that a request says brings these about: they need a disk, a lock or a peer that is slow or gone, files of a
# queue that go while they are read, the timer wheel; a read of no queue makes it, in RocketMQ.
OF_THE_SURROUNDINGS = {
    "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE", "CREATE_MAPPED_FILE_FAILED",
    "OS_PAGE_CACHE_BUSY", "UNKNOWN_ERROR", "IN_SYNC_REPLICAS_NOT_ENOUGH", "PUT_TO_REMOTE_BROKER_FAIL",
    "WHEEL_TIMER_FLOW_CONTROL", "WHEEL_TIMER_MSG_ILLEGAL", "OFFSET_FOUND_NULL",
    "NO_MATCHED_LOGIC_QUEUE",
}  # fmt: skip


@pytest.fixture(scope="module", params=[NEW, OLD, pytest.param(NEWEST, marks=pytest.mark.deep)])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Json, Json]:
    """A release, our answers, and RocketMQ's, of one JVM."""
    version: str = request.param
    root = tmp_path_factory.mktemp(f"odd-{version}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DelayDelivery, "step", lambda _: SAVE_INTERVAL_S)  # RocketMQ's store delivers nothing either
        mine = answers_of(version, *(OurStore(version, root / f"ours-{name}", name) for name in STORES))
    with jvm(version) as oracle:
        theirs = answers_of(version, *(JavaStore(oracle, version, root / f"javas-{name}", name) for name in STORES))
    return version, mine, theirs


def test_odd_requests_are_answered_as_by_rocketmq_but_for_what_is_accepted(both: tuple[str, Json, Json]) -> None:
    """A difference that nobody accepted fails this, and one that was accepted and is none any more."""
    version, mine, theirs = both
    assert mine.keys() == theirs.keys()
    if version == NEWEST:  # it cleans queues in a thread of its own, now or later
        mine = {name: answer for name, answer in mine.items() if not name.startswith("after expiry")}
    found = {name: words for name in mine if (words := difference(mine[name], theirs[name]))}
    wanted = accepted(version)
    new = [f"{name!r}: {words}" for name, words in found.items() if wanted.get(name) != words]
    gone = [f"{name!r}: no longer {words}" for name, words in wanted.items() if found.get(name) != words]
    assert not new + gone, "\n".join([f"compared with {version}", *new, *gone])


def test_every_status_that_a_request_can_bring_about_is_among_the_answers(both: tuple[str, Json, Json]) -> None:
    _, mine, theirs = both
    said = {answer["status"] for answers in (mine, theirs) for answer in answers.values()}
    named = {status.name for kind in (PutStatus, GetStatus) for status in kind} - OF_THE_SURROUNDINGS
    absent = {"WHEEL_TIMER_NOT_ENABLE", "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"} if both[0] == OLD else set()
    assert named - said == absent


def test_the_table_is_large_and_its_names_are_its_own() -> None:
    names = [odd.name for odd in EVERY]
    assert len(names) == len(set(names))
    assert min(sum(version in odd.versions for odd in EVERY) for version in (NEWEST, NEW, OLD)) >= 200
