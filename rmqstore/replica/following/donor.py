"""A store that only serves its log: it takes no puts, delivers nothing and checks no transactions."""

from typing import Self

from rmqstore.clock import SYSTEM_CLOCK
from rmqstore.config import HaConfig, StoreConfig
from rmqstore.directory.store_root import found_store
from rmqstore.engine.engine import Attached, Engine
from rmqstore.errors import Rejected
from rmqstore.files.filesystem import RealFileSystem
from rmqstore.files.reading import StorePath


class Donor:
    """The store at `path`, open for slaves as `serving` says; recovered first if it was not closed.

    Raises NotAStore for a path without a store, StoreInUse while somebody else has it, and what `open_store` raises.
    """

    def __init__(self, path: StorePath, serving: HaConfig) -> None:
        root = found_store(path)
        attached = Attached(follows="nobody: it only serves its log")
        self._engine = Engine(root, StoreConfig(ha=serving), SYSTEM_CLOCK, RealFileSystem(), attached)
        if self._engine.log.start == self._engine.log.marks.appended:
            self._engine.close()
            raise Rejected(f"{root} has no messages to serve")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def path(self) -> str:
        """The store's directory."""
        return self._engine.path

    @property
    def address(self) -> str:
        """host:port where slaves attach."""
        assert self._engine.master is not None
        return self._engine.master.address

    @property
    def log_start(self) -> int:
        """The first offset that it has."""
        return self._engine.log.start

    @property
    def log_end(self) -> int:
        """Where its log ends."""
        return self._engine.log.marks.appended

    def slaves(self) -> dict[str, int]:
        """By address, how far each connected slave has acknowledged the log."""
        return {} if self._engine.master is None else self._engine.master.slaves

    def close(self) -> None:
        """Ends all connections, and the store.  Raises as Store.close."""
        self._engine.close()
