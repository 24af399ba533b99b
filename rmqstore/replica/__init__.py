"""Replication: a store that follows a master's log, as RocketMQ's slaves do, and a store that serves its log."""
