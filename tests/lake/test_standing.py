"""Where a table stands, when others commit to it, roll it back, let what is old expire, or take it away."""

import datetime
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.snapshots import ancestors_of

from rmqstore.errors import Rejected
from rmqstore.lake import Committed, Consent, DataFile, Steps, Sync, SyncListener, SyncRequest, TableFailed
from rmqstore.lake import syncing as synced
from rmqstore.lake.delta import DeltaSink
from rmqstore.lake.sink import Overtaken
from tests.lake.conftest import put_into, stored
from tests.lake.tables import Lake

pytestmark = pytest.mark.stores


class Between:
    """A table with something done just before its n-th commit."""

    def __init__(self, sink: Any, action: Callable[[], object], commits: Sequence[int] = (1,)) -> None:
        self._sink, self._action, self._commits, self._count = sink, action, commits, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def append(self, files: Sequence[DataFile], offsets: Mapping[str, Any]) -> object:
        self._count += 1
        if self._count in self._commits:
            self._action()
        return self._sink.append(files, offsets)


def synced_with(lake: Lake, action: Callable[[], object], commits: Sequence[int] = (1,)) -> Sync:
    return Sync(str(lake.store), Between(lake.sink(), action, commits), SyncRequest())


def test_a_commit_upon_another_one_than_was_looked_at_adds_nothing(lake: Lake) -> None:
    lake.sync(topics=["orders"])
    first, second = lake.sink(), lake.sink()
    standing = first.look()
    second.look()
    assert standing.offsets is not None
    first.append([], standing.offsets)
    before = lake.commit_count()
    with pytest.raises(Overtaken):
        second.append([], standing.offsets)
    assert lake.commit_count() == before


def test_the_first_two_commits_of_a_table_exclude_each_other(lake: Lake) -> None:
    first, second = lake.sink(), lake.sink()
    assert not first.look().exists
    assert not second.look().exists
    first.create()
    second.create()
    first.append([], {"orders": {"b": {"0": 1}}})
    with pytest.raises(Overtaken):
        second.append([], {"orders": {"b": {"0": 2}}})


def test_another_sync_that_is_first_takes_the_rows(lake: Lake, store: Path) -> None:
    run = synced_with(lake, lake.sync)
    assert run.run().rows == 0
    assert lake.places() == stored(store)


def test_another_sync_between_two_commits(lake: Lake, store: Path) -> None:
    lake.sync()
    put_into(store, "orders", 30, 7)

    def other() -> None:
        lake.sync()
        put_into(store, "orders", 37, 2)

    assert synced_with(lake, other).run().rows == 2
    assert lake.places() == stored(store)


def test_commits_of_other_writers_do_not_move_the_offsets(lake: Lake, store: Path) -> None:
    lake.sync()
    lake.commit_of_another()
    put_into(store, "orders", 30, 7)
    assert lake.sync().rows == 7
    assert lake.places() == stored(store)
    assert lake.rows().num_rows == 50


def test_a_commit_of_another_writer_between_two_of_ours(store: Path, tmp_path: Path) -> None:
    """The same files are committed again, once: upon that of the other."""
    lake = Lake("delta", tmp_path / "lake", store)
    lake.sync(topics=["orders"])
    assert synced_with(lake, lake.commit_of_another).run().rows == 12
    assert lake.places() == stored(store)
    assert lake.rows().num_rows == 43


