"""The wire between a cell and its host: one protocol, and both ends of it.

`wire` is what both ends share, `kernel` is what runs in a cell (both Python 3.9+, standard library and pyzmq), `host`
is the other end. Nothing is imported here, so that a kernel never pays for, or needs, what only the host uses.
"""
