"""One split: where its rows come from, what is checked, what damage means."""
