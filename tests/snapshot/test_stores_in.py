"""A directory of stores: which of what stands in it is read, under which name, and what is told of the rest."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqstore import NotAStore, Rejected, StoreConfig, StoresIn, UnsupportedLayout, open_snapshot, open_store
from rmqstore.formats import dledger
from rmqstore.snapshot import require_stores
from tests.snapshot.growing_store import BrokerStore, broker_store


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two stores, as `rmqstore replicate` leaves them."""
    broker_store(tmp_path / "rmq", "broker-a", 6)
    broker_store(tmp_path / "rmq", "broker-b", 4)
    return tmp_path / "rmq"


def rows_by_broker(directory: Path, **how: Any) -> dict[str, int]:
    rows = open_snapshot(StoresIn(str(directory))).scan(["T"], columns=["brokerName"], **how).read_all()
    return {row["values"]: row["counts"] for row in rows.column("brokerName").value_counts().to_pylist()}


def tell_name(root: Path, broker: str) -> None:
    (root / "config").mkdir(exist_ok=True)
    table = {"topicConfigTable": {f"rmq_sys_SYNC_BROKER_MEMBER_{broker}": {}}}
    (root / "config" / "topics.json").write_text(json.dumps(table))


def test_each_store_is_read_under_the_name_of_its_directory(directory: Path) -> None:
    for mode in ("auto", "queue", "commitlog"):
        assert rows_by_broker(directory, scan_mode=mode) == {"broker-a": 6, "broker-b": 4}
    tell_name(directory / "broker-a", "broker-a")
    assert rows_by_broker(directory) == {"broker-a": 6, "broker-b": 4}


def test_what_is_no_store_yet_is_passed_over(directory: Path) -> None:
    (directory / "README").write_text("replicas")
    (directory / "just-made").mkdir()
    (directory / "opening").mkdir()
    (directory / "opening" / "lock").touch()
    (directory / "lost+found").mkdir()
    (directory / "lost+found" / "#12").mkdir()
    shutil.copytree(directory / "broker-a", directory / ".broker-a.old")
    assert rows_by_broker(directory) == {"broker-a": 6, "broker-b": 4}


def test_a_store_that_an_engine_has_just_made_has_no_rows_yet(directory: Path) -> None:
    with open_store(directory / "broker-c", StoreConfig.embedded(broker_name="broker-c")):
        assert rows_by_broker(directory) == {"broker-a": 6, "broker-b": 4}
        found = open_snapshot(StoresIn(str(directory)))
        assert [store.broker_name for store in found.stores] == ["broker-a", "broker-b", "broker-c"]


def put_something_else(directory: Path) -> None:
    (directory / "logs").mkdir()
    (directory / "logs" / "broker.log").touch()


def link_to_nowhere(directory: Path) -> None:
    (directory / "broker-c").symlink_to(directory / "not-mounted")


def nest_a_store(directory: Path) -> None:
    (directory / "broker-c").mkdir()
    (directory / "broker-b").rename(directory / "broker-c" / "store")


def link_twice(directory: Path) -> None:
    (directory / "broker-c").symlink_to(directory / "broker-a")


def copy_under_another_name(directory: Path) -> None:
    shutil.copytree(directory / "broker-a", directory / "broker-c")


def tell_another_name(directory: Path) -> None:
    tell_name(directory / "broker-b", "broker-x")


def name_without_text(directory: Path) -> None:
    os.rename(directory / "broker-b", os.fsencode(directory) + b"/\xff")


@pytest.mark.parametrize(
    ("harm", "kind", "words"),
    [
        (put_something_else, NotAStore, r"rmq/logs: holds no RocketMQ store.*name that begins with a dot"),
        (link_to_nowhere, NotAStore, "broker-c: is a link that leads nowhere"),
        (nest_a_store, NotAStore, r"rmq/broker-c: .*did you mean .*/rmq/broker-c/store\?"),
        (link_twice, Rejected, "broker-c is the same directory as .*broker-a, so that each message would come twice"),
        (copy_under_another_name, Rejected, "broker-a and .*broker-c hold the same log.*twice: move it away"),
        (tell_another_name, Rejected, "broker-b is a store of the broker 'broker-x'"),
        (name_without_text, Rejected, "its name is no text"),
    ],
)
def test_what_would_be_missing_or_come_twice_is_told(
    directory: Path, harm: Callable[[Path], None], kind: type[Exception], words: str
) -> None:
    harm(directory)
    with pytest.raises(kind, match=words):
        open_snapshot(StoresIn(str(directory)))


def test_a_copy_whose_first_files_are_gone_is_told_as_well(directory: Path) -> None:
    shutil.rmtree(directory)
    store = broker_store(directory, "broker-a", 100)
    shutil.copytree(directory / "broker-a", directory / "broker-c")
    store.delete_log_file(0)
    with pytest.raises(Rejected, match="hold the same log"):
        open_snapshot(StoresIn(str(directory)))


def test_stores_that_begin_alike_by_their_sizes_alone_are_two(tmp_path: Path) -> None:
    for broker in ("broker-a", "broker-b"):
        store = BrokerStore(tmp_path, broker)
        store.add("T", 0, body=b"the same")
        store.publish()
    assert rows_by_broker(tmp_path) == {"broker-a": 1, "broker-b": 1}


def test_a_dledger_group_among_them_is_told(directory: Path) -> None:
    data = directory / "broker-c" / "dledger-n0" / "data"
    data.mkdir(parents=True)
    (data / f"{0:020d}").write_bytes(bytes(dledger.ENTRY_HEAD.size))
    with pytest.raises(UnsupportedLayout, match="dledger-n0"):
        open_snapshot(StoresIn(str(directory)))


def test_a_directory_that_is_none_of_stores_says_so(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for path, words in (
        (tmp_path / "absent", "does not exist here; give the directory in which the stores are"),
        (tmp_path / "file", "is not a directory"),
        (tmp_path / "empty", "holds no store; is its file system mounted"),
        (directory / "broker-a", "is a store itself: give it as the path"),
    ):
        for ask in (open_snapshot, require_stores):
            with pytest.raises(NotAStore, match=words):
                ask(StoresIn(str(path)))


def test_a_store_that_may_not_be_read_is_told(directory: Path) -> None:
    """It would be missing without a word."""
    if os.geteuid() == 0:
        (directory / "broker-c").symlink_to(directory / "broker-c")  # what root may not read either
    else:
        (directory / "broker-b").chmod(0)
    with pytest.raises(NotAStore, match=r"broker-[bc]: (cannot be read|is a link that leads nowhere)"):
        open_snapshot(StoresIn(str(directory)))


def test_it_is_a_value_that_travels(directory: Path) -> None:
    given = StoresIn(str(directory))
    assert pickle.loads(pickle.dumps(given)) == given
