"""Store configuration: presets, Apache's names and units, all mistakes in one message."""

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from rmqstore.config import StoreConfig
from rmqstore.engine.log.retention.plan import RetentionPolicy
from rmqstore.errors import Rejected


def test_the_broker_preset_has_the_sizes_of_a_default_broker() -> None:
    config = StoreConfig.broker()
    sizes = (config.log_file_size, config.queue_file_size, config.index_slot_count, config.index_item_count)
    assert sizes == (1_073_741_824, 6_000_000, 5_000_000, 20_000_000)


def test_delay_levels_are_rocketmqs() -> None:
    levels = StoreConfig().delay_ms()
    assert len(levels) == 18
    assert (levels[0], levels[4], levels[13], levels[17]) == (1000, 60_000, 600_000, 7_200_000)


def test_a_brokers_configuration_file(tmp_path: object) -> None:
    text = """
# a comment
brokerClusterName = DefaultCluster
brokerName=broker\\u002Da
brokerIP1 = 203.0.113.9
listenPort : 10921
flushDiskType = SYNC_FLUSH
mapedFileSizeCommitLog=134217728
mappedFileSizeConsumeQueue=6000001
messageDelayLevel = 1s \\
    10s 1h
maxMessageSize 65536
namesrvAddr=ns:9876
storePathCommitLog=/a/log,/b/log
transientStorePoolSize=3
"""
    config = StoreConfig.from_broker_conf("broker.conf", lambda path: text)
    assert (config.flush, config.log_file_size, config.queue_file_size) == ("SYNC", 134_217_728, 6_000_020)
    assert (config.store_host, config.broker_name) == ("203.0.113.9:10921", "broker-a")
    assert config.log_paths == ("/a/log", "/b/log")
    assert config.delay_ms() == (1000, 10_000, 3_600_000)
    assert (config.message_size_max, config.pool_buffers) == (65_536, 0)  # the pool is off unless it is enabled
    with_pool = StoreConfig.from_broker_conf("c", lambda path: text + "transientStorePoolEnable=true\n")
    assert with_pool.pool_buffers == 3


@pytest.mark.parametrize(
    ("text", "percents"),
    [
        ("diskMaxUsedSpaceRatio=9\ndiskSpaceCleanForciblyRatio=29\ndiskSpaceWarningLevelRatio=34", (10, 30, 35)),
        ("diskMaxUsedSpaceRatio=10\ndiskSpaceCleanForciblyRatio=30\ndiskSpaceWarningLevelRatio=35", (10, 30, 35)),
        ("diskMaxUsedSpaceRatio=95\ndiskSpaceCleanForciblyRatio=85\ndiskSpaceWarningLevelRatio=90", (95, 85, 90)),
        ("diskMaxUsedSpaceRatio=96\ndiskSpaceCleanForciblyRatio=900\ndiskSpaceWarningLevelRatio=91", (95, 85, 90)),
        ("diskMaxUsedSpaceRatio=-5", (10, 85, 90)),
    ],
)
def test_shares_of_the_disk_have_java_s_bounds_in_a_brokers_file(text: str, percents: tuple[int, int, int]) -> None:
    config = StoreConfig.from_broker_conf("broker.conf", lambda _: text)
    assert (config.disk_max_used_percent, config.disk_clean_percent, config.disk_warning_percent) == percents
    policy = RetentionPolicy.of(config)
    assert (policy.max_used_percent, policy.clean_percent, policy.warning_percent) == percents


@pytest.mark.parametrize("name", ["max_used_percent", "clean_percent", "warning_percent"])
@pytest.mark.parametrize(("percent", "is_taken"), [(-1, False), (0, True), (100, True), (101, False)])
def test_a_store_and_its_retention_refuse_the_same_percents(name: str, percent: int, is_taken: bool) -> None:
    for made, own in ((StoreConfig, f"disk_{name}"), (RetentionPolicy, name)):
        with nullcontext() if is_taken else pytest.raises(Rejected, match=f"^{own}={percent}: a number of percent$"):
            made(**{own: percent})


@pytest.mark.parametrize(
    ("hours", "are_hours"),
    [
        ("", True),
        ("4", True),
        ("04; 23;;007", True),
        ("24", False),
        ("-1", False),
        ("four", False),
        ("1" * 5000, False),
    ],
)
def test_a_store_and_its_retention_refuse_the_same_hours(hours: str, are_hours: bool) -> None:
    for made in (StoreConfig, RetentionPolicy):
        with nullcontext() if are_hours else pytest.raises(Rejected, match=r"^delete_when=.*hours from 0 to 23"):
            made(delete_when=hours)


def test_all_mistakes_are_told_together() -> None:
    with pytest.raises(Rejected) as caught:
        StoreConfig(flush="MAYBE", queue_file_size=21, delay_levels="1x", store_host="nowhere")
    for part in ("flush='MAYBE'", "queue_file_size=21", "'1x'", "nowhere"):
        assert part in str(caught.value)


def test_a_value_that_cannot_be_read_names_apaches_word() -> None:
    with pytest.raises(Rejected, match="flushDiskType='LATER'"):
        StoreConfig.from_broker_conf("broker.conf", lambda path: "flushDiskType=LATER\n")


def test_a_configuration_that_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, tmp_path / "nothing", Path("/dev/zero")):
        with pytest.raises(Rejected, match=r"not an ordinary file|no such file"):
            StoreConfig.from_broker_conf(str(path))
    (tmp_path / "large").write_bytes(b"#" * 2_000_000)
    with pytest.raises(Rejected, match="more than 1048576 bytes"):
        StoreConfig.from_broker_conf(str(tmp_path / "large"))
