"""Rows for `put_columns` from whatever speaks Arrow's C interface."""

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from rmqstore import Corrupt, PutStatus, Rejected, WrongType
from rmqstore.engine.store import Store
from tests.store.opened import ASYNC, opened

COLUMNS: dict[str, list[Any]] = {
    "topic": ["orders"] * 3, "body": [b"1", b"2", b"3"], "tags": ["paid", None, "sent"], "queueId": [0, 0, 0],
}  # fmt: skip
TABLE = pa.table(COLUMNS)


class Stream:
    """An object that has the method and nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


class Batch:
    """The same for one batch."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return TABLE.to_batches()[0].__arrow_c_array__(requested_schema)


def batches() -> Iterator[pa.RecordBatch]:
    for row in range(3):
        yield TABLE.slice(row, 1).to_batches()[0]


ROWS: dict[str, Callable[[], Any]] = {
    "a table": lambda: TABLE,
    "a table of several chunks": lambda: pa.Table.from_batches(list(batches())),
    "a batch": lambda: TABLE.to_batches()[0],
    "a reader": lambda: pa.RecordBatchReader.from_batches(TABLE.schema, batches()),
    "__arrow_c_stream__": lambda: Stream(TABLE),
    "__arrow_c_array__": Batch,
    "polars": lambda: pl.DataFrame(COLUMNS),
    "polars categories": lambda: pl.DataFrame(COLUMNS).with_columns(pl.col("topic").cast(pl.Categorical)),
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "duckdb": lambda: duckdb.from_arrow(TABLE),
}


def put(store: Store, rows: Any) -> list[tuple[bytes | None, str | None]]:
    assert store.put_columns(rows).raise_for_status().message_count == 3
    store.flush()
    return [(message.body, message.tags) for message in store.get("orders", 0, 0).messages]


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_stored_whoever_brings_them(name: str) -> None:
    assert put(opened(ASYNC), ROWS[name]()) == [(b"1", "paid"), (b"2", None), (b"3", "sent")]


def test_lists_and_maps_of_polars_are_keys_and_properties() -> None:
    pairs = [[{"key": "a", "value": "1"}], [], [{"key": "b", "value": "2"}, {"key": "c", "value": "3"}]]
    frame = pl.DataFrame(COLUMNS | {"keys": [["k", "l"], [], ["m"]], "properties": pairs})
    store = opened(ASYNC)
    put(store, frame)
    found = [
        (each.keys, each.properties.get("a"), each.properties.get("c")) for each in store.get("orders", 0, 0).messages
    ]
    assert found == [("k l", "1", None), (None, None, None), ("m", None, "3")]


@pytest.mark.parametrize("rows", [COLUMNS, [{"topic": "orders"}], None, "orders", 5, Stream])
def test_what_gives_no_rows_is_named(rows: Any) -> None:
    with pytest.raises(
        WrongType, match=r"table=.*an Arrow table, a data frame, or anything else with __arrow_c_stream"
    ):
        opened().put_columns(rows)


@pytest.mark.parametrize("rows", [pa.array([1, 2]), pa.chunked_array([[1], [2]]), pl.Series([1, 2])])
def test_arrow_data_that_is_no_table_is_refused(rows: Any) -> None:
    store = opened()
    with pytest.raises(Rejected):
        store.put_columns(rows)
    assert store.queues() == []


def test_a_stream_that_fails_stores_nothing() -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches()[0]
        raise OSError("the source is gone")

    store = opened(ASYNC)
    with pytest.raises(OSError, match="the source is gone"):
        store.put_columns(pa.RecordBatchReader.from_batches(TABLE.schema, failing()))
    assert store.queues() == []
    assert put(store, TABLE)[0] == (b"1", "paid")


def test_a_closed_store_reads_no_stream() -> None:
    store = opened()
    store.close()
    reader = pa.RecordBatchReader.from_batches(TABLE.schema, batches())
    assert store.put_columns(reader).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert reader.read_all().num_rows == 3


class Behind:
    """A reader behind the C interface, as other packages hand theirs out."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._reader.__arrow_c_stream__(requested_schema)


def ending_in(error: BaseException) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches()
        raise error

    return pa.RecordBatchReader.from_batches(TABLE.schema, batches())


@pytest.mark.parametrize("hand_out", [lambda reader: reader, Behind])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), SystemExit()], ids=repr)
def test_what_ends_the_program_ends_it_in_a_stream_too_and_nothing_is_put(
    error: BaseException, hand_out: Callable[[pa.RecordBatchReader], Any]
) -> None:
    store = opened(ASYNC)
    with pytest.raises(type(error)) as caught:
        store.put_columns(hand_out(ending_in(error)))
    assert getattr(caught.value, "code", None) == getattr(error, "code", None)
    assert store.queues() == []
    assert store.put_columns(TABLE).physical_offset == 0


def test_a_stream_that_fails_says_so_in_one_line() -> None:
    store = opened(ASYNC)
    damage = Corrupt("/store/commitlog/0", 7, "no record")
    with pytest.raises(Corrupt, match="/store/commitlog/0 @ 7"):
        store.put_columns(ending_in(damage))
    with pytest.raises(ValueError, match="of the caller"):
        store.put_columns(ending_in(ValueError("of the caller")))
    with pytest.raises(Rejected, match=r"^table: a Behind that cannot be read to its end \(.*two lines\)$") as caught:
        store.put_columns(Behind(ending_in(ValueError("of\ntwo lines"))))
    assert "\n" not in str(caught.value)
    assert store.queues() == []
