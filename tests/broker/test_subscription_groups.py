"""The table of consumer groups: defaults, changes, and that nothing of a broker's table is lost."""

import errno
from dataclasses import replace

import pytest

from rmqstore.clock import ManualClock
from rmqstore.engine.broker.subscription_groups import SubscriptionGroups
from rmqstore.errors import Rejected
from rmqstore.files.filesystem import FileSystem
from rmqstore.formats.broker_json import SubscriptionGroup
from tests.broker.scenes import disk_of
from tests.crash.disks import FailingDisk, MemoryDisk
from tests.golden.cases import OPENED_CASES, topic_prefix

PATH = "/store/config/subscriptionGroup.json"


def groups_on(fs: FileSystem) -> SubscriptionGroups:
    groups = SubscriptionGroups(fs, "/store", ManualClock())
    assert groups.load() == []
    return groups


def test_an_unknown_group_has_the_defaults_and_is_not_saved() -> None:
    disk = MemoryDisk()
    groups = groups_on(disk)
    assert groups.find("g") == SubscriptionGroup("g", True, True, 16, 1)
    assert groups.all() == {}
    assert disk.image() == {}


def test_a_group_is_durable_when_it_was_put() -> None:
    disk = MemoryDisk()
    groups = groups_on(disk)
    group = SubscriptionGroup("g", consume_enable=False, retry_max_times=-1, retry_queue_nums=0)
    groups.put(group)
    groups.put(SubscriptionGroup("h", retry_max_times=3))
    again = groups_on(disk.crash("lost"))
    assert again.all() == groups.all() == {"g": group, "h": SubscriptionGroup("h", retry_max_times=3)}
    assert b'"counter":2' in disk.image()[PATH]


@pytest.mark.parametrize("case", OPENED_CASES)
def test_a_change_of_a_brokers_table_changes_nothing_else(case: str) -> None:
    disk = disk_of(case)
    text = disk.image()[PATH].decode()
    groups = groups_on(disk)
    slow = f"g_slow_{topic_prefix(case)}"
    assert (groups.find(slow).retry_max_times, groups.find(slow).retry_queue_nums) == (5, 2)
    groups.put(SubscriptionGroup(slow, retry_max_times=9, retry_queue_nums=2))
    head, _, table = text.partition('"subscriptionGroupTable"')
    _, _, written = disk.image()[PATH].decode().partition('"subscriptionGroupTable"')
    start = table.index(f'"groupName":"{slow}"')
    assert written == table[:start] + table[start:].replace('"retryMaxTimes":5', '"retryMaxTimes":9', 1)
    assert ('"forbiddenTable":{}' in head) == ('"forbiddenTable":{}' in disk.image()[PATH].decode())
    assert disk.image()[f"{PATH}.bak"].decode() == text


def test_unknown_members_survive() -> None:
    disk = MemoryDisk()
    disk.put_file(PATH, b'{"forbiddenTable":{"g":{"t":3}},"subscriptionGroupTable":{"g":{"brokerId":7,"new":[1]}}}')
    groups = groups_on(disk)
    groups.put(SubscriptionGroup("g", retry_max_times=2))
    text = disk.image()[PATH].decode()
    for part in ('"forbiddenTable":{\n\t\t"g":{\n\t\t\t"t":3', '"brokerId":7,', '"new":[1],', '"retryMaxTimes":2,'):
        assert part in text
    groups.put(replace(groups.find("g"), unknown_fields={"brokerId": 8}))
    assert '"brokerId":8,' in disk.image()[PATH].decode()


def test_a_broken_pair_is_an_empty_table_and_a_warning() -> None:
    disk = MemoryDisk()
    disk.put_file(PATH, b"\0" * 50)
    (warning,) = SubscriptionGroups(disk, "/store", ManualClock()).load()
    assert "an empty table" in warning


def test_a_change_that_cannot_be_saved_is_not_made() -> None:
    disk = MemoryDisk()
    groups = groups_on(FailingDisk(disk, 4, errno.EIO))
    with pytest.raises(OSError, match="Input/output"):
        groups.put(SubscriptionGroup("g", retry_max_times=2))
    assert groups.find("g").retry_max_times == 16
    groups.put(SubscriptionGroup("g", retry_max_times=2))
    assert groups_on(disk.crash("lost")).find("g").retry_max_times == 2


@pytest.mark.parametrize(
    "group",
    [SubscriptionGroup(""), SubscriptionGroup("a b"), SubscriptionGroup("x" * 249), SubscriptionGroup("a@b"),
     SubscriptionGroup("g", retry_queue_nums=-1), SubscriptionGroup("g", retry_max_times=2**31)],
)  # fmt: skip
def test_a_group_that_no_broker_could_hold_is_refused(group: SubscriptionGroup) -> None:
    disk = MemoryDisk()
    with pytest.raises(Rejected):
        groups_on(disk).put(group)
    assert disk.image() == {}
