"""Small stores on a DLedger log, and what is put to them."""

from dataclasses import replace

from rmqstore import LedgerConfig, Message, Store, StoreConfig

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
