"""Messages from files and pipes into a store."""
