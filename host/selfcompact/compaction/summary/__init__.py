"""Asking for a summary: what is sent, who is asked, and what becomes of the reply."""
