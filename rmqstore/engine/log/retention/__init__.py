"""Which files die, and when."""
