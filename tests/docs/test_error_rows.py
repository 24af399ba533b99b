"""docs/errors.md: each of its rows is provoked once, and reads as it stands there."""

import os
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import rmqstore
from rmqstore import Message, StoreConfig, errors
from rmqstore.cli import main
from rmqstore.export import ExportWish, export_messages
from rmqstore.export.directory import ExportDirectory
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.formats.sys_flag import COMPRESSED
from spark_source.source import RmqStoreDataSource
from tests.docs.blocks import PROJECT
from tests.snapshot.small_store import small_store
from tests.snapshot.starved_reader import starved

pytestmark = pytest.mark.stores

PAGE = (PROJECT / "docs" / "errors.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| (.+?) \| .+ \| .*\|$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
# What stands for something else in the words of the page.
_STANDS_FOR = {
    "FILE": r"/\S+", "STORE": r"/\S+",
    "POSITION": r"\d+", "REASON": r"\S.+", "host H": r"host \S+", "…": ".+", "A || B": r"\S+ \|\| \S+",
}  # fmt: skip


def said() -> list[str]:
    """The words in the first column, in code, with the bars of the table as they are meant."""
    rows = _ROW.findall(PAGE.replace("\\|", "\x00"))[1:]
    return [words.replace("\x00", "|") for row in rows if not row.startswith("-") for words in _CODE.findall(row)]


def pattern(words: str) -> str:
    """A regular expression for the words of the page: names of things stand for any, numbers for any number."""
    known = "|".join(map(re.escape, _STANDS_FOR))
    pieces = re.split(rf"({known}|\d+)", words)
    return "".join(r"\d+" if piece.isdigit() else _STANDS_FOR.get(piece, re.escape(piece)) for piece in pieces)


class Places:
    """Where a provocation may do as it likes, and a sound store that it may not touch."""

    def __init__(self, sound: Path, own: Path, spark: SparkSession | None = None) -> None:
        self.sound, self._own, self._spark = sound, own, spark

    @property
    def spark(self) -> SparkSession:
        """The session, where the words are Spark's."""
        assert self._spark is not None
        return self._spark

    @property
    def empty(self) -> Path:
        """A directory of its own."""
        self._own.mkdir(exist_ok=True)
        return self._own

    def copy(self) -> Path:
        """A store of its own."""
        shutil.copytree(self.sound, self.empty / "store")
        return self.empty / "store"


def load(places: Places, **options: str) -> int:
    """Spark's count of the sound store's orders, with options."""
    chosen = {"subscribe": "orders"} | options
    return places.spark.read.format("rmqstore").options(**chosen).load(str(places.sound)).count()


def scan(path: object, **how: object) -> int:
    rows: int = rmqstore.open_snapshot(path).scan(**({"topics": ["orders"]} | how)).read_all().num_rows  # type: ignore[arg-type]
    return rows


def without_log(places: Places) -> None:
    store = places.copy()
    shutil.rmtree(store / "commitlog")
    rmqstore.open_snapshot(store)


def with_anothers_log(places: Places) -> None:
    store = places.copy()
    shutil.rmtree(store / "commitlog")
    with rmqstore.open_store(places.empty / "other") as other:
        for number in range(20_000):
            other.put(Message("orders", b"%d" % number * 20))
    rmqstore.open_snapshot([[str(store), str(places.empty / "other" / "commitlog")]])


def unreadable(places: Places) -> None:
    """A loop of links: nobody may open it, the superuser neither."""
    store = places.copy()
    path = min((store / "commitlog").iterdir())
    path.unlink()
    path.symlink_to(path)
    scan(store)


def damaged(places: Places) -> None:
    store = places.copy()
    body = rmqstore.open_snapshot(store).query("orders", "o-1017")[0].body or b""
    (path,) = (path for path in (store / "commitlog").iterdir() if body in path.read_bytes())
    path.write_bytes(path.read_bytes().replace(body, b"!" + body[1:]))
    scan(store, verify_crc="always")


def with_a_bomb(places: Places) -> None:
    store = small_store(0)
    store.add(topic="orders", body=zlib.compress(bytes(1000)), sys_flag=COMPRESSED)
    scan(store.write(places.empty), body_bytes_max=999)


def changing(places: Places) -> None:
    """A store whose log files are replaced at each look."""
    store = small_store(10).write(places.empty)
    path = max((store / "commitlog").iterdir())

    def replace_log_file() -> None:
        data = path.read_bytes()
        path.rename(places.empty / f"old{len(list(places.empty.iterdir()))}")  # kept, so that no inode is used again
        path.write_bytes(data)

    with starved(replace_log_file):
        rmqstore.open_snapshot(store)


def in_use(places: Places) -> None:
    with rmqstore.open_store(places.empty / "mine"):
        rmqstore.open_store(places.empty / "mine")


def forked(places: Places) -> None:
    """The child's words come through a pipe."""
    reading, writing = os.pipe()
    with rmqstore.open_store(places.empty / "mine") as store:
        child = os.fork()
        if child == 0:
            try:
                store.put(Message("orders", b"x"))
            except errors.StoreError as error:
                os.write(writing, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        raise errors.StoreClosed(pipe.read())


def refused(places: Places) -> None:
    with rmqstore.open_store(places.empty / "mine") as store:
        store.put(Message("a/b", b"x")).raise_for_status()


def put_with_a_wrong_line(places: Places) -> None:
    """The command line says it."""
    (places.empty / "in.jsonl").write_text('{"topic": "orders", "body": "x"}\n' * 6 + "{\n", encoding="utf-8")
    store, file = str(places.empty / "store"), str(places.empty / "in.jsonl")
    raise RuntimeError(CliRunner().invoke(main, ["put", store, "--create", file]).stderr)


def unseen(places: Places) -> None:
    """The store is there when the read is planned, and gone for the executors."""
    store = places.copy()
    source = RmqStoreDataSource({"path": str(store), "subscribe": "orders"})
    reader = source.reader(source.schema())
    parts = reader.partitions()
    store.rename(places.empty / "elsewhere")
    list(reader.read(parts[0]))


_ALONE = """
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.read.format("rmqstore").load("/nowhere")
"""


def with_another_python(places: Places) -> None:
    """Spark's workers run a Python that has no packages, as the first one of a PATH mostly is."""
    bare = places.empty / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -s "$@"\n')
    bare.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
    environment |= {"PYSPARK_PYTHON": str(bare), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", _ALONE], capture_output=True, text=True, env=environment, cwd=places.empty, check=False
    )  # fmt: skip
    raise RuntimeError(done.stderr)


def exporting(places: Places, place: str, **how: object) -> Path:
    """A place of the test's own, after an export to it."""
    target = places.empty / place
    export_messages(places.sound, target, ExportWish(topics=("audit",), **how))  # type: ignore[arg-type]
    return target


def exporting_twice_at_once(places: Places) -> None:
    target, wish = places.empty / "out", ExportWish(topics=("audit",))
    told = wish.told([["", os.path.realpath(places.sound)]])
    directory = ExportDirectory(RealFileSystem(), str(target), told, [str(places.sound)])
    try:
        exporting(places, "out")
    finally:
        directory.release()


def exporting_what_is_gone(places: Places, again: int = 0) -> None:
    """A topic that was exported and is deleted now, or made again with so many messages."""
    with rmqstore.open_store(places.empty / "mine") as store:
        for topic in ("orders", "pay"):
            store.put(Message(topic, b"x"))
        store.flush()
        export_messages(store.path, places.empty / "out")
        store.delete_topic("orders")
        for _ in range(again):
            store.put(Message("orders", b"another"))
        store.flush()
        export_messages(store.path, places.empty / "out")


def following_what_is_gone(places: Places) -> None:
    """A stream that rested while log files were deleted."""
    with rmqstore.open_store(places.empty / "mine", StoreConfig(log_file_size=64 * 1024)) as store:
        for number in range(1000):
            store.put(Message("orders", b"%d" % number * 40))
        store.flush()
        store.clean(any_age=True)
        for _ in rmqstore.open_snapshot(store.path).follow(after={"orders": {"default": {"0": 1}}}, wait_s=0):
            pass


def exporting_what_was_made_again(places: Places) -> None:
    exporting_what_is_gone(places, again=3)


PLAIN: dict[str, Callable[[Places], object]] = {
    "does not exist here": lambda _: scan("/nowhere/store"),
    "holds no RocketMQ store": lambda places: scan(places.empty),
    "has entries, but there is no commitlog file": without_log,
    "are of two stores": with_anothers_log,
    "body of … bytes unpacks to more than": with_a_bomb,
    "no topic 'order' in STORE: did you mean orders?": lambda places: scan(places.sound, topics=["order"]),
    "expected": lambda places: scan(places.sound, topics=["orders"], columns=7),
    "no column": lambda places: scan(places.sound, columns=["bodi"]),
    "offsets [10, 99) wanted, it holds [50, 80)": lambda places: scan(
        places.sound, start={"orders": {"0": 0}}, end={"orders": {"0": 99_999}}
    ),
    "older messages were deleted before the stream had read them": following_what_is_gone,
    "its newest message was stored before": lambda places: scan(places.sound, start_time="2035-01-01T00:00:00Z"),
    "looks like seconds": lambda places: scan(places.sound, start_time=1_795_000_000),
    "write A || B": lambda places: scan(places.sound, tags="paid,sent"),
    "cannot be read (…)": unreadable,
    "the store kept changing while it was read (…)": changing,
    "FILE @ POSITION: REASON": damaged,
    "stop the other writer": in_use,
    "this process already writes to the store": in_use,
    "opened by process": forked,
    "holds another export": lambda places: exporting(places, exporting(places, "out").name, tags="login"),
    "which is not part of an export": lambda places: exporting(
        places, (places.empty / "out" / "x").mkdir(parents=True) or "out"
    ),
    "another export writes there": exporting_twice_at_once,
    "goes on after it with skip_lost": exporting_what_is_gone,
    "is another log than was exported": exporting_what_was_made_again,
    "nothing is stored": refused,
    "6 messages put, and on the disk": put_with_a_wrong_line,
}
# Words that only Spark's part has.
OF_SPARK: dict[str, Callable[[Places], object]] = {
    "DATA_SOURCE_NOT_FOUND": with_another_python,
    "unknown option": lambda places: load(places, subcribe="orders"),
    "DATA_SOURCE_PUSHDOWN_DISABLED": lambda places: load(places, pushdown="true"),
    "host H cannot see this store": unseen,
}
# The other words of their rows, which are names and not lines of their own.
NAMES = {"DataLost", "ModuleNotFoundError", "rmqstore", "spark_source", "numpy"}


def test_every_row_is_provoked() -> None:
    assert sorted(set(said()) - NAMES) == sorted({*PLAIN, *OF_SPARK})


def words_of(action: Callable[[], object]) -> str:
    """What an action ends with; of which class it is, other tests say."""
    try:
        action()
    except (errors.StoreError, PySparkException, RuntimeError) as error:
        return str(error)
    return "no error"


@pytest.mark.parametrize("words", sorted(PLAIN))
def test_an_error_reads_as_its_row(words: str, example_store: Path, tmp_path: Path) -> None:
    assert re.search(pattern(words), words_of(lambda: PLAIN[words](Places(example_store, tmp_path / "own"))))


@pytest.mark.spark
@pytest.mark.parametrize(
    "words",
    # A session of its own, without the source.
    [
        pytest.param(words, marks=pytest.mark.deep) if words == "DATA_SOURCE_NOT_FOUND" else words
        for words in sorted(OF_SPARK)
    ],
)
def test_an_error_of_spark_reads_as_its_row(
    words: str, example_store: Path, tmp_path: Path, spark: SparkSession
) -> None:
    places = Places(example_store, tmp_path / "own", spark)
    assert re.search(pattern(words), words_of(lambda: OF_SPARK[words](places)))


@pytest.fixture(autouse=True)
def _workers_find_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
