"""The directories and files of an export: as Spark's writer names them, of about one size, in bounded memory."""

import datetime
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore import Message, Rejected, open_snapshot, open_store
from rmqstore.cli.message_output import json_objects
from rmqstore.export import ExportWish, Window, export_messages, into_directory
from rmqstore.export.directory import ExportDirectory
from rmqstore.export.into_directory import parts_of
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.snapshot.arrow.json_lines import json_lines
from rmqstore.snapshot.stream import following
from tests.export.reading import files_of, rows_of
from tests.export.stores import CONFIG, filled, put
from tests.golden.conftest import store_of
from tests.snapshot.small_store import SmallStore

pytestmark = pytest.mark.stores

__all__ = ["store_of"]

DAY_US = 86_400_000_000


def batch_of(topics: list[str | None], times: list[int | None]) -> pa.RecordBatch:
    columns = {
        "topic": pa.array(topics, pa.string()),
        "storeTimestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
        "number": pa.array(range(len(topics)), pa.int64()),
    }
    return pa.record_batch(columns)


def parted(
    topics: list[str | None], times: list[int | None], by: tuple[str, ...] = ("topic", "day")
) -> dict[str, list]:
    found = parts_of(batch_of(topics, times), by, "storeTimestamp")
    return {part.directory: part.rows.column("number").to_pylist() for part in found}


def test_rows_are_sorted_out_in_their_order() -> None:
    times = [0, DAY_US, 1, DAY_US + 5, 2]
    assert parted(["a", "a", "b", "a", "a"], times) == {
        "topic=a/day=1970-01-01": [0, 4], "topic=a/day=1970-01-02": [1, 3], "topic=b/day=1970-01-01": [2],
    }  # fmt: skip
    assert parted(["a", "b"], [0, 1], ("day",)) == {"day=1970-01-01": [0, 1]}
    assert parted(["a", "b"], [0, 1], ()) == {"": [0, 1]}
    assert parted([], []) == {}


def test_names_are_escaped_as_spark_escapes_them() -> None:
    assert list(parted(["%RETRY%a|b"], [0])) == ["topic=%25RETRY%25a|b/day=1970-01-01"]
    assert list(parted(["a/../b\x1b"], [0])) == ["topic=a%2F..%2Fb%1B/day=1970-01-01"]
    assert list(parted([None], [None])) == ["topic=__HIVE_DEFAULT_PARTITION__/day=__HIVE_DEFAULT_PARTITION__"]
    assert list(parted(["a"], [253402300800 * 1_000_000])) == ["topic=a/day=+10000-01-01"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3 * DAY_US)), max_size=40))
def test_every_row_is_in_one_part(rows: list[tuple[str, int]]) -> None:
    found = parted([topic for topic, _ in rows], [at for _, at in rows])
    assert sorted(number for part in found.values() for number in part) == list(range(len(rows)))
    for directory, part in found.items():
        for topic, at in (rows[number] for number in part):
            assert directory == f"topic={topic}/day={np.datetime64(at, 'us').astype('M8[D]')}"


def test_others_read_it_as_a_table(tmp_path: Path) -> None:
    store = filled(tmp_path / "store", 60)
    export_messages(store, tmp_path / "out")
    table = ds.dataset(tmp_path / "out", partitioning="hive").to_table()
    assert table.num_rows == 60
    assert sorted(set(table["topic"].to_pylist())) == ["mail", "orders", "pay"]
    today = {str(at.date()) for at in table["storeTimestamp"].to_pylist()}
    assert set(map(str, table["day"].to_pylist())) == today
    schema = pq.read_schema(files_of(tmp_path / "out")[0])
    assert schema.names == [name for name in open_snapshot(store).scan().schema.names if name != "topic"]


def test_files_are_of_about_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    bodies = np.random.default_rng(7).bytes(4000 * 500)
    with open_store(store, CONFIG, workers=False) as one:
        one.put_columns(
            pa.table({
                "topic": ["orders"] * 4000, "queueId": pa.array([0] * 4000, pa.int32()),
                "body": [bodies[first : first + 500] for first in range(0, len(bodies), 500)],
            })
        )  # fmt: skip
    wish = ExportWish(columns=("body", "queueOffset"), partition_by=(), target_bytes=200_000, batch_rows=100)
    export_messages(store, tmp_path / "out", wish)
    sizes = [path.stat().st_size for path in files_of(tmp_path / "out")]
    assert len(sizes) in range(8, 13)
    assert all(size < 300_000 for size in sizes)
    assert sorted(
        row for path in files_of(tmp_path / "out") for row in pq.read_table(path)["queueOffset"].to_pylist()
    ) == (list(range(4000)))


