"""Hides optional libraries from dependencies that would import them wherever they are installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hidden(*names: str) -> Iterator[None]:
    """In the block, importing these modules fails as if they were not installed; those already imported stay."""
    absent = [name for name in names if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]  # how Python marks a module that must not be imported
    try:
        yield
    finally:
        for name in absent:
            sys.modules.pop(name, None)
