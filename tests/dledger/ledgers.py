"""Small stores on a DLedger log, and what is put to them."""

from dataclasses import replace
from pathlib import Path

from rmqstore import LedgerConfig, Message, Store, StoreConfig, open_store

PLAIN = StoreConfig(
    log_file_size=4096, queue_file_size=400, index_slot_count=20, index_item_count=60, statistics=False,
)  # fmt: skip
LEDGER = replace(PLAIN, dledger=LedgerConfig(index_file_size=640))
CONVERTS = replace(PLAIN, dledger=LedgerConfig(index_file_size=640, converts=True))


def put(store: Store, count: int, word: str = "m") -> None:
    for number in range(count):
        assert store.put(
            Message("t", f"{word} {number}".encode() * 5, queue_id=number % 3, keys=[f"k{number}"])
        ).is_stored
    store.flush()


def image(root: Path) -> dict[str, bytes]:
    """What stands below a directory but the lock."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name != "lock"
    }


def member(*paths: Path, converts: bool = False) -> StoreConfig:
    settings = LedgerConfig(index_file_size=640, data_paths=tuple(map(str, paths)), converts=converts)
    return replace(PLAIN, dledger=settings)


def converted(tmp_path: Path, is_ended_cleanly: bool = True) -> tuple[Path, Path]:
    """A store that went over to a DLedger log in another directory, and that directory; 50 messages."""
    root, data = tmp_path / "store", tmp_path / "elsewhere" / "data"
    with open_store(root, PLAIN) as store:
        put(store, 30)
    store = open_store(root, member(data, converts=True))
    put(store, 20, "new")
    if is_ended_cleanly:
        store.close()
    else:
        store.abandon()
    return root, data
