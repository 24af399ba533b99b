"""What stands in a log, many records at once: vectors in, vectors out, and no files."""
