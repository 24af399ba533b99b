"""The ends of a store that grows, again and again, and how far a reader lags."""
