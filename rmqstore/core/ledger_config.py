"""The settings of a store whose commitlog stands in a DLedger log."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rmqstore.core.annotations import plain_values
from rmqstore.errors import Rejected
from rmqstore.formats.dledger import INDEX_UNIT

# Java: DLedgerConfig.mappedFileSizeForEntryIndex, which RocketMQ leaves as it is.
INDEX_FILE_SIZE = 5 * 1024 * 1024 * INDEX_UNIT.size


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerConfig:
    """A commitlog in the log of a DLedger group of which this store is the only member; sizes are bytes.

    `self_id` is the member's name in the group (dLegerSelfId), and its directory `dledger-<self_id>` below the root;
    `data_paths` are the directories of its data files where they are elsewhere (storePathDLedgerCommitLog).  Java nodes
    open only an index in files of `index_file_size` bytes that is their own setting, which RocketMQ leaves at its
    default.  `converts`: a store with an ordinary commitlog goes on in a DLedger log after it; without, it is refused.
    `takes_over`: a member of a group of several goes on alone, and what it has counts as agreed on; without, it is
    refused.  Every `checkpoint_interval_ms` the file `checkpoint` says how far that is.  `body_crc`: entries carry a
    CRC of all that they hold, which RocketMQ leaves 0; without, a record's own CRC is of the message's body alone.
    Raises Rejected.
    """

    self_id: str = "n0"  #: the member's name, a letter and a number (dLegerSelfId)
    data_paths: tuple[str, ...] = ()  #: directories of the data files, if elsewhere
    index_file_size: int = INDEX_FILE_SIZE  #: bytes of a file of the index
    converts: bool = False  #: whether a store with an ordinary commitlog goes over
    takes_over: bool = False  #: whether a member of a group of several goes on alone
    checkpoint_interval_ms: int = 3000  #: how often `checkpoint` is written
    body_crc: bool = True  #: whether entries carry a CRC of all that they hold

    def __post_init__(self) -> None:
        plain, mistakes = plain_values(self)
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        if not mistakes:
            mistakes += self._mistakes()
        if mistakes:
            raise Rejected("; ".join(mistakes))

    def _mistakes(self) -> list[str]:
        found = []
        if not re.fullmatch(r"[A-Za-z][0-9]{1,9}", self.self_id):
            found.append(f"self_id={self.self_id!r}: write a letter and a number, such as n0")
        if not 0 < self.index_file_size < 2**31 or self.index_file_size % INDEX_UNIT.size:
            found.append(f"index_file_size={self.index_file_size}: a multiple of {INDEX_UNIT.size} below 2 GiB")
        if len({*self.data_paths}) < len(self.data_paths) or not all(map(str.strip, self.data_paths)):
            found.append(f"data_paths={self.data_paths!r}: name each directory once")
        if self.checkpoint_interval_ms < 1:
            found.append(f"checkpoint_interval_ms={self.checkpoint_interval_ms}: at least 1")
        return found


def ledger_of_broker(pairs: Mapping[str, str]) -> dict[str, Any]:
    """The setting `dledger` that a broker's configuration says; nothing for a broker without.  Raises Rejected."""
    if pairs.get("enableDLegerCommitLog", "false").lower() != "true":
        return {}
    peers = [peer for peer in pairs.get("dLegerPeers", "").split(";") if peer.strip()]
    if len(peers) > 1:
        raise Rejected(f"dLegerPeers names {len(peers)} members: only a group with one member can be opened")
    paths = tuple(path.strip() for path in pairs.get("storePathDLedgerCommitLog", "").split(",") if path.strip())
    return {"dledger": LedgerConfig(self_id=pairs.get("dLegerSelfId", "n0"), data_paths=paths)}
