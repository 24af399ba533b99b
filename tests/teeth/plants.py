"""All that is planted, and what cannot be."""

from tests.teeth import looking, on_the_disk, recovering

PLANTS = (*on_the_disk.PLANTS, *recovering.PLANTS, *looking.PLANTS)
# Faults of replication and of votes, which this engine does not have.
ABSENT = (
    "a replica's acknowledgement beyond the end is believed",
    "a vote is not synced",
    "the commit offset goes beyond the end of the log",
)
