"""Losses of a store, told of the table that it goes into."""

from rmqstore.errors import DataLost
from rmqstore.snapshot.losses import LostBeforeRead, OtherLogThanRead, told_as


class LostToTable(LostBeforeRead):
    """Messages that were gone before they came into the table."""

    next_step = "--skip-lost goes on with what is there, and a table of its own begins again"


class OtherLogThanInTable(OtherLogThanRead):
    """A store, or a topic, that is another one than the table has, or that lost messages which the table has."""

    done = "went into the table"
    next_step = "name another table for it, or put back the store that was read"


def told_of_table(lost: DataLost) -> DataLost:
    """The same in a line that names the next step of a sync."""
    return told_as(lost, LostToTable, OtherLogThanInTable)
