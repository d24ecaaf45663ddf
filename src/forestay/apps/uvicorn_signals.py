"""A web server inside a process that handles signals itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn


class UvicornWithoutSignals(uvicorn.Server):
    """Leaves the signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
