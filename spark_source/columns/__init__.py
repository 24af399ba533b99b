"""The columns of a read and of a write: names, types, and batches that fit them."""
