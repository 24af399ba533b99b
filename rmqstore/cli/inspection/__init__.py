"""`rmqstore inspect`: the first screen, tables by name, and single records."""
