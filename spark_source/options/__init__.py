"""The options of reads, streams and writes: their text, the tables of their parsers, and what they come to together."""
