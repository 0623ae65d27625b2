"""What both ends share: frames, limits and signatures; errors; a socket on an event loop. Python 3.9, pyzmq."""
