"""Tags by the queue entries and keys by the index: the rows of an unpruned read, and fewer records looked at."""

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import rmqstore
from rmqstore.snapshot.plan.key_pruning import prune_by_keys
from rmqstore.snapshot.request import ScanRequest, SplitBudget
from rmqstore.snapshot.scan import entry_source
from tests.golden.cases import FOLDERS, REFUSED, base_name
from tests.snapshot.small_store import SmallStore

pytestmark = pytest.mark.stores

COLUMNS = ["topic", "queueId", "queueOffset", "tags", "keys", "msgId", "physicalOffset"]
ORDER = [("topic", "ascending"), ("queueId", "ascending"), ("queueOffset", "ascending")]
CASES = sorted(case for case in FOLDERS if base_name(case) not in REFUSED)


def everything(snapshot, **how):
    how = {"on_corrupt_record": "skip", "fail_on_data_loss": False} | how
    return snapshot.scan(pattern=".*", include_system_topics=True, columns=COLUMNS, **how).read_all().sort_by(ORDER)


@pytest.mark.some(22)
@pytest.mark.parametrize("case", CASES)
def test_rows_are_those_of_the_unpruned_read(case, store_of):
    snapshot = rmqstore.open_snapshot(store_of(case))
    rows = everything(snapshot)
    draw = random.Random(case)
    tags = sorted(tag for tag in pc.unique(rows["tags"]).to_pylist() if tag)
    texts = [text or "" for name in ("keys", "msgId") for text in pc.unique(rows[name]).to_pylist()]
    keys = sorted({key for text in texts for key in text.split()})
    for wanted in [tags[-2:], ["no such tag"]]:
        if wanted:
            expected = rows.filter(pc.is_in(rows["tags"], pa.array(wanted)))
            assert everything(snapshot, tags=tuple(wanted)).equals(expected)
    for wanted in [draw.sample(keys, min(count, len(keys))) for count in (1, 5)]:
        if wanted:
            unpruned = everything(snapshot, keys=tuple(wanted), scan_mode="queue")
            assert everything(snapshot, keys=tuple(wanted)).equals(unpruned)


@pytest.mark.parametrize("case", ["broker-clean-4.9.8", "broker-clean-5.3.3"])
def test_a_key_plans_few_messages(case, store_of):
    snapshot = rmqstore.open_snapshot(store_of(case))
    store = snapshot.stores[0]
    ranges = snapshot.select(["G101Normal"])
    row = snapshot.scan(["G101Normal"], columns=["keys", "physicalOffset"]).read_all().sort_by("physicalOffset")
    key = next(keys for keys in row["keys"].to_pylist()[200:] if keys)
    pruned = prune_by_keys(store, ranges, ScanRequest(keys=(key,)))
    total, left = (sum(part.end - part.start for part in parts) for parts in (ranges, pruned))
    assert left < total / 2
    for same in (
        ScanRequest(),
        ScanRequest(keys=(key,), scan_mode="queue"),
        ScanRequest(keys=(key,), verify_crc="always"),
    ):
        assert prune_by_keys(store, ranges, same) == ranges


@pytest.fixture
def looked_at(monkeypatch):
    """Counts the records that a scan has in its hands."""
    counted = []
    rows = entry_source.RecordCheck.rows
    monkeypatch.setattr(
        entry_source.RecordCheck,
        "rows",
        lambda self, entries, *more: counted.append(len(entries)) or rows(self, entries, *more),
    )
    return counted


def tagged_store(tmp_path, count=400):
    store = SmallStore(file_size=65536)
    for number in range(count):
        store.add("T", number % 2, properties={"TAGS": "rare" if number % 40 == 0 else "A"})
    return store.write(tmp_path)


def test_records_of_other_tags_are_not_read(tmp_path, looked_at):
    snapshot = rmqstore.open_snapshot(tagged_store(tmp_path))
    assert snapshot.scan(["T"], tags=("rare",), verify_crc="never").read_all().num_rows == 10
    assert sum(looked_at) == 10


@pytest.mark.parametrize("how", [{"verify_crc": "always"}, {"on_corrupt_record": "null"}, {}])
def test_all_records_are_read_where_damage_is_looked_for(tmp_path, looked_at, how):
    """Without more words that is the newest part of the log, here all of it."""
    snapshot = rmqstore.open_snapshot(tagged_store(tmp_path))
    assert snapshot.scan(["T"], tags=("rare",), **how).read_all().num_rows == 10
    assert sum(looked_at) == 400


def test_a_plan_by_key_is_cut_no_finer_than_the_ranges_it_finds(store_of):
    snapshot = rmqstore.open_snapshot(store_of("broker-clean-5.3.3"))
    request = ScanRequest(keys=("no-such-key",))
    splits = snapshot.plan(snapshot.select(["G101Normal"]), request, SplitBudget())
    assert sum(end - start for split in splits for *_, start, end in split.spans) < 700
