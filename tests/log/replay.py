"""The commitlog of a golden store, read once, and fed to dispatchers on a disk in memory."""

import functools
import gzip
import io
import tarfile
from collections.abc import Iterator

from rmqstore.formats.message import Torn
from rmqstore.formats.names import parse_start
from rmqstore.records.batch import RecordBatch
from rmqstore.records.dispatcher import Dispatcher
from rmqstore.records.read_batches import read_batches
from tests.golden.cases import FOLDERS, load_expected


@functools.lru_cache(maxsize=4)
def golden_files(case: str) -> dict[str, bytes]:
    """Content by path below the store."""
    data = gzip.decompress((FOLDERS[case] / "store.tar.gz").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = {member.name.removeprefix("store/"): archive.extractfile(member) for member in archive}
        return {name: source.read() for name, source in members.items() if source is not None}


def golden_batches(case: str, window_size: int, start: int = 0) -> Iterator[RecordBatch]:
    """The records of a golden store's log from `start` on, in batches of what such a window holds."""
    files = golden_files(case)
    named = ((name.rpartition("/"), data) for name, data in files.items())
    log = {parse_start(stem): data for (folder, _, stem), data in named if folder in {"commitlog", "log-a", "log-b"}}
    file_size = load_expected(case)["config"]["mappedFileSizeCommitLog"]

    def read(offset: int, size: int) -> bytes:
        position = offset % file_size
        return log.get(offset - position, b"")[position : position + size]

    end = max(start for start in log if start is not None) + file_size
    first = min(start for start in log if start is not None)
    for found in read_batches(read, max(start, first), end, file_size, window_size=window_size):
        if isinstance(found, RecordBatch):
            yield found
        elif isinstance(found, Torn):
            return


def replay(case: str, dispatchers: list[Dispatcher], window_size: int) -> None:
    """Hands every record of the store to the dispatchers, as dispatch does."""
    for batch in golden_batches(case, window_size):
        for dispatcher in dispatchers:
            dispatcher.dispatch(batch)
