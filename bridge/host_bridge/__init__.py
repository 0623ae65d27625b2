"""The wire between a cell and its host: one protocol, and both ends of it.

`protocol`, `errors`, `loop_socket`, `comm_client` and `kernel_end` run inside the kernel (Python 3.9+, standard library
and pyzmq), and so does `inside`, which extends ipykernel. `dispatcher`, `line`, `host_end`, `comm_end` and
`memory_end` run in the host. Nothing is imported here, so that a kernel never
pays for, or needs, what only the host uses.
"""
