"""A log served to slaves, and waiting for their acknowledgements; below the engine, which uses it."""
