"""`rmqstore replicate` and `rmqstore serve`: what they do, and how their progress is told."""
