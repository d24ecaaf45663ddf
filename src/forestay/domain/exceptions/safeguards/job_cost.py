"""What another attempt of a job would cost."""

from __future__ import annotations

from forestay.domain.exceptions.safeguards.safeguards import core_seconds
from forestay.domain.jobs.job_document import JobDocument


def cost_of(document: JobDocument) -> int:
    """In core-seconds, as far as it is known from its last attempt and from what it asks for."""
    last, needs = document.last, document.resources
    past = last.wall if last is not None else None
    return core_seconds(needs.cpus, expected=document.expected_runtime, past=past, limit=needs.wall)
