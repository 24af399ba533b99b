"""One store directory as anybody may look at it, whoever owns it: nothing here writes."""
