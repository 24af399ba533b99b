"""Records of the log that follow each other, each with what is wrong with it."""

from dataclasses import dataclass, field, replace

import numpy as np

from rmqstore.formats.deleted_topics import DeletedBefore
from rmqstore.formats.inner_batch import NO_TOPIC, OwnBases
from rmqstore.formats.message_columns import Ints, Located, Mask
from rmqstore.formats.names import NOWHERE
from rmqstore.records.soundness import Reason, Reasons


@dataclass(frozen=True, slots=True)
class Stretch:
    """Records that follow each other: `offsets` int64[n] in the log, `located` in their page, `reasons` int8[n].

    Those of a topic, or of a queue, that stand before `deleted_before` are in no queue.  An inner batch that
    names no base begins at its own queue offset in topics of `own_bases`.  Which light queues a record is in, it says
    itself from `light_from` of the log on; before, their files do.
    """

    offsets: Ints
    located: Located
    reasons: Reasons
    deleted_before: DeletedBefore = field(default_factory=dict)
    own_bases: OwnBases = NO_TOPIC
    light_from: int = NOWHERE

    @property
    def end(self) -> int:
        """Where in the log the last record ends."""
        return int(self.offsets[-1] + self.located.total_size[-1])

    @property
    def last_sound(self) -> int:
        """The row of the last sound record; -1 if there is none."""
        sound = np.flatnonzero(self.reasons == Reason.SOUND)
        return int(sound[-1]) if len(sound) else -1

    def take(self, rows: Mask) -> "Stretch":
        """Some of the records."""
        return replace(self, offsets=self.offsets[rows], located=self.located.take(rows), reasons=self.reasons[rows])
