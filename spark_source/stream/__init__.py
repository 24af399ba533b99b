"""A stream: the offsets of its batches, how much one takes, and queues that were found shorter."""
