"""The replication link, both sides of it, as pure state machines: bytes and time in; bytes and decisions out."""
