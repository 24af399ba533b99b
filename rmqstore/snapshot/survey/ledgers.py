"""Directories of DLedger, which nothing here reads: refused wherever somebody points at one."""

from collections.abc import Sequence

from rmqstore.directory.layouts import LEDGER_PREFIX
from rmqstore.errors import UnsupportedLayout
from rmqstore.files import reading
from rmqstore.files.disk import StoredFile
from rmqstore.formats import dledger, names

_ROOMS = ("data", "index")
_ADVICE = (
    "a DLedger commitlog wraps each message in an entry of its own, which this version does not read yet; "
    "read the store of a broker without enableDLegerCommitLog"
)


def refuse_ledgers(root: str, log_files: Sequence[StoredFile]) -> None:
    """Raises UnsupportedLayout for a broker's root in DLedger mode, also beside a commitlog from before it, for the
    directory of a node, for `data` and `index` in it, and for `log_files` that are DLedger's wherever they lie.
    """
    for name in reading.list_directories(root):
        ledger = reading.join(root, name)
        if name.startswith(LEDGER_PREFIX) and (not log_files or _numbered(reading.join(ledger, "data"))):
            raise UnsupportedLayout(ledger, _ADVICE)
    parent = reading.canonical_path(reading.join(root, ".."))
    is_room = root in (reading.join(parent, room) for room in _ROOMS)
    if _is_node(root) or (is_room and _is_node(parent)):
        raise UnsupportedLayout(root, _ADVICE)
    if log_files and _begins_as_ledger(log_files[0]):
        raise UnsupportedLayout(log_files[0].path, _ADVICE)


def _is_node(directory: str) -> bool:
    """Whether both rooms hold files by number of bytes; the index of a store is named by times."""
    return all(_numbered(reading.join(directory, room)) for room in _ROOMS)


def _numbered(directory: str) -> tuple[StoredFile, ...]:
    return reading.list_stored_files(directory, names.parse_start)


def _begins_as_ledger(file: StoredFile) -> bool:
    try:
        with reading.OpenFile(file.path) as source:
            return dledger.is_entry(source.read(0, dledger.ENTRY_HEAD.size), file.start)
    except OSError:  # its owner deleted it
        return False
