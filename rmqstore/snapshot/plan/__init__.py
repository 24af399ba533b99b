"""From what a user means to ranges of queue offsets, and from these to splits."""
