"""Later looks at the stores of a snapshot."""

import threading

from rmqstore.files.disk import ReadableDisk
from rmqstore.snapshot.opening import open_stores
from rmqstore.snapshot.request import Access
from rmqstore.snapshot.store_paths import Paths
from rmqstore.snapshot.stream.ends import StreamEnds
from rmqstore.snapshot.survey.extents import StoreExtent


class LaterLooks:
    """The same stores, looked at again and again; any thread.  `uncommitted` as in `open_snapshot`."""

    def __init__(self, paths: Paths, access: Access, disk: ReadableDisk, *, uncommitted: bool) -> None:
        self._paths, self._access, self._disk, self._uncommitted = paths, access, disk, uncommitted
        self._ends = StreamEnds(paths, access, disk)
        self._looking = threading.Lock()

    def look(self) -> tuple[StoreExtent, ...]:
        """The stores as they are now; each the same object as before where nothing in it is new.  Raises as
        `open_snapshot`."""
        if self._uncommitted:  # streams never go there
            return open_stores(self._paths, access=self._access, disk=self._disk, include_uncommitted=True).stores
        with self._looking:
            return self._ends.look().stores
