"""What a session file amounts to: its figures, a chart of its context, a page."""
