"""Where the log of a store in DLedger mode lies: the data of its member, behind those of an ordinary commitlog."""

from dataclasses import replace

from rmqstore.config import StoreConfig
from rmqstore.directory.layouts import logs_below
from rmqstore.directory.ledger.nodes import NODE_PREFIX, LedgerNode, nodes_below
from rmqstore.directory.listing import stored_files
from rmqstore.files.disk import ReadableDisk, join
from rmqstore.files.reading import LOCAL, StorePath, canonical_path
from rmqstore.formats.names import QUEUE_ROOMS
from rmqstore.ledger_config import LedgerConfig


def node_of(root: str, settings: LedgerConfig) -> LedgerNode:
    """The member's directory."""
    return LedgerNode(join(root, f"{NODE_PREFIX}{settings.self_id}"))


def with_ledger_paths(disk: ReadableDisk, root: str, config: StoreConfig) -> StoreConfig:
    """The configuration with the paths of the store's log: the member's data as `log_paths`, and an ordinary commitlog
    that is in front of them as paths that get no new file.  As it is where it names no member.  Raises OSError.
    """
    if config.dledger is None:
        return config
    data = config.dledger.data_paths or (node_of(root, config.dledger).data,)
    given = (*config.log_paths, *config.read_only_log_paths, *logs_below(disk, root))
    old = [path for path in dict.fromkeys(given) if path not in data and stored_files(disk, path)]
    return replace(config, log_paths=tuple(data), read_only_log_paths=tuple(old))


def with_found_member(path: StorePath, config: StoreConfig, disk: ReadableDisk = LOCAL) -> StoreConfig:
    """The configuration, with the member that has its directory below `path` where it is the only one and none is
    named.  Raises NotAStore for what is no path, OSError."""
    root = canonical_path(path)
    nodes = nodes_below(disk, root) if config.dledger is None else []
    is_brokers = any(disk.is_directory(join(root, room)) for room in QUEUE_ROOMS)  # else another program's
    if len(nodes) != 1 or not nodes[0].self_id or not is_brokers:
        return config
    return replace(config, dledger=LedgerConfig(self_id=nodes[0].self_id))
