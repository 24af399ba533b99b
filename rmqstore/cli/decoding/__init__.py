"""Bodies decoded."""
