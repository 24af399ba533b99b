"""What users of exports may meet: places that are others', two at a time, stores that change; nothing lost or doubled,
and nothing changed where it is refused."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from rmqstore import DataLost, NotAStore, NotNow, Rejected, StoreConfig, StoreError, open_snapshot, open_store
from rmqstore.cli.outgoing.query import write_parquet
from rmqstore.errors import UnknownTopic
from rmqstore.export import ExportWish, Window, export_messages
from rmqstore.export.directory import ExportDirectory
from rmqstore.files.filesystem import RealFileSystem
from tests.export.reading import files_of, require_each_once, rows_of
from tests.export.stores import CONFIG, filled, put
from tests.golden.rows import fingerprint

pytestmark = pytest.mark.stores

COLUMNS = ("topic", "queueId", "queueOffset", "body")
WISH = ExportWish(columns=COLUMNS, partition_by=())
INTO_STORE = ExportWish(format="store")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return filled(tmp_path / "store", 60)


def test_it_goes_on_with_what_came(store: Path, tmp_path: Path) -> None:
    place = tmp_path / "out"
    assert export_messages(store, place, WISH)[:2] == (60, 60)
    before = fingerprint(place)
    assert export_messages(store, place, WISH)[:2] == (0, 60)
    assert {path for path in fingerprint(place) if not path.endswith((".json", "lock", ".rmqstore-export"))} == {
        path for path in before if not path.endswith((".json", "lock", ".rmqstore-export"))
    }
    with open_store(store, CONFIG, workers=False) as more:
        put(more, 60, 7, ["orders", "new"])
    assert export_messages(store, place, WISH)[:2] == (7, 67)
    require_each_once(place, "parquet", store)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("others.parquet", b"PAR1", "holds 'others.parquet', which is not part of an export"),
        (".rmqstore-export/manifest.json", b"{}", "is not the manifest of an export"),
        (
            ".rmqstore-export/manifest.json",
            b'{"rmqstore export":1,"told":{},"pending":{"x":"/etc/passwd"}}',
            "not the manif",
        ),
        (
            ".rmqstore-export/manifest.json",
            b'{"rmqstore export":1,"told":{},"pending":{"x":"a/../../b"}}',
            "not the manif",
        ),
        (".rmqstore-export/manifest.json", b"[" * 10**5, "is not the manifest of an export"),
        (".rmqstore-export/others", b"", "holds 'others', which is not part of an export"),
    ],
)
def test_a_foreign_directory_is_refused_and_left_alone(
    name: str, content: bytes, said: str, store: Path, tmp_path: Path
) -> None:
    place = tmp_path / "out"
    (place / name).parent.mkdir(parents=True)
    (place / name).write_bytes(content)
    before = fingerprint(place)
    with pytest.raises(Rejected, match=said):
        export_messages(store, place, WISH)
    assert fingerprint(place) == before


def test_what_every_disk_has_does_not_stand_in_the_way(store: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "lost+found").mkdir(parents=True)
    assert export_messages(store, tmp_path / "out", WISH).added_count == 60


@pytest.mark.some(6)
@pytest.mark.parametrize(
    "place", ["store", "store/out", "store/commitlog", ".", "link", "link/out", "other/consumequeue"]
)
@pytest.mark.parametrize("wish", [WISH, INTO_STORE])
def test_nothing_is_written_about_a_store(place: str, wish: ExportWish, store: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(store)
    filled(tmp_path / "other", 3)
    before = fingerprint(tmp_path)
    with pytest.raises((Rejected, NotAStore)):
        export_messages(store, tmp_path / place, wish)
    assert fingerprint(tmp_path) == before


def test_files_are_not_put_into_another_store(store: Path, tmp_path: Path) -> None:
    other = filled(tmp_path / "other", 3)
    with pytest.raises(Rejected, match="is a store, lies in one or holds one"):
        export_messages(store, other, WISH)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"topics": ("orders",)}, "its topics: none before, orders now"),
        ({"columns": ("topic", "body")}, "its columns:"),
        ({"tags": "a"}, "its tags: none before, a now"),
        ({"format": "json-lines"}, "its format: parquet before, json-lines now"),
        ({"window": Window(1_700_000_000_000)}, "its since: none before, 1700000000000 now"),
    ],
)
def test_another_export_s_directory_is_refused(changed: dict, said: str, store: Path, tmp_path: Path) -> None:
    place = tmp_path / "out"
    export_messages(store, place, WISH)
    before = fingerprint(place)
    how = {"columns": COLUMNS, "partition_by": ()} | changed
    with pytest.raises(Rejected, match=said):
        export_messages(store, place, ExportWish(**how))
    assert fingerprint(place) == before


def test_the_export_of_another_store_is_refused(store: Path, tmp_path: Path) -> None:
    export_messages(store, tmp_path / "out", WISH)
    other = filled(tmp_path / "other", 60)
    with pytest.raises(Rejected, match="its stores:"):
        export_messages(other, tmp_path / "out", WISH)


def test_one_that_is_at_work_keeps_others_out(store: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "out")
    told = WISH.told([["", str(store)]])
    directory = ExportDirectory(RealFileSystem(), place, told, [str(store)])
    with pytest.raises(NotNow, match="another export writes there"):
        export_messages(store, place, WISH)
    directory.release()
    assert export_messages(store, place, WISH).added_count == 60


def test_a_topic_that_was_made_again_is_noticed(tmp_path: Path) -> None:
    place = tmp_path / "out"
    with open_store(tmp_path / "store", CONFIG) as store:
        put(store, 0, 12, ["orders"])
        export_messages(store.path, place, WISH)
        store.delete_topic("orders")
        put(store, 100, 40, ["orders"])
        with pytest.raises(DataLost, match=r"orders.*is another log than was exported"):
            export_messages(store.path, place, WISH)
        assert len(rows_of(place, "parquet")) == 12


def test_another_store_in_the_same_place_is_noticed(store: Path, tmp_path: Path) -> None:
    export_messages(store, tmp_path / "out", WISH)
    shutil.rmtree(store)
    with open_store(store, CONFIG, workers=False) as again:
        put(again, 1000, 90)
    with pytest.raises(DataLost, match="another message stands there"):
        export_messages(store, tmp_path / "out", WISH)


def test_a_store_that_is_gone_says_so(store: Path, tmp_path: Path) -> None:
    export_messages(store, tmp_path / "out", WISH)
    shutil.rmtree(store)
    with pytest.raises(NotAStore):
        export_messages(store, tmp_path / "out", WISH)


def test_messages_that_were_deleted_are_told(tmp_path: Path) -> None:
    config = StoreConfig(log_file_size=16 * 1024, queue_file_size=2000, preallocate=False)
    place = tmp_path / "out"
    with open_store(tmp_path / "store", config) as store:
        put(store, 0, 20)
        export_messages(store.path, place, WISH)
        put(store, 20, 900)
        store.clean(any_age=True)
        assert open_snapshot(store.path).stores[0].log_start > 0
        with pytest.raises(DataLost):
            export_messages(store.path, place, WISH)
        going_on = ExportWish(columns=COLUMNS, partition_by=(), skip_lost=True)
        done = export_messages(store.path, place, going_on)
        assert done.lost_count > 0
        put(store, 920, 12)  # of a queue of which all was deleted it is told when the next message comes
        last = export_messages(store.path, place, going_on)
        assert last.total_count + done.lost_count + last.lost_count == 932


def test_an_unknown_topic_is_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownTopic, match="did you mean orders"):
        export_messages(store, tmp_path / "out", ExportWish(topics=("order",)))
    assert export_messages(store, tmp_path / "out", ExportWish(topics=("orders",))).added_count == 20


@pytest.mark.parametrize(
    "how",
    [
        {"partition_by": ("topic", "topic")}, {"partition_by": ("hour",)}, {"columns": "topic"}, {"columns": "bodies"},
        {"format": "csv"}, {"format": "json-lines", "compression": "snappy"}, {"format": "store", "columns": "body"},
        {"format": "store", "on_corrupt_record": "null"}, {"target_bytes": 0}, {"day_of": "queueId"}, {"tags": "a,b"},
    ],
)  # fmt: skip
def test_a_wish_without_sense_is_refused(how: dict) -> None:
    with pytest.raises(Rejected):
        ExportWish(**how)


def test_a_window_in_which_no_time_lies_is_refused() -> None:
    with pytest.raises(Rejected, match="is not before the end"):
        Window(1_700_000_001_000, 1_700_000_000_000)


@pytest.mark.some(3)
@pytest.mark.parametrize("partition_by", [(), ("topic",), ("topic", "day")], ids=str)
@pytest.mark.parametrize("form", ["parquet", "json-lines"])
def test_files_that_were_taken_away_by_hand_are_told_and_do_not_come_again(
    form: str, partition_by: tuple[str, ...], store: Path, tmp_path: Path
) -> None:
    place = tmp_path / "out"
    wish = ExportWish(format=form, columns=COLUMNS, partition_by=partition_by, target_bytes=300, batch_rows=5)
    assert export_messages(store, place, wish).gone_file_count == 0
    first, second, third, *others = files_of(place)
    first.unlink()
    second.rename(second.with_name("mine"))
    (third.parent / "inner").mkdir()
    third.rename(third.parent / "inner" / third.name)
    done = export_messages(store, place, wish)
    assert (done.added_count, done.total_count, done.gone_file_count) == (0, 60, 3)
    with open_store(store, CONFIG, workers=False) as more:
        put(more, 60, 7)
    done = export_messages(store, place, wish)
    assert (done.added_count, done.total_count, done.gone_file_count) == (7, 67, 3)
    shutil.copy(others[0], others[0].with_name(first.name))  # whatever has the name of a file stands for it
    assert export_messages(store, place, wish).gone_file_count == 2
    for path in place.iterdir():
        if path.name != ".rmqstore-export":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    done = export_messages(store, place, wish)
    assert (done.added_count, done.gone_file_count) == (0, json.loads(manifest_of(place))["next_file"])
    shutil.rmtree(place)
    assert export_messages(store, place, wish)[:2] == (67, 67)


def manifest_of(place: Path) -> str:
    return (place / ".rmqstore-export" / "manifest.json").read_text()


# --- into a store


def test_a_store_is_made_and_added_to(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    assert export_messages(store, target, INTO_STORE).added_count == 60
    require_each_once(target, "store", store)
    with open_store(store, CONFIG, workers=False) as more:
        put(more, 60, 9)
    assert export_messages(store, target, INTO_STORE)[:2] == (9, 69)
    require_each_once(target, "store", store)


def test_messages_are_as_they_were_sent(store: Path, tmp_path: Path) -> None:
    export_messages(store, tmp_path / "target", ExportWish(format="store", topics=("orders",), tags="a"))
    columns = ["topic", "queueId", "tags", "keys", "body", "properties", "flag", "bornTimestamp", "bornHost"]
    wanted = open_snapshot(store).scan(topics=["orders"], tags="a", columns=columns).read_all()
    assert open_snapshot(tmp_path / "target").scan(columns=columns).read_all() == wanted


def test_two_exports_go_into_one_store(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    for topic in ("orders", "pay", "orders"):
        export_messages(store, target, ExportWish(format="store", topics=(topic,)))
    assert len(rows_of(target, "store")) == 40


def test_a_store_that_somebody_writes_is_refused(store: Path, tmp_path: Path) -> None:
    with open_store(tmp_path / "target", CONFIG), pytest.raises(StoreError, match="stop the other writer"):
        export_messages(store, tmp_path / "target", INTO_STORE)


def test_an_older_copy_of_the_target_is_noticed(store: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    export_messages(store, target, INTO_STORE)
    (state,) = (target / ".rmqstore-export").iterdir()
    old = (state / "manifest.json").read_bytes()
    with open_store(store, CONFIG, workers=False) as more:
        put(more, 60, 9)
    export_messages(store, target, INTO_STORE)
    (state / "manifest.json").write_bytes(old)
    with pytest.raises(Rejected, match="one of them is an older copy"):
        export_messages(store, target, INTO_STORE)
    (state / "manifest.json").unlink()
    with pytest.raises(Rejected, match="one of them is an older copy"):
        export_messages(store, target, INTO_STORE)


def test_the_manifest_says_how_far_it_is(store: Path, tmp_path: Path) -> None:
    export_messages(store, tmp_path / "out", WISH)
    manifest = json.loads((tmp_path / "out" / ".rmqstore-export" / "manifest.json").read_text())
    assert manifest["message_count"] == 60
    assert set(manifest["offsets"]) - {"$marks"} == {"orders", "pay", "mail"}


def test_one_file_is_on_the_disk_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, steps = tmp_path / "all.parquet", []
    for name in ("rename", "sync_directory"):
        real = getattr(RealFileSystem, name)
        monkeypatch.setattr(
            RealFileSystem, name, lambda *given, name=name, real=real: steps.append(name) or real(*given)
        )
    schema = pa.schema([("topic", pa.string())])
    assert write_parquet(str(place), schema, [pa.record_batch([["orders"]], schema)], may_replace=False) == 1
    assert steps == ["rename", "sync_directory"]
    assert [*tmp_path.iterdir()] == [place]
