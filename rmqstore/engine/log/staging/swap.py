"""A store put in the place of another as a whole: made beside it, then swapped in by two renames.

    <store>.rmqstore-new   the store that is being made; whole and closed once the first rename is done
    <store>.rmqstore-old   the store that was replaced, until it is removed

Between the two renames nothing stands at <store>: whoever opens it, or makes anything there, completes the swap before,
by `finish_swap`.
"""

from rmqstore.directory.store_root import require_remains, require_replaceable
from rmqstore.engine.log.staging.sweep import remove_tree
from rmqstore.errors import NotAStore
from rmqstore.files.filesystem import FileSystem, directory_of

_NEW = ".rmqstore-new"
_OLD = ".rmqstore-old"


def new_root(root: str) -> str:
    """Where the store is made that will stand at `root`."""
    return root + _NEW


def clear_new(fs: FileSystem, root: str) -> str:
    """Room for the new store, without what a swap that was given up left; returns `new_root`.  Raises NotAStore for
    what no swap left, OSError.
    """
    path = new_root(root)
    require_replaceable(fs, path)
    remove_tree(fs, path)
    fs.sync_directory(directory_of(path))
    return path


def swap(fs: FileSystem, root: str) -> None:
    """Puts the store at `new_root`, which is whole and on the disk, in the place of that at `root`, durably.

    The caller holds the lock of the old one.  Raises NotAStore for what came into it meanwhile and is no part of a
    store, OSError: then the next `finish_swap` tells how it went on.
    """
    require_replaceable(fs, root)
    parent = directory_of(root)
    fs.rename(root, root + _OLD)
    fs.sync_directory(parent)
    _put_in_place(fs, root)
    _remove_old(fs, root)


def finish_swap(fs: FileSystem, root: str) -> None:
    """Completes a swap that a crash interrupted, for whoever comes next: before the store at `root` is opened, and
    before anything is made there.

    Raises NotAStore for what no swap left, and where something was made at `root` in between: then both stores stay as
    they are.  OSError.
    """
    if not fs.exists(root + _OLD):
        return
    require_remains(fs, root + _OLD)
    if fs.exists(new_root(root)):
        if fs.exists(root):
            raise NotAStore(
                root,
                f"was made while {new_root(root)} was to take the place of {root + _OLD}, and both are whole; move it "
                "away, and open the store again",
            )
        _put_in_place(fs, root)
    elif not fs.exists(root):
        return
    fs.sync_directory(directory_of(root))
    _remove_old(fs, root)


def _put_in_place(fs: FileSystem, root: str) -> None:
    try:
        fs.rename(new_root(root), root)
    except FileNotFoundError:  # somebody else has completed the swap
        if fs.exists(new_root(root)) or not fs.exists(root):
            raise
    fs.sync_directory(directory_of(root))


def _remove_old(fs: FileSystem, root: str) -> None:
    remove_tree(fs, root + _OLD)
    fs.sync_directory(directory_of(root))
