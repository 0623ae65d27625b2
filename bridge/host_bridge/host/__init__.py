"""The end in the host: handlers by the type of request, behind a socket, a comm, or memory."""
