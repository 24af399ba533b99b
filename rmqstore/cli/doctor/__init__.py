"""The state of a machine and of stores, and advice."""
