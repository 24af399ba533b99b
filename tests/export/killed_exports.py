"""Exports in children of a process that does nothing else, so that each can be killed at any moment of its work.

Reads lines of JSON, [form, store, place], from standard input; for each makes a child that exports, tells its id, and
then how it ended.  The parent of it all kills.
"""

import json
import os
import sys

from rmqstore.export import ExportWish, export_messages

# Of these rows are read at once, and so small are files: a run has many steps.
BATCH_ROWS = 100
TARGET_BYTES = {"parquet": 4000, "json-lines": 4000, "store": 20_000}
COLUMNS = ("topic", "queueId", "queueOffset", "body")


def wish_of(form: str) -> ExportWish:
    """The wish of the tests in a format."""
    columns = None if form == "store" else COLUMNS
    return ExportWish(
        format=form, columns=columns, partition_by=(), batch_rows=BATCH_ROWS, target_bytes=TARGET_BYTES[form]
    )  # fmt: skip


def tell(number: int) -> None:
    """A line for whoever kills."""
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def main() -> None:
    for line in sys.stdin:
        form, store, place = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                export_messages(store, place, wish_of(form))
                status = 0
            finally:
                os._exit(status)
        tell(child)
        tell(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main()
