"""Checks before a replica begins, which change nothing; they use the types of `following`."""
