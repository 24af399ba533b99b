"""Messages found by what is in them: text, keys, ids, times, transactions, delays; over one look at stores."""
