"""A real tokeniser, for comparison: o200k, from a development dependency that ships its ranks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache


@lru_cache
def o200k() -> Callable[[str], int]:
    """A function that counts the tokens of a text. Loading it takes about a second."""
    with warnings.catch_warnings():
        # The package opens its data with a call that Python 3.11 and 3.12 warn about.
        warnings.simplefilter("ignore", DeprecationWarning)
        from bpe_openai import get_encoding

        encoding = get_encoding("o200k_base")
    return lambda text: len(encoding.encode_ordinary(text))
