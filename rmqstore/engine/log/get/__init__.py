"""Reads of the engine, with RocketMQ's answers."""
