"""The tables beside the messages."""
