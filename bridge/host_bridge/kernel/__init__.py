"""The end in the kernel: what a cell asks its host with. Python 3.9, pyzmq."""
