"""The put lock: place and order of records, the next file, waiting for the disk."""
