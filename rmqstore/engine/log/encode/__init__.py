"""Messages to records' bytes, one by one and in vectors; nothing is written here."""
