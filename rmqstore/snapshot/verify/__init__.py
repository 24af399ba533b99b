"""A whole store checked in one pass."""

from rmqstore.snapshot.verify.one_pass import verify

__all__ = ["verify"]
