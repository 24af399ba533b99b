"""A store that follows another one's log, as RocketMQ's slaves follow their masters, and one that is followed."""
