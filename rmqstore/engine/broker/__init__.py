"""Everything that a broker keeps beside the log: topics, groups, committed offsets, delays, transactions, retries."""
