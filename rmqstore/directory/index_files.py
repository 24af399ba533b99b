"""The index files of a store, and whether each is sound."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rmqstore.directory.listing import stored_files
from rmqstore.errors import NotNow
from rmqstore.files.disk import ReadableDisk, ReadPages, StoredFile, join, pages
from rmqstore.formats import index, index_table, names
from rmqstore.formats.names import INDEX_ROOM

# Of a file that is shorter than one: it knows nothing, and is damaged.
_NO_HEADER = index.IndexHeader(0, 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One index file with its inferred sizes; `slot_count` 0 for a file that holds nothing."""

    file: StoredFile
    header: index.IndexHeader
    slot_count: int
    item_count: int


@contextmanager
def index_pages(disk: ReadableDisk, file: StoredFile, is_mapped: bool) -> Iterator[memoryview | ReadPages]:
    """The bytes of an index file, as what slices are taken of.  Raises NotNow if it is removed or cut meanwhile: a
    recovery writes it again, a broker deletes it with its messages.
    """
    source = None
    try:
        source = disk.open(file.path)
        yield pages(source, file.size, is_mapped=is_mapped and disk.can_map)
    except OSError as error:
        raise NotNow(f"{file.path}: {error.strerror or error}; the index changes just now: ask again") from None
    finally:
        if source is not None:
            source.close()


def index_files(disk: ReadableDisk, root: str, is_mapped: bool) -> list[IndexFile]:
    """The index files of a store in the order of the log; one that vanishes meanwhile is left out.  Raises NotNow.

    `is_mapped`: they may be mapped into memory.
    """
    found = []
    for file in stored_files(disk, join(root, INDEX_ROOM), names.parse_index_name):
        if not disk.exists(file.path):
            continue
        with index_pages(disk, file, is_mapped) as data:
            header = index.read_header(data) or _NO_HEADER
            found.append(IndexFile(file, header, *(index.infer_sizes(data) or (0, 0))))
    return sorted(found, key=lambda each: index.log_order(each.header, each.file.start))


@functools.lru_cache(maxsize=256)
def finds_all(disk: ReadableDisk, file: IndexFile, is_mapped: bool) -> bool:
    """Whether a search of the file finds all that it should, as far as the file tells: header, slots and items agree.

    Looked at once: a file that changes is another one, by its header or its time of change.  Raises NotNow.
    """
    if not file.slot_count:
        return False
    with index_pages(disk, file.file, is_mapped) as data:
        count = index.put_count(data, file.slot_count)
        if not 1 < count == file.header.index_count:
            return False
        if not 0 < file.header.begin_timestamp_ms <= file.header.end_timestamp_ms:
            return False  # a search goes by these times
        ends = tuple(index.item_offset(data, file.slot_count, number) for number in (1, count - 1))
        is_anchored = ends == (file.header.begin_offset, file.header.end_offset)
        return is_anchored and index_table.finds_all(data, file.slot_count)