def test_few_files_are_open_and_few_rows_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(tmp_path / "store", 900, [f"topic{number}" for number in range(90)])
    opened, most = [0], [0]
    real_begun, real_finish = into_directory.DirectoryTarget._begun, into_directory.DirectoryTarget._finish

    def begun(target, *how):
        opened[0] += 1
        result = real_begun(target, *how)
        most[0] = max(most[0], opened[0])
        return result

    def finish(target, directory):
        opened[0] -= 1
        real_finish(target, directory)

    monkeypatch.setattr(into_directory.DirectoryTarget, "_begun", begun)
    monkeypatch.setattr(into_directory.DirectoryTarget, "_finish", finish)
    monkeypatch.setattr(into_directory, "_OPEN_FILES_MAX", 5)
    monkeypatch.setattr(into_directory, "_HELD_BYTES", 2000)
    wish = ExportWish(columns=("topic", "queueId", "queueOffset", "body"), batch_rows=50)
    export_messages(store, tmp_path / "out", wish)
    assert opened[0] == 0
    assert 1 < most[0] <= 6
    assert ds.dataset(tmp_path / "out", partitioning="hive").count_rows() == 900


def test_times_choose_row_by_row(tmp_path: Path) -> None:
    store = filled(tmp_path / "store", 30)
    with open_store(store, CONFIG, workers=False) as more:
        put(more, 30, 30)
    times = sorted(open_snapshot(store).scan(columns=["storeTimestamp"]).read_all()["storeTimestamp"].to_pylist())
    middle = times[-1]
    ms = int(middle.timestamp() * 1000)
    for window in (Window(ms), Window(None, ms), Window(ms, ms + 1), Window(ms, None, "bornTimestamp")):
        wish = ExportWish(columns=("storeTimestamp", "bornTimestamp"), partition_by=(), window=window)
        place = tmp_path / f"{window.since_ms}-{window.until_ms}-{window.column}"
        export_messages(store, place, wish)
        found = [at for path in files_of(place) for at in pq.read_table(path)[window.column].to_pylist()]
        wanted = [
            at for at in open_snapshot(store).scan(columns=[window.column]).read_all()[window.column].to_pylist()
            if (window.since_ms is None or at >= instant(window.since_ms))
            and (window.until_ms is None or at < instant(window.until_ms))
        ]  # fmt: skip
        assert sorted(found) == sorted(wanted)


def instant(at_ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)


def test_the_window_is_that_of_the_first_run(tmp_path: Path) -> None:
    """`--since 2h` means what it meant when the export began."""
    store = filled(tmp_path / "store", 9)
    times = [at.timestamp() for at in open_snapshot(store).scan(columns=["storeTimestamp"]).read_all()[0].to_pylist()]
    first_ms, later_ms = int(min(times) * 1000) - 1000, int(max(times) * 1000) + 3_600_000
    how = {"columns": ("topic", "queueId", "queueOffset", "body"), "partition_by": (), "time_words": ("2h", None)}
    assert export_messages(store, tmp_path / "out", ExportWish(**how, window=Window(first_ms))).added_count == 9
    with open_store(store, CONFIG, workers=False) as more:
        put(more, 9, 3)
    assert export_messages(store, tmp_path / "out", ExportWish(**how, window=Window(later_ms))).added_count == 3
    assert len(rows_of(tmp_path / "out", "parquet")) == 12


# --- lines of JSON


@pytest.mark.parametrize("case", ["basic", "killed", "ipv6", "batch"])
def test_lines_are_those_of_cat(case: str, store_of: Callable[[str], Path]) -> None:
    table = open_snapshot(store_of(case)).scan(
        pattern=".*", include_system_topics=True, columns="*", on_corrupt_record="null", fail_on_data_loss=False
    )
    for batch in table:
        assert list(map(json.loads, json_lines(batch).to_pylist())) == list(map(json.loads, json_objects(batch)))


@given(st.lists(st.one_of(st.none(), st.binary(max_size=9), st.text(max_size=9).map(str.encode)), max_size=9))
def test_any_body_comes_back(bodies: list[bytes | None]) -> None:
    batch = pa.record_batch({"body": pa.array(bodies, pa.binary()), "n": pa.array(range(len(bodies)), pa.int64())})
    for offset in (0, 1):
        lines = json_lines(batch.slice(offset)).to_pylist()
        assert all(line.endswith("}\n") and line.count("\n") == 1 for line in lines)
        cat = json_objects(batch.slice(offset).append_column("corruptReason", pa.nulls(len(lines), pa.string())))
        assert list(map(json.loads, lines)) == list(map(json.loads, cat))


