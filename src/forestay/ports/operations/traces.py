"""The receiver of spans: an external trace collector."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from forestay.domain.jobs.job_spans import Span


class Traces(Protocol):
    """The port. A trace is a help to people and worth no job: nothing here waits, and nothing is raised."""

    def tell(self, spans: Iterable[Span]) -> None:
        """Have the spans sent soon, many at once; what cannot be sent is dropped."""
        ...

    def current(self) -> str:
        """The context in which this is done, as the header `traceparent` writes it; empty: none."""
        ...

    def within(self, traceparent: str) -> AbstractContextManager[object]:
        """Do something in a context."""
        ...
