"""A DLedger node's directory as anybody may look at it: `nodes` what is there, `walk` its entries in their order."""
