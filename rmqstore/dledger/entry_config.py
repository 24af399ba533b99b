"""The settings of a log of entries."""

from dataclasses import dataclass

from rmqstore.annotations import plain_values
from rmqstore.config import OnMiddleDamage
from rmqstore.dledger.clean_space import DLEDGERS_POLICY
from rmqstore.errors import Rejected
from rmqstore.formats.dledger import ENTRY_BLANK, ENTRY_HEAD, INDEX_UNIT
from rmqstore.ledger_config import INDEX_FILE_SIZE
from rmqstore.log.retention.plan import RetentionPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryStoreConfig:
    """Sizes of new files, in bytes; where the data files are, instead of `data`; what is done about damage in front of
    sound entries; how long data stay.  Nodes of one group have the same `data_file_size`.
    """

    data_file_size: int = 1024 * 1024 * 1024
    index_file_size: int = INDEX_FILE_SIZE
    data_paths: tuple[str, ...] = ()
    read_only_data_paths: tuple[str, ...] = ()
    on_middle_damage: OnMiddleDamage = "refuse"
    checkpoint_interval_ms: int = 3000
    retention: RetentionPolicy = DLEDGERS_POLICY

    def __post_init__(self) -> None:
        plain, mistakes = plain_values(self)
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        least = ENTRY_HEAD.size + ENTRY_BLANK.size
        if not mistakes and not least <= self.data_file_size < 2**31:
            mistakes.append(f"data_file_size={self.data_file_size}: from {least} bytes to below 2 GiB")
        if not mistakes and (not 0 < self.index_file_size < 2**31 or self.index_file_size % INDEX_UNIT.size):
            mistakes.append(f"index_file_size={self.index_file_size}: a multiple of {INDEX_UNIT.size} below 2 GiB")
        if mistakes:
            raise Rejected("; ".join(mistakes))
