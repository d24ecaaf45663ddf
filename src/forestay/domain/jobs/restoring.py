"""What happens to a job whose store was restored from a backup.

The store knows nothing of later changes. The job may have been claimed, run and even ended; pilots may still run it. Therefore the
generation is raised, which fences off every existing claim, running jobs become available again, and the story says why.
"""

from __future__ import annotations

from typing import Any

from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.lifecycle import Event, TransitionRefused, allowed, step

HOLDER = "restored"
"""Holds the jobs with external effects, until a person has checked whether those took place."""
STEP = 2
"""One number between two generations is for jobs that a run had to create again."""
_MINUTE = 60_000
_EPOCH = 1_735_689_600_000
"""The beginning of 2025. Minutes since then are higher at every restore, of whatever backup; nothing in the store itself has this property."""


def next_generation(known: int, now: int) -> int:
    """The generation after a restore: higher than every one that the store knows or may have lost."""
    minutes = max(0, now - _EPOCH) // _MINUTE
    return max(known + STEP, minutes + minutes % 2)


def restored(
    document: JobDocument, *, generation: int, external: bool, now: int, by: str, reason: str
) -> JobDocument | TransitionRefused:
    """The job in the new generation; unchanged if it is final or already in it."""
    if document.final or document.generation >= generation:
        return document
    if not allowed(document, Event.RESTORE):
        return TransitionRefused("the document needs a newer release")
    changes: dict[str, Any] = {"generation": generation, "overlap_possible": True}
    if external and HOLDER not in document.holders:
        changes["holders"] = (*document.holders, HOLDER)
    if document.held_completion is not None:
        # Its attempt had ended before the backup: nothing runs, and the end stays kept.
        return step(document, Event.KEEP_COMPLETION, now=now, by=by, note=reason, **changes)
    return step(
        document, Event.RESTORE, now=now, by=by, note=reason, claim=None, phase=None, former_claim=None, **changes
    )
