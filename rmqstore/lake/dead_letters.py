"""A file of dead letters: where each record stands that could not be read, and why; a JSON object a line."""

import json
from collections.abc import Sequence

import pyarrow as pa

from rmqstore.errors import Rejected, next_step
from rmqstore.files.replace import output_path
from rmqstore.lake.table_columns import PLACE, REASON


class DeadLetterFile:
    """Appends to a file; a record comes again where a run was killed before its commit."""

    def __init__(self, path: str, stores: Sequence[str]) -> None:
        """Raises Rejected for a path that no file can have, or that lies in one of the stores."""
        self._path = output_path(path, stores)

    def __call__(self, rows: pa.RecordBatch) -> None:
        """Takes damaged rows."""
        names = [*(name for name in PLACE if name != "storeTimestamp"), REASON]
        lines = "".join(f"{json.dumps(row)}\n" for row in rows.select(names).to_pylist())
        try:
            with open(self._path, "ab") as file:
                file.write(lines.encode())
        except OSError as failure:
            raise Rejected(
                f"{self._path}: cannot be written ({failure.strerror}); {next_step(failure, 'write')}"
            ) from None  # fmt: skip
