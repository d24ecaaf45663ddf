"""A web server inside a process that handles signals itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn


class UvicornWithoutSignals(uvicorn.Server):
    """Leaves signal handling to its caller."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
