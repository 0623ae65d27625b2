"""What the host runs inside the kernel's process: the launcher, bounded output, the list of names.

Python 3.9+ and ipykernel 6.29+. The host never imports this; the kernel never needs it installed.
"""
