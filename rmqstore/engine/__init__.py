"""The engine that writes a store.

`log` appends, derives, recovers and reads; `broker` is what a broker keeps beside the log; `dledger` the log of a
group; `engine` puts them together, and `store` is what users hold.
"""
