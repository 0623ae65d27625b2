"""Halves of surrogate pairs: Python's strings hold them, and no encoder outside takes them."""

from __future__ import annotations


def encodable(text: str) -> str:
    """The text with halves that belong together joined, and U+FFFD for each half that stands alone.

    Tool output and file names contain such halves; no request, index or export can carry them.
    """
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
