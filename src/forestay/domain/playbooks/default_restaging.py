"""The default policy for files that could not be staged, if no rule answers: the re-stage patterns of paper P0, section 4, and remakes of lost outputs.

Pure: facts that must be looked up (whether another good replica is known) are passed in. Each job is treated like this a bounded number of times; after that its own
retry policy answers, as for any failure.
"""

from __future__ import annotations

from dataclasses import dataclass

from forestay.domain.data.staging_terms import USUAL_PIECE, USUAL_TIMEOUT, free_of, restaged, transfer_of
from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.playbooks.action import FreeSpace, Remake, Restage, Restaging
from forestay.domain.playbooks.playbook import PlaybookStep, WhenRefused

MOST = 3
"""How often the default policy restages the files of one job by itself."""
LONGEST = 3_600
"""Seconds; a time limit grows no further."""
LEAST_FREED = 1 << 20
_SOURCE = frozenset({Cause.DATA_MISSING, Cause.DATA_CORRUPT, Cause.TRANSFER, Cause.NETWORK, Cause.POLICY})
"""Causes that concern the source of a file."""
_LOST = frozenset({Cause.DATA_MISSING, Cause.DATA_CORRUPT})
_SLOW = frozenset({"ETIMEDOUT", "TimeoutError", "timeout"})


@dataclass(frozen=True, slots=True)
class FileFailure:
    """A failure that is about files."""

    stage: str
    cause: Cause
    error: str
    other_replica: bool
    """Whether another replica of the file is known that has not failed."""
    room: str = ""
    """Where space can be freed: `cache`, `element`; empty: nowhere, as far as is known."""
    several_hosts: bool = False
    """Whether another host is available."""
    wanted: int = 0
    """Bytes of all inputs, as far as known."""
    lost_output: bool = False
    """Whether the file is an output of another job, which can make it again."""


def default_steps(document: JobDocument, failure: FileFailure) -> tuple[PlaybookStep, ...]:
    """The steps to take; none: the job's own retry policy answers."""
    done = restaged(document.extra)
    if failure.stage == "staging-in" and failure.cause in _LOST and failure.lost_output and not failure.other_replica:
        # One host may lack a file system that the others have; a damaged file is damaged for all.
        if failure.several_hosts and not done and failure.cause is Cause.DATA_MISSING:
            return (PlaybookStep(Restage(Restaging.OTHER_TARGET)),)
        return (PlaybookStep(Remake()),)
    if done >= MOST:
        return ()
    if failure.cause is Cause.DISK:
        return _room(document, failure)
    if failure.stage != "staging-in" or failure.cause not in _SOURCE:
        return ()
    if failure.other_replica:
        return (PlaybookStep(Restage(Restaging.OTHER_REPLICA)),)
    if failure.error in _SLOW:
        before = transfer_of(document.extra)
        timeout = min(LONGEST, 4 * int(before.get("timeout", USUAL_TIMEOUT)))
        piece = max(1 << 16, int(before.get("piece", USUAL_PIECE)) // 4)
        return (PlaybookStep(Restage(Restaging.CHANGED, buffer=piece, timeout=timeout)),)
    return ()


def _room(document: JobDocument, failure: FileFailure) -> tuple[PlaybookStep, ...]:
    """Free what can be freed there, then retry; if nothing can be freed, the job goes elsewhere."""
    # Even if nothing may be removed after all, others may have freed space meanwhile.
    free = PlaybookStep(FreeSpace(max(failure.wanted, LEAST_FREED)), WhenRefused.GO_ON)
    if failure.stage == "staging-out":
        return (free, PlaybookStep(Restage(Restaging.SAME))) if failure.room == "element" else ()
    if failure.stage != "staging-in":
        return ()
    if failure.room == "cache" and not free_of(document.extra):
        return (free, PlaybookStep(Restage(Restaging.SAME)))
    return (PlaybookStep(Restage(Restaging.OTHER_TARGET)),) if failure.several_hosts else ()
