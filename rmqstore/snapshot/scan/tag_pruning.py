"""Tags by the hashes in queue entries: records whose hash is another need not be read."""

import numpy as np

from rmqstore.directory.extension_files import holds_tag_hashes
from rmqstore.formats import java_hash
from rmqstore.formats.message_columns import Ints, Mask
from rmqstore.snapshot.request import ScanRequest
from rmqstore.snapshot.scan.record_check import Entries
from rmqstore.snapshot.split import Split


class TagHashes:
    """Which entries of a split can lead to a message with one of the wanted tags, of which there are some.

    Left alone, so that damage shows there: everything where the request checks all CRCs or damaged records are rows
    (`shows_damage`), and with the usual checks what lies where a crash can have torn the log.
    """

    def __init__(self, split: Split, request: ScanRequest, shows_damage: bool) -> None:
        self._hashes: Ints | None = None
        self._checked_from = split.crc_from if request.verify_crc == "auto" else 2**63 - 1
        if request.verify_crc != "always" and not shows_damage:
            self._hashes = np.array([java_hash.string_hash(tag) for tag in request.tags], np.int64)
            place, spans = (split.disk, split.path), split.spans
            self._hashed = np.array([holds_tag_hashes(*place, span.key, span.kind) for span in spans], bool)

    def keep(self, entries: Entries, numbers: Ints) -> Mask | None:
        """bool[n] of entries (FOUND_ENTRY) of the spans `numbers`; None where all are to be read.

        A code beyond 32 bits is no hash and tells nothing.
        """
        if self._hashes is None or not self._hashed.any():
            return None
        codes = entries["tags_code"]
        keep: Mask = np.isin(codes, self._hashes) if len(self._hashes) > 1 else codes == self._hashes[0]
        keep |= codes.astype(np.int32) != codes
        keep |= entries["physical_offset"] >= self._checked_from
        if not self._hashed.all():
            keep |= ~self._hashed[numbers]
        return None if keep.all() else keep
