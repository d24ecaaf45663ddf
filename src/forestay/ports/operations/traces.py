"""The receiver of spans: an external trace collector."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from forestay.domain.jobs.job_spans import Span


class Traces(Protocol):
    """The port. A trace helps people but must never delay a job: nothing here waits, and nothing is raised."""

    def tell(self, spans: Iterable[Span]) -> None:
        """Queue the spans to be sent soon, in batches; those that cannot be sent are dropped."""
        ...

    def current(self) -> str:
        """The current trace context, in the form of the header `traceparent`; empty: none."""
        ...

    def within(self, traceparent: str) -> AbstractContextManager[object]:
        """Run the body of a `with` statement in a trace context."""
        ...
