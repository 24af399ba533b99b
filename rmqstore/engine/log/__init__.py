"""The log and what is derived from it: appended, dispatched into queues and index, recovered, read."""
