"""The only rooms that touch the operating system's files; the snapshot uses `reading` alone, which never writes."""
