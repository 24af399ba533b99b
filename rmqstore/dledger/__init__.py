"""DLedger's log as its only member writes it: `index` the units of its entries, `state` its text files, `wrapping` what
puts records into entries, `member` a store's directory of it, opened."""
