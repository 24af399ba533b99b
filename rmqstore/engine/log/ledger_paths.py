"""Where the log of a store in DLedger mode lies: the data of its member, behind those of an ordinary commitlog."""

from collections.abc import Sequence
from dataclasses import replace

from rmqstore.config import StoreConfig
from rmqstore.core.ledger_config import LedgerConfig
from rmqstore.directory.layouts import logs_below
from rmqstore.directory.ledger.nodes import NODE_PREFIX, LedgerNode, holds_messages, nodes_below, wrapped_files
from rmqstore.directory.listing import stored_files
from rmqstore.errors import NotAStore, Rejected
from rmqstore.files.disk import ReadableDisk, join
from rmqstore.files.reading import LOCAL, StorePath, canonical_path
from rmqstore.formats.names import QUEUE_ROOMS


def node_of(root: str, settings: LedgerConfig) -> LedgerNode:
    """The member's directory."""
    return LedgerNode(join(root, f"{NODE_PREFIX}{settings.self_id}"))


def with_ledger_paths(disk: ReadableDisk, root: str, config: StoreConfig) -> StoreConfig:
    """The configuration with the paths of the store's log: the member's data as `log_paths`, and as paths that get no
    new file an ordinary commitlog that is in front of them, and data that are only read: `entry_paths` tells these
    apart.  As it is where it names no member.  Raises Rejected where all data are only read, OSError.
    """
    if config.dledger is None:
        return config
    data = config.dledger.data_paths or (node_of(root, config.dledger).data,)
    read_only = [path for path in dict.fromkeys(config.read_only_log_paths) if path in data or _has_data(disk, path)]
    writable = tuple(path for path in data if path not in read_only)
    if not writable:
        raise Rejected(f"read_only_log_paths={', '.join(data)}: only read, and none of its data_paths is left for new "
                       "files")  # fmt: skip
    given = (*config.log_paths, *config.read_only_log_paths, *logs_below(disk, root))
    known = {*data, *read_only}
    old = [path for path in dict.fromkeys(given) if path not in known and stored_files(disk, path)]
    return replace(config, log_paths=writable, read_only_log_paths=(*old, *read_only))


def entry_paths(disk: ReadableDisk, config: StoreConfig) -> tuple[str, ...]:
    """Of a configuration `with_ledger_paths`: the directories of its member's data, those that are only read last.

    Raises OSError.
    """
    if config.dledger is None:
        return ()
    named = config.dledger.data_paths
    read_only = (path for path in config.read_only_log_paths if path in named or _has_data(disk, path))
    return (*config.log_paths, *read_only)


def _has_data(disk: ReadableDisk, path: str) -> bool:
    return bool(wrapped_files(disk, path))


def with_found_member(path: StorePath, config: StoreConfig, disk: ReadableDisk = LOCAL) -> StoreConfig:
    """The configuration, with the member that has its directory below `path` where none is named.

    Raises NotAStore for what is no path, and where several have theirs there; OSError.
    """
    root = canonical_path(path)
    nodes = [node for node in nodes_below(disk, root) if node.self_id] if config.dledger is None else []
    if not nodes or not _is_brokers(disk, root, nodes):
        return config
    if len(nodes) > 1:
        members = " and ".join(node.self_id for node in nodes)
        raise NotAStore(root, f"has members {members} of a DLedger group: broker.conf names the broker's, dLegerSelfId")
    return replace(config, dledger=LedgerConfig(self_id=nodes[0].self_id))


def _is_brokers(disk: ReadableDisk, root: str, nodes: Sequence[LedgerNode]) -> bool:
    """Whether a root is a broker's rather than another program's: it has queues, or messages are in the entries."""
    if any(disk.is_directory(join(root, room)) for room in QUEUE_ROOMS):
        return True
    return any(holds_messages(disk, node) for node in nodes)
