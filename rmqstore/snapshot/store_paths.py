"""Which directories a user means by the paths of stores, each store with the directories of its commitlog."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rmqstore.core.arguments import wrong_type
from rmqstore.directory.config_files import tell_once
from rmqstore.directory.ledger.nodes import is_node
from rmqstore.directory.listing import is_log_directory
from rmqstore.errors import NotAStore, Rejected
from rmqstore.files.disk import ReadableDisk
from rmqstore.files.reading import LOCAL, StorePath, canonical_path, path_list
from rmqstore.formats.names import LOG_ROOM, PLAIN_ROOM
from rmqstore.snapshot.stores_in import StoresIn, list_stores, refuse_one_log_twice, required_stores
from rmqstore.snapshot.survey.extents import NAMELESS, StoreExtent, stored_broker_name
from rmqstore.snapshot.survey.found_log import look_at_root, refuse_unread_layouts

_NAME_THEM = "name them, as {'broker-a': PATH, 'broker-b': PATH}"
# A store, or a store and the directories of its commitlog that lie elsewhere.
StorePaths = StorePath | Sequence[StorePath]
Paths = StorePath | Sequence[StorePaths] | Mapping[str, StorePaths] | StoresIn


class StoreDirectories(NamedTuple):
    """One store: its broker's name where one is given, its directory, and its log directories elsewhere, absolute."""

    broker_name: str | None
    root: str
    logs: tuple[str, ...]


def require_stores(paths: Paths, disk: ReadableDisk = LOCAL, *, takes_nodes: bool = False) -> None:
    """Looks whether `paths`, as `open_snapshot` takes them, are stores that can be opened; reads directories only.
    `takes_nodes`: as `ledger_entries` takes them, directories of DLedger nodes as well.

    Raises NotAStore, UnsupportedLayout, Rejected.
    """
    for _, root, logs in store_directories(disk, paths):
        if takes_nodes and is_node(disk, root):
            continue
        refuse_unread_layouts(disk, look_at_root(disk, root, logs))


def stores_below(path: StorePath, disk: ReadableDisk = LOCAL) -> StoresIn | None:
    """All stores in a directory that is none itself and has some; None for any other path.  A single store counts where
    nothing else stands beside it and it has a broker's name, which is not merely that of its directory.
    """
    directory = canonical_path(path)
    if not disk.is_directory(directory) or {LOG_ROOM, PLAIN_ROOM}.intersection(disk.names(directory)):
        return None
    stores, strays = list_stores(disk, directory)
    has_misnamed = any(isinstance(stray, Rejected) for stray in strays.values())  # to be told when they are opened
    is_lone = len(stores) == 1 and not has_misnamed
    if is_lone and (strays or stored_broker_name(disk, stores[0].path).name == NAMELESS):
        return None
    return StoresIn(directory) if stores else None


def store_directories(disk: ReadableDisk, paths: Paths) -> list[StoreDirectories]:
    """The directories of each store in `paths`, which take the shapes of `open_snapshot`.  Raises NotAStore,
    Rejected.
    """
    if not hasattr(disk, "entries"):
        raise wrong_type("disk", disk, "a rmqstore.files.disk.ReadableDisk")
    named: list[tuple[str | None, StorePaths]]
    if isinstance(paths, StoresIn):
        named = list(required_stores(disk, paths))
    elif isinstance(paths, Mapping):
        named = list(paths.items())
    else:
        named = [(None, path) for path in path_list(paths)]
    if not named:
        raise Rejected("no store given: name at least one directory")
    found: list[StoreDirectories] = []
    for name, given in named:
        if not path_list(given):
            raise Rejected(f"no directory given for the store {name or len(found)}: name it")
        first, *logs = path_list(given)
        if name is None and found and not logs and is_log_directory(disk, canonical_path(first)):
            owner, path, before = found.pop()
            found.append(StoreDirectories(owner, path, (*before, canonical_path(first))))
            continue
        for log in map(canonical_path, logs):
            if not disk.is_directory(log):
                raise NotAStore(log, "is not a directory; give those of storePathCommitLog, after the store's own")
        found.append(StoreDirectories(name, canonical_path(first), tuple(map(canonical_path, logs))))
    _refuse_one_store_twice(disk, [store.root for store in found])
    return found


def told_apart(stores: Sequence[StoreExtent]) -> list[StoreExtent]:
    """The stores, and each that may be of several brokers under the one name that no other store has.  Where that
    leaves several, the log says that the name is a guess.
    """
    named = list(stores)
    for _ in named:
        sure = {store.broker_name for store in named if not store.other_names}
        for number, store in enumerate(named):
            free = [name for name in (store.broker_name, *store.other_names) if name not in sure]
            if store.other_names and len(free) == 1:
                named[number] = replace(store, broker_name=free[0], other_names=())
    for store in named:
        if store.other_names:
            tell_once(
                f"{store.path} is taken for the store of the broker {store.broker_name!r}, which is a guess: its "
                f"topics.json is of {' and '.join(map(repr, (store.broker_name, *store.other_names)))}; "
                f"{_NAME_THEM}"
            )
    return named


def refuse_doubles(paths: Paths, stores: Sequence[StoreExtent]) -> None:
    """Raises Rejected for two stores of one broker name; of those in a directory also for two with the same log."""
    by_name: dict[str, str] = {}
    for store in stores:
        before = by_name.setdefault(store.broker_name, store.path)
        if before != store.path:
            raise Rejected(
                f"several stores of a broker called {store.broker_name}, {before} and {store.path}: {_NAME_THEM}"
            )
    if isinstance(paths, StoresIn):
        refuse_one_log_twice(stores)


def _refuse_one_store_twice(disk: ReadableDisk, paths: Sequence[str]) -> None:
    """Raises Rejected for two names of one directory: each message would come twice."""
    by_place: dict[str, str] = {}
    for path in paths:
        before = by_place.setdefault(disk.real_path(path), path)
        if before is not path:
            raise Rejected(f"{path} is the same directory as {before}, so that each message would come twice")
