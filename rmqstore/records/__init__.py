"""The contents of a log, many records at once: vectors in, vectors out, and no files."""
