"""A whole store checked in one pass."""
