"""The tables beside the messages by name, for whoever asks for one; what makes them is imported then."""

from typing import Literal

TableName = Literal["queues", "topics", "groups", "files", "transactions", "delayed", "entries"]
