"""The kernel that an agent works in: ipykernel with bounded streams and replies, a list of its names, a snapshot.

Runs in the kernel's process beside the bridge, in any interpreter that has ipykernel (Python 3.9+). What the host must
know of it stands here; nothing is imported.
"""

OMITTED_KEY = "host_bridge_omitted"
"""Where an execute_reply says how many characters of the cell's output were left out at the source."""

MAX_NAMES = 100
"""Names that a listing holds; the others are counted."""