def test_one_that_commits_all_the_time_is_told(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake("delta", tmp_path / "lake", store)
    lake.sync(topics=["orders"])
    monkeypatch.setattr(synced, "_OVERTAKEN_WAIT_S", 0)
    monkeypatch.setattr(synced, "_OVERTAKEN_MAX", 3)
    with pytest.raises(TableFailed, match="other programs keep committing to it"):
        synced_with(lake, lake.commit_of_another, range(1, 99)).run()
    assert len(lake.places()) == 30
    assert lake.sync().rows == 12
    assert lake.places() == stored(store)


def test_several_that_begin_a_table_at_once(lake: Lake, store: Path) -> None:
    ready = threading.Barrier(4)

    def begin() -> None:
        ready.wait()
        lake.sync()

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert lake.places() == stored(store)


def test_two_at_once_share_the_work(lake: Lake, store: Path) -> None:
    put_into(store, "orders", 30, 500)
    runs = [lake.started(steps=Steps(rows=1), pattern=".*") for _ in range(3)]
    threads = [threading.Thread(target=run.run) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sum(run.totals.rows for run in runs) == 542
    assert lake.places() == stored(store)


def test_a_table_that_was_rolled_back_gets_its_rows_again(lake: Lake, store: Path) -> None:
    lake.sync()
    put_into(store, "orders", 30, 3)
    lake.sync()
    put_into(store, "orders", 33, 2)
    lake.sync()
    lake.roll_back(2)
    assert len(lake.places()) == 42
    assert lake.sync().rows == 5
    assert lake.places() == stored(store)
    lake.roll_back(1)
    assert lake.sync().rows == 5
    assert lake.places() == stored(store)


def test_a_table_that_is_rolled_back_while_it_is_written_to(lake: Lake, store: Path) -> None:
    lake.sync()
    put_into(store, "orders", 30, 3)
    lake.sync()
    put_into(store, "orders", 33, 2)
    synced_with(lake, lambda: lake.roll_back(1)).run()
    assert lake.places() == stored(store)


def test_offsets_are_carried_on_upon_what_others_committed(lake: Lake) -> None:
    lake.sync()
    lake.commit_of_another()
    assert not lake.sink().look().is_newest
    assert lake.sync() == (0, 1, 0, 0)
    assert lake.sink().look().is_newest
    assert lake.sync() == (0, 0, 0, 0)


def test_a_table_that_is_gone_or_another_is_one_line(lake: Lake, store: Path) -> None:
    lake.sync()
    put_into(store, "orders", 30, 3)
    with pytest.raises(Rejected, match=r"was (dropped|removed) or renamed meanwhile; check the table and start again"):
        synced_with(lake, lake.drop).run()
    lake.sync()
    assert lake.places() == stored(store)
    put_into(store, "orders", 33, 3)

    def replaced() -> None:
        lake.drop()
        lake.sync()

    with pytest.raises(Rejected, match=r"was (dropped and made again|replaced by another) meanwhile"):
        synced_with(lake, replaced).run()
    assert lake.places() == stored(store)


def commits_failing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, error: Exception, after: Callable[[], object] | None
) -> None:
    """The next commit is told as failed: it went in all the same, and `after` came then, or it did not with None."""
    owner, name = (SqlCatalog, "commit_table") if lake.kind == "iceberg" else (DeltaTable, "create_write_transaction")
    real, is_next = getattr(owner, name), [True]

    def failing(*how: Any, **named: Any) -> Any:
        if not is_next:
            return real(*how, **named)
        is_next.clear()
        if after is not None:
            real(*how, **named)
            after()
        raise error

    monkeypatch.setattr(owner, name, failing)


def conflict(lake: Lake) -> Exception:
    """The answer to a commit that another one overtook; a proxy's second try gets it, too."""
    return CommitFailedException("409") if lake.kind == "iceberg" else CommitFailedError("409")


@pytest.mark.parametrize("is_conflict", [True, False])
def test_a_commit_that_is_told_as_failed_and_went_in_keeps_its_files(
    lake: Lake, store: Path, monkeypatch: pytest.MonkeyPatch, is_conflict: bool
) -> None:
    lake.sync(topics=["orders"])
    error = conflict(lake) if is_conflict else TimeoutError("no answer")
    commits_failing(lake, monkeypatch, error, lambda: None)
    assert lake.sync().rows == 12
    assert lake.places() == stored(store)
    put_into(store, "orders", 30, 3)
    assert lake.sync().rows == 3
    assert lake.places() == stored(store)


def test_a_commit_that_is_told_as_failed_before_that_of_another_sync_keeps_its_files(
    lake: Lake, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.sync(topics=["orders"])

    def other() -> None:
        put_into(store, "orders", 30, 3)
        lake.sync()
        put_into(store, "orders", 33, 2)

    commits_failing(lake, monkeypatch, conflict(lake), other)
    lake.sync(steps=Steps(rows=1))
    assert lake.sync().rows == 0
    assert lake.places() == stored(store)


@pytest.mark.parametrize("is_in", [True, False])
def test_the_files_of_a_commit_of_which_nobody_can_tell_are_kept(
    lake: Lake, store: Path, monkeypatch: pytest.MonkeyPatch, is_in: bool
) -> None:
    lake.sync(topics=["orders"])

    def unreachable(*_: object, **__: object) -> None:
        raise OSError("the network is down")

    def fall_away() -> None:
        owner, name = (SqlCatalog, "load_table") if lake.kind == "iceberg" else (DeltaSink, "_loaded")
        monkeypatch.setattr(owner, name, unreachable)

    before = set(lake.directory.rglob("*.parquet"))
    commits_failing(lake, monkeypatch, conflict(lake) if is_in else TimeoutError("409"), fall_away if is_in else None)
    with pytest.raises(TableFailed, match="409; it is unknown whether this commit is in the table, so its files are"):
        lake.sync()
    monkeypatch.undo()
    assert set(lake.directory.rglob("*.parquet")) > before
    assert lake.sync().rows == (0 if is_in else 12)
    assert lake.places() == stored(store)


def test_a_table_with_another_schema_meanwhile_is_one_line(lake: Lake, store: Path) -> None:
    lake.sync()
    put_into(store, "orders", 30, 3)
    if lake.kind == "delta":
        with pytest.raises(Rejected, match="got another schema or other partitions meanwhile"):
            synced_with(lake, lambda: _add_column(lake)).run()
        assert lake.sync().rows == 3
    else:  # where files are projected by ids a commit does not mind, and the next one does
        assert synced_with(lake, lambda: _add_column(lake)).run().rows == 3
    assert lake.places() == stored(store)
    assert lake.rows().column("more").null_count == 45


def _add_column(lake: Lake) -> None:
    if lake.kind == "iceberg":
        from pyiceberg.types import StringType

        with lake.iceberg().update_schema() as change:
            change.add_column("more", StringType())
        return
    from deltalake import Field
    from deltalake.schema import PrimitiveType

    lake.delta().alter.add_columns([Field("more", PrimitiveType("string"))])


@pytest.fixture
def iceberg(tmp_path: Path, store: Path) -> Lake:
    return Lake("iceberg", tmp_path / "lake", store)


@pytest.fixture
def delta(tmp_path: Path, store: Path) -> Lake:
    return Lake("delta", tmp_path / "lake", store)


def _expire(lake: Lake, commits_ago: Sequence[int]) -> None:
    """As Java's library does, whose snapshots keep the number of a parent that has expired."""
    table = lake.iceberg()
    ancestors = list(ancestors_of(table.current_snapshot(), table.metadata))
    gone = {ancestors[number].snapshot_id for number in commits_ago}
    file = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(file.read_text())
    for name in ("snapshots", "snapshot-log"):
        metadata[name] = [one for one in metadata[name] if one["snapshot-id"] not in gone]
    file.write_text(json.dumps(metadata))


def test_offsets_outlive_their_snapshot(iceberg: Lake, store: Path) -> None:
    iceberg.sync()
    iceberg.commit_of_another()
    _expire(iceberg, [1])
    put_into(store, "orders", 30, 3)
    assert iceberg.sync().rows == 3
    assert iceberg.places() == stored(store)


def _expire_by_pyiceberg(lake: Lake, commits_ago: Sequence[int]) -> None:
    """Whose snapshots forget such a parent."""
    table = lake.iceberg()
    ancestors = list(ancestors_of(table.current_snapshot(), table.metadata))
    table.maintenance.expire_snapshots().by_ids([ancestors[number].snapshot_id for number in commits_ago]).commit()


@pytest.mark.parametrize("expire", [_expire, _expire_by_pyiceberg])
def test_a_gap_in_the_snapshots_is_told(
    iceberg: Lake, store: Path, expire: Callable[[Lake, Sequence[int]], None]
) -> None:
    iceberg.sync()
    iceberg.commit_of_another()
    iceberg.commit_of_another()
    expire(iceberg, [1, 2])
    put_into(store, "orders", 30, 3)
    with pytest.raises(Rejected, match=r"the snapshots since the last sync have expired.*--trust-offsets"):
        iceberg.sync()
    assert iceberg.sync(consent=Consent(trusts=True)).rows == 3
    assert iceberg.places() == stored(store)


def test_a_table_rolled_back_before_the_first_sync_begins_again(iceberg: Lake, store: Path) -> None:
    """The properties of a table are not rolled back with it."""
    sink = iceberg.sink()
    sink.look()
    sink.create()
    iceberg.iceberg().append(iceberg.rows())
    iceberg.sync()
    iceberg.roll_back(1)
    assert iceberg.sync().rows == 42
    assert iceberg.places() == stored(store)


def _clean_log(lake: Lake) -> None:
    lake.delta().alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    lake.delta().create_checkpoint()
    log = Path(lake.name) / "_delta_log"
    for file in log.glob("*.json"):  # as if their age were that of the retention
        if int(file.stem) < lake.delta().version():
            file.unlink()


def test_offsets_outlive_a_log_that_is_cleaned(delta: Lake, store: Path) -> None:
    delta.sync()
    delta.delta().create_checkpoint()
    for file in (Path(delta.name) / "_delta_log").glob("*.json"):
        if int(file.stem) < delta.delta().version():
            file.unlink()
    put_into(store, "orders", 30, 3)
    assert delta.sync().rows == 3
    assert delta.places() == stored(store)


def test_a_gap_in_the_log_is_told(delta: Lake, store: Path) -> None:
    delta.sync()
    delta.commit_of_another()
    _clean_log(delta)
    put_into(store, "orders", 30, 3)
    with pytest.raises(Rejected, match=r"the log of the commits since the last sync was cleaned.*--trust-offsets"):
        delta.sync()
    assert delta.sync(consent=Consent(trusts=True)).rows == 3
    assert delta.places() == stored(store)


def test_a_table_that_was_restored_to_a_time(delta: Lake, store: Path) -> None:
    """The time of a version is that of its file; those of two may be in one millisecond."""
    delta.sync()
    put_into(store, "orders", 30, 3)
    delta.sync()
    for version, us in enumerate((100, 250, 900)):
        at = 1_700_000_000_000_000 + us
        os.utime(Path(delta.name) / "_delta_log" / f"{version:020d}.json", ns=(at * 1000, at * 1000))
    delta.delta().restore(datetime.datetime.fromtimestamp(1_700_000_000.0005, datetime.UTC))
    assert len(delta.places()) == 42
    assert delta.sync().rows == 3
    assert delta.places() == stored(store)


def test_vacuum_and_compaction_leave_the_offsets(delta: Lake, store: Path) -> None:
    delta.sync()
    put_into(store, "orders", 30, 3)
    delta.sync()
    delta.delta().optimize.compact()
    delta.delta().vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    put_into(store, "orders", 33, 3)
    assert delta.sync().rows == 3
    assert delta.places() == stored(store)


def test_files_of_offsets_go_with_the_log(delta: Lake, store: Path) -> None:
    delta.sync()
    put_into(store, "orders", 30, 1)
    delta.sync()
    _clean_log(delta)
    put_into(store, "orders", 31, 1)
    delta.sync(consent=Consent(trusts=True))
    assert len(list((Path(delta.name) / "_rmqstore").iterdir())) == 1
    assert delta.places() == stored(store)


@pytest.mark.parametrize(
    "setting", [{"delta.columnMapping.mode": "name"}, {"delta.enableRowTracking": "true"}, {"delta.constraints.a": "1"}]
)
def test_tables_that_ask_for_more_are_refused(
    delta: Lake, monkeypatch: pytest.MonkeyPatch, setting: dict[str, str]
) -> None:
    """deltalake does not make such tables; others do."""
    delta.sync()
    import deltalake

    settings = deltalake.DeltaTable(delta.name).metadata().configuration | setting
    monkeypatch.setattr(deltalake.table.Metadata, "configuration", property(lambda _: settings))
    with pytest.raises(Rejected, match=f"{next(iter(setting))} is set, which a sync does not support"):
        delta.sync()


def test_a_sync_that_waits_sees_a_roll_back(lake: Lake, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.sync()
    put_into(store, "orders", 30, 3)
    lake.sync()
    lake.commit_of_another()
    came = threading.Semaphore(0)

    class Counting(SyncListener):
        def commit(self, done: Committed) -> None:
            for _ in range(done.rows):
                came.release()

    monkeypatch.setattr(synced, "_LOOK_S", 0)
    monkeypatch.setattr(synced, "_PAUSE_S", 0.01)
    run = lake.started(listener=Counting(), steps=Steps(seconds=0))
    thread = threading.Thread(target=run.run, kwargs={"follows": True})
    thread.start()
    try:
        lake.roll_back(2)
        assert all(came.acquire(timeout=600) for _ in range(3))
    finally:
        run.stop()
        thread.join(60)
    assert lake.places() == stored(store)
