"""The ends of a store that grows, again and again, and the lag behind them."""
