"""Which pilots may have a job, and which may report on a claim of it."""

from __future__ import annotations

from dataclasses import dataclass

from forestay.domain.jobs.job_document import FORMER_PILOT, JobDocument, Token
from forestay.domain.jobs.lifecycle import Event, TransitionRefused


@dataclass(frozen=True, slots=True)
class ReportRefused(TransitionRefused):
    """A pilot reports on a claim that it never held: nothing of it is kept, and the audit log says so."""


NEVER_HELD = ReportRefused("this pilot never held the claim")


def may_have(document: JobDocument, owner: str) -> bool:
    """Whether a job may be given to a pilot of an owner; one of nobody in particular may have the jobs of all."""
    return not owner or document.owner == owner


def held_by(document: JobDocument, claim_id: str, pilot: str) -> bool | None:
    """Whether a claim of a job is or was a pilot's; None: the document does not say whose it was."""
    held = document.claim
    if held is not None and held.id == claim_id:
        return held.pilot == pilot
    for line in document.history:
        if line.event == Event.CLAIM and line.note.startswith(claim_note(claim_id)):
            return line.by == pilot
    if document.former_claim == claim_id and FORMER_PILOT in document.extra:
        return document.extra[FORMER_PILOT] == pilot
    return None


def claim_note(claim_id: str) -> str:
    """How the line of a claim in the story begins."""
    return f"claim {claim_id} "


def may_report(document: JobDocument, token: Token, claim_id: str, pilot: str, owner: str | None) -> bool:
    """Whether a pilot may add the end of a claim, its log and its evidence to a job.

    The pilot that holds or held it may. What it left when it died is delivered by another one that may have the job; `owner`: the one
    for whom that pilot was enrolled; None: it is not registered.
    """
    whose = held_by(document, claim_id, pilot)
    if whose or owner is None or not may_have(document, owner):
        return whose is True
    held = document.claim
    if whose is False:
        return held is None or held.id != claim_id
    # A claim of before a restore, or one whose line has left the document.
    oldest = document.history[0] if document.history else None
    moved = oldest is not None and oldest.rev > 1 and token.attempt <= oldest.attempt
    return moved or token.generation < document.generation
