"""One file of Parquet that a user names: there as a whole, or not at all."""

import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress

import pyarrow as pa

from rmqstore.errors import Rejected, next_step
from rmqstore.export.directory import require_apart
from rmqstore.export.open_files import GROUP_BYTES, ParquetFile
from rmqstore.files.filesystem import RealFileSystem, directory_of, join
from rmqstore.files.replace import output_path


def parquet_place(path: str, stores: Sequence[str], *, may_replace: bool) -> str:
    """Where a file is to be written.  Raises Rejected, NotAStore for a place in a store, for a file that is there
    already unless it may be replaced, and as `output_path`.
    """
    real = output_path(path, stores)
    fs = RealFileSystem()
    require_apart(fs, real, stores)
    if not may_replace:
        _require_new(fs, real)
    return real


def write_parquet(path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, may_replace: bool) -> int:
    """Writes the batches to a place of `parquet_place`; how many rows they had.  Memory holds a row group.

    Raises Rejected where the disk refuses, or the file came meanwhile; what the batches raise.
    """
    fs = RealFileSystem(is_shared=True)
    temporary = join(directory_of(path), f".{secrets.token_hex(8)}.tmp")
    try:
        file = ParquetFile(fs, temporary, schema, "zstd")
        try:
            count = _written(file, schema, batches)
            if not may_replace:
                _require_new(fs, path)
            fs.rename(temporary, path)
            fs.sync_directory(directory_of(path))
        except BaseException:
            file.give_up()
            with suppress(OSError):
                fs.remove(temporary)
            raise
    except OSError as failure:
        raise Rejected(f"{path}: cannot be written ({failure.strerror}); {next_step(failure)}") from None
    return count


def _require_new(fs: RealFileSystem, path: str) -> None:
    if fs.exists(path):
        raise Rejected(f"{path}: is there already; name another file, or have it replaced (--overwrite)")


def _written(file: ParquetFile, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        held.append(batch.select(schema.names))
        count += batch.num_rows
        size += batch.get_total_buffer_size()
        if size >= GROUP_BYTES:
            file.write(pa.Table.from_batches(held, schema))
            held, size = [], 0
    if held or not count:
        file.write(pa.Table.from_batches(held, schema))
    file.finish()
    return count
