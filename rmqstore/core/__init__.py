"""Every room knows these: arguments checked and shown, annotations, locks, workers, the message."""
