"""What follows from the log and can be built again: queues of all kinds, the index, and the loop that fills them."""
