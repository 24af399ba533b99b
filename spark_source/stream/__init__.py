"""A stream: the offsets of its batches, what each of them reads, and queues that were found shorter."""
