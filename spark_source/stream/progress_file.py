"""The progress of a reader, written for lag tools: a file in the shape of config/consumerOffset.json.

It never lies inside of a store: a broker would take it for the progress of its own consumers.
"""

from collections.abc import Mapping, Sequence

from rmqstore.errors import Rejected
from rmqstore.files.filesystem import RealFileSystem, directory_of
from rmqstore.files.reading import is_directory, real_path
from rmqstore.files.replace import replace_file
from rmqstore.formats.broker_json_text import consumer_offsets_text

# {broker: {topic: {queue id: next offset}}}
Progress = Mapping[str, Mapping[str, Mapping[int, int]]]


class ProgressFile:
    """One file, or with several brokers one each, `<path>.<broker>`: the shape has no room for a broker's name."""

    def __init__(self, path: str, group: str, stores: Sequence[str]) -> None:
        """`group`: the consumer group whose progress it is; `stores`: directories in which the file must not lie.

        Raises Rejected for a path that lies inside of a store, links followed, or in a directory that does not exist.
        """
        self._path = real_path(path)
        self._group = group
        self._fs = RealFileSystem()
        for store in stores:
            if (self._path + "/").startswith(real_path(store).rstrip("/") + "/"):
                raise Rejected(f"progressFile={path}: lies in the store {store}; name a file outside of the store")
        if not is_directory(directory_of(self._path)):
            raise Rejected(f"progressFile={path}: there is no directory {directory_of(self._path)}; create it")

    def write(self, progress: Progress, *, only_broker: str | None) -> None:
        """Replaces the file, or each of them: after a crash it is the old one or the new one.

        `only_broker`: the broker of the only store that is read, None where there are several.  Offsets of another,
        which a stream of more stores has left, are not written then: they would be taken for those of this store.

        Raises Rejected when the disk refuses.
        """
        for broker, topics in progress.items():
            if only_broker not in (None, broker):
                continue
            path = self._path if only_broker is not None else f"{self._path}.{broker}"
            offsets = {(self._group, topic): dict(sorted(queues.items())) for topic, queues in sorted(topics.items())}
            try:
                replace_file(self._fs, path, consumer_offsets_text(offsets, None).encode())
            except OSError as error:
                raise Rejected(f"progressFile={path}: cannot be written ({error.strerror}); make room there") from None
