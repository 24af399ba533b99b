"""Messages found, and taken elsewhere: `rmqstore query`, `export` and `sync`."""
