"""Stores that appear in a directory of stores while a stream follows it."""

from collections.abc import Collection, Sequence

from rmqstore.errors import DataLost, NotAStore, StoreChanging
from rmqstore.files.disk import ReadableDisk
from rmqstore.files.reading import canonical_path
from rmqstore.snapshot.request import Access
from rmqstore.snapshot.stores_in import StoresIn, list_stores, refuse_one_log_twice
from rmqstore.snapshot.survey.extents import StoreExtent
from rmqstore.snapshot.survey.missing_log import require_agreed, require_log
from rmqstore.snapshot.survey.survey import survey


class Arrivals:
    """Looks for stores that are not followed yet.

    What else appears there is `passed_over`, the reason by path: a running stream does not end because somebody began
    to copy something.  One that begins is told.
    """

    def __init__(self, paths: StoresIn, access: Access, disk: ReadableDisk) -> None:
        self.directory = canonical_path(paths.directory)
        self.passed_over: dict[str, str] = {}
        self._access, self._disk = access, disk
        self._compared: frozenset[str] = frozenset()

    def besides(self, known: Collection[str]) -> list[StoreExtent]:
        """The stores that are there, without those of the brokers that are `known`, and without one that changes too
        much to be looked at: that is seen by a later look.  Raises Rejected for a store that came under a wrong name.
        """
        listed = list_stores(self._disk, self.directory, known)
        found, passed_over = [], {}
        for path, error in listed.strays.items():
            if not isinstance(error, NotAStore):
                raise error
            passed_over[path] = error.reason
        for name, path in listed.stores:
            try:
                store = survey(self._disk, path, name, self._access)
                require_log(store)
                require_agreed(store)
                found.append(store)
            except (DataLost, FileNotFoundError, StoreChanging):
                continue
            except NotAStore as error:
                passed_over[path] = error.reason
        self.passed_over = passed_over
        return found

    def require_own_logs(self, stores: Sequence[StoreExtent]) -> None:
        """Raises Rejected for two stores with the same log, as soon as they have any of it."""
        begun = frozenset(store.broker_name for store in stores if store.log_end > store.log_start)
        if begun != self._compared:
            refuse_one_log_twice(stores)
            self._compared = begun
