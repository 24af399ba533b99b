"""Checked rows to Arrow columns."""
