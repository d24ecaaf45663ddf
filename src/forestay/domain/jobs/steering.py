"""What people and rules may do to a job: cancel, hold, continue, retry, force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from forestay.domain.jobs.claim import FailureAnswer, apply_held_completion
from forestay.domain.jobs.job_document import FORMER_PILOT, PILOT_DEATHS, JobDocument, State, Token
from forestay.domain.jobs.lifecycle import Event, TransitionRefused, allowed, step
from forestay.domain.jobs.resources import Resources

MAX_HOLDERS = 16


def cancel(document: JobDocument, *, now: int, by: str, reason: str = "") -> JobDocument | TransitionRefused:
    """End the job now. A payload that still runs is told to stop; its late end is only evidence."""
    if not allowed(document, Event.CANCEL):
        return TransitionRefused(f"the job is already {document.state}")
    return _drop_claim(document, Event.CANCEL, now=now, by=by, note=reason)


def hold(document: JobDocument, *, holder: str, now: int, by: str, reason: str = "") -> JobDocument | TransitionRefused:
    """Suspend the job on behalf of a holder. A running attempt may finish; its end is kept."""
    if not allowed(document, Event.HOLD):
        return TransitionRefused(f"the job is already {document.state}")
    if holder in document.holders:
        return document
    if len(document.holders) >= MAX_HOLDERS:
        return TransitionRefused(f"{MAX_HOLDERS} holders already hold the job")
    holders = (*document.holders, holder)
    return step(document, Event.HOLD, now=now, by=by, note=reason or f"holder {holder}", holders=holders)


def let_go(
    document: JobDocument, *, holder: str, now: int, by: str, answer: FailureAnswer | None = None, reason: str = ""
) -> JobDocument | TransitionRefused:
    """Remove one holder; removing the last continues the job and applies a kept end."""
    if holder not in document.holders:
        return TransitionRefused(f"{holder} does not hold the job; holders: {', '.join(document.holders) or 'none'}")
    if not allowed(document, Event.CONTINUE):
        return TransitionRefused(f"the job is already {document.state}")
    holders = tuple(other_holder for other_holder in document.holders if other_holder != holder)
    note = reason or f"holder {holder}"
    freed = step(document, Event.CONTINUE, now=now, by=by, note=note, holders=holders)
    return freed if holders else apply_held_completion(freed, now=now, by=by, answer=answer)


def retry(
    document: JobDocument, *, now: int, by: str, reason: str = "", answered: str = ""
) -> JobDocument | TransitionRefused:
    """Let a faulted job be claimed again. ``answered``: the incident that this answers; the holder of its playbook is removed by the same write."""
    if not allowed(document, Event.RETRY):
        return TransitionRefused(f"the job is {document.state}, not faulted")
    holders = tuple(holder for holder in document.holders if not answered or not holder.startswith(f"{answered}:"))
    return step(
        document,
        Event.RETRY,
        now=now,
        by=by,
        note=reason,
        not_before=now,
        releases=0,
        holders=holders,
        extra=_cleared(document),
    )


def resubmit(
    document: JobDocument,
    *,
    resources: Resources | None = None,
    wait: int = 0,
    now: int,
    by: str,
    reason: str = "",
    notes: Mapping[str, object] | None = None,
) -> JobDocument | TransitionRefused:
    """Let a faulted job be claimed again after a wait in milliseconds, perhaps with other needs. ``notes`` are kept with it."""
    if not allowed(document, Event.RETRY):
        return TransitionRefused(f"the job is {document.state}, not faulted")
    return step(
        document, Event.RETRY, now=now, by=by, note=reason, not_before=now + wait, releases=0,
        resources=resources or document.resources, extra={**_cleared(document), **(notes or {})},
    )  # fmt: skip


def _cleared(document: JobDocument) -> Mapping[str, object]:
    """The extra fields of the job, without the count of pilot deaths."""
    return {name: value for name, value in document.extra.items() if name != PILOT_DEATHS}


def force(
    document: JobDocument, *, to: State, expected: Token, now: int, by: str, reason: str
) -> JobDocument | TransitionRefused:
    """Declare the job done, or failed, by hand; only if it is still as the caller saw it."""
    event = Event.FORCE_COMPLETE if to is State.FORCED_COMPLETE else Event.FORCE_FAIL
    if expected != document.token:
        return TransitionRefused(
            f"the job has changed: it is at generation {document.generation}, attempt {document.attempt}"
        )
    if not allowed(document, event):
        return TransitionRefused(f"the job is already {document.state}")
    return _drop_claim(document, event, now=now, by=by, note=reason)


def take_notice(
    document: JobDocument, *, due: int | None, done: bool, now: int, by: str, note: str
) -> JobDocument | TransitionRefused:
    """Record how a try to notify went."""
    if document.delivery is None or not allowed(document, Event.NOTIFY):
        return TransitionRefused(f"the job is {document.state}; no callback is due")
    delivery = replace(document.delivery, tries=document.delivery.tries + 1, due=due, done=done)
    return step(document, Event.NOTIFY, now=now, by=by, note=note, delivery=delivery)


def _drop_claim(document: JobDocument, event: Event, *, now: int, by: str, note: str) -> JobDocument:
    former, extra = document.former_claim, document.extra
    if document.claim is not None:
        former, extra = document.claim.id, {**document.extra, FORMER_PILOT: document.claim.pilot}
    return step(
        document, event, now=now, by=by, note=note,
        claim=None, phase=None, held_completion=None, former_claim=former, holders=(), extra=extra,
    )  # fmt: skip
