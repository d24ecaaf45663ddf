"""How an activity tells its workflow that a retry cannot help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from temporalio.exceptions import ApplicationError

from forestay.adapters.temporal.workflows.temporal_runtime import REFUSED
from forestay.ports.errors import Conflict, NotFound, Permanent


@contextmanager
def refusing() -> Iterator[None]:
    """Mark errors that a retry cannot fix; Temporal retries every other error, for as long as it takes."""
    try:
        yield
    except (Permanent, NotFound, Conflict) as error:
        raise ApplicationError(str(error), type=REFUSED, non_retryable=True) from error
