"""Everything that follows from the log and can be built again: queues, the index, and the loop that fills them."""
