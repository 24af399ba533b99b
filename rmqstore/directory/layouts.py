"""Where things stand below a store's root, and which layouts of RocketMQ tell of themselves there."""

from collections.abc import Iterable

from rmqstore.files.disk import ReadableDisk, join, read_small
from rmqstore.files.reading import LOCAL
from rmqstore.formats import names
from rmqstore.formats.checkpoint import FILE_SIZE, Checkpoint, read_checkpoint

# The directories of a root that hold queues: of plain ones, of batches, and the extension units of entries.
PLAIN_ROOM, BATCH_ROOM, EXTENSION_ROOM = QUEUE_ROOMS = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
# The directory of a DLedger group begins so.
LEDGER_PREFIX = "dledger-"
# Directories of a root that hold files with numbers for names and are no commitlog.
_NO_LOGS = frozenset((*QUEUE_ROOMS, "timerlog", "index", "config", "compaction"))


def log_candidates(root: str, children: Iterable[str]) -> list[str]:
    """The paths of those directories of a root that may be commitlogs by their names: `commitlog`, and of a broker with
    several paths (storePathCommitLog) whatever they are called.
    """
    return [join(root, name) for name in children if name not in _NO_LOGS and not name.startswith(LEDGER_PREFIX)]


def is_rocksdb(root: str, disk: ReadableDisk = LOCAL) -> bool:
    """Whether consumequeue/ is a RocksDB database (storeType=defaultRocksDB) and not directories of entries."""
    return disk.exists(join(root, PLAIN_ROOM, "CURRENT"))


def load_checkpoint(root: str, disk: ReadableDisk = LOCAL, *, past_directories: bool = True) -> Checkpoint | None:
    """What the checkpoint file says, zeros where it is cut short; None where there is none.  Raises as `read_small`.

    `past_directories`: a directory of that name counts as none, for whoever will not put a file in its place.
    """
    path = join(root, names.CHECKPOINT_FILE)
    data = None if past_directories and disk.is_directory(path) else read_small(disk, path, FILE_SIZE)
    return None if data is None else read_checkpoint(data)


def root_hint(root: str, children: Iterable[str], disk: ReadableDisk = LOCAL) -> str:
    """What to say of a directory that is no store: one of the directories in it may have been meant."""
    nested = [name for name in children if disk.is_directory(join(root, name, "commitlog"))]
    return f"did you mean {join(root, nested[0])}?" if nested else names.LOG_WANTED
