"""Batches that are added exactly once: staged parts, the intent, the swap, the sweep."""
