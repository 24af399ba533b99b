"""All that is planted, and what cannot be."""

from tests.teeth import entries, looking, on_the_disk, recovering, replicating

PLANTS = (*on_the_disk.PLANTS, *recovering.PLANTS, *looking.PLANTS, *replicating.PLANTS, *entries.PLANTS)
# Faults of votes, which this engine does not have.
ABSENT = (
    "a vote is not synced",
    "the commit offset goes beyond the end of the log",
)
