"""A store that follows a master: above the engine, which it opens."""