@pytest.mark.parametrize(
    "names", [["corruptReason", "topic"], ["topic", "corruptReason", "body"], ["corruptReason"], ["body"]], ids=str
)
def test_lines_are_json_whatever_the_order_of_the_columns(names: list[str]) -> None:
    columns = {"corruptReason": pa.array([None, 'cut "off"']), "topic": pa.array(["t", None])}
    columns["body"] = pa.array([b"\xff", b"x"])
    first, second = map(json.loads, json_lines(pa.record_batch({name: columns[name] for name in names})).to_pylist())
    assert ("corruptReason" in first, second.get("corruptReason", "-")) == (
        False, 'cut "off"' if "corruptReason" in names else "-",
    )  # fmt: skip
    assert list(second) == sorted(names, key=lambda name: name == "corruptReason")


def test_names_that_became_equal_are_one_member() -> None:
    kind = pa.map_(pa.string(), pa.string())
    batch = pa.record_batch({"properties": pa.array([[("a\ufffd", "1"), ("a\ufffd", "2")], None], kind)})
    assert json_lines(batch).to_pylist() == ['{"properties": {"a\ufffd": "2"}}\n', '{"properties": {}}\n']


@given(st.lists(st.text(max_size=9), max_size=9))
def test_any_text_is_escaped(texts: list[str]) -> None:
    batch = pa.record_batch({"tags": pa.array(texts, pa.string())})
    assert [json.loads(line)["tags"] for line in json_lines(batch).to_pylist()] == texts


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_lines_are_compressed_as_asked(compression: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with open_store(store, CONFIG, workers=False) as one:
        one.put(Message("orders", b'{"a": "\xc3\x9f\\"}', properties={"name": 'a"b'}))
        one.put(Message("orders", b"\xff\xfe"))
    wish = ExportWish(format="json-lines", columns="*", compression=compression)  # type: ignore[arg-type]
    export_messages(store, tmp_path / "out", wish)
    (path,) = files_of(tmp_path / "out")
    assert path.name.endswith({"none": ".json", "gzip": ".json.gz", "zstd": ".json.zst"}[compression])
    with pa.input_stream(str(path), compression=None if compression == "none" else compression) as stream:
        first, second = map(json.loads, stream.read().decode().splitlines())
    assert (first["body"], first["properties"]["name"]) == ('{"a": "ß\\"}', 'a"b')
    assert second["bodyBase64"] == "//4="


def test_one_run_has_all_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little of it is planned at a time."""
    monkeypatch.setattr(following, "_ROUND_BYTES", 4000)
    store = filled(tmp_path / "store", 300)
    wish = ExportWish(columns=("topic", "queueId", "queueOffset", "body"), partition_by=())
    assert export_messages(store, tmp_path / "out", wish).added_count == 300


@pytest.mark.parametrize("length", [84, 83])  # escaped, "%" is three bytes
def test_a_topic_too_long_for_a_directory_is_refused_before_anything_is_kept(length: int, tmp_path: Path) -> None:
    made = SmallStore()
    made.add("T", body=b"1")
    made.add("%" * length, body=b"2")
    store = made.write(tmp_path / "store")
    if length == 84:
        for _ in range(2):
            with pytest.raises(Rejected, match=r"too long for a directory of its own; .*--partition-by day, or none"):
                export_messages(store, tmp_path / "out", ExportWish())
        assert files_of(tmp_path / "out") == []
        assert not (tmp_path / "out" / ".rmqstore-export" / "manifest.json").exists()
        wish = ExportWish(partition_by=("day",))
    else:
        wish = ExportWish()
    assert export_messages(store, tmp_path / "out", wish).total_count == 2


def test_a_file_that_can_have_no_name_keeps_no_other_from_its_own(tmp_path: Path) -> None:
    fs, told = RealFileSystem(), {"stores": "s"}
    directory = ExportDirectory(fs, str(tmp_path / "out"), told, [])
    for number in range(3):
        Path(directory.unfinished_path(number)).write_bytes(b"x")
    files = {0: "a/part-0", 1: f"{'b' * 256}/part-1", 2: "c/part-2"}
    with pytest.raises(OSError, match="File name too long"):
        directory.commit(files, replace(directory.manifest, next_file=3))
    directory.release()
    assert [str(path.relative_to(tmp_path / "out")) for path in files_of(tmp_path / "out")] == ["a/part-0", "c/part-2"]
