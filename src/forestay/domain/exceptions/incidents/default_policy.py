"""What the default policy does about a job's failure for which there is no rule: the job's own retry policy, which infrastructure never pays with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.domain.exceptions.causes.pilot_finding import outputs_not_written
from forestay.domain.exceptions.incidents.retry_policy import INFRASTRUCTURE, RETRIES, Layer, Ledger, entered, with_told
from forestay.domain.jobs.claim import AVOIDED, MAX_RELEASES, needs_person, retry_policy
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.jobs.lifecycle import Event, step

SURE = 0.8
"""With less confidence nobody else's attempt is spared for it."""
FREE_TRIES = (0, 60, 600, 3600)
"""Seconds before each further try for which nobody pays."""
AVOID_FOR = 3_600_000
"""Milliseconds for which a job avoids hosts that cannot run it: they may be changed meanwhile."""
NEVER = 253_402_300_799_000
"""The end of the year 9999: when a failure is due that waits for a person."""


class DefaultAction(StrEnum):
    """What is done."""

    RETRY = "retry"
    HOLD = "hold"
    FAIL = "fail"


_COURSES = {Event.RETRY: DefaultAction.RETRY, Event.GIVE_UP: DefaultAction.FAIL, None: DefaultAction.HOLD}


@dataclass(frozen=True, slots=True)
class DefaultAnswer:
    """What the default policy decided."""

    course: DefaultAction
    words: str
    wait: int = 0
    """Seconds."""
    charged: bool = True
    """Whether the attempt counts against the job's own policy."""
    avoid: tuple[str, ...] = ()
    """Hosts that cannot run the job, which the next attempt avoids."""


def default_answer(
    document: JobDocument, finding: CauseFinding, free_tries: Sequence[int] = FREE_TRIES
) -> DefaultAnswer:
    """Pure: the same failure gives the same answer."""
    person = needs_person(document)
    if person:
        return DefaultAnswer(DefaultAction.HOLD, person)
    if is_lost(document):
        return DefaultAnswer(DefaultAction.HOLD, f"{document.releases} claims were lost; a person must check")
    why = _not_the_users(document, finding)
    if why and document.releases < len(free_tries):
        reason = f"{why}: free retry {document.releases + 1} of {len(free_tries)}"
        return DefaultAnswer(DefaultAction.RETRY, reason, free_tries[document.releases], charged=False)
    own = retry_policy(document)
    return DefaultAnswer(_COURSES[own.event], own.words, own.wait)


def _not_the_users(document: JobDocument, finding: CauseFinding) -> str:
    """Why the user does not pay for the next try; empty if they do."""
    if finding.cause in INFRASTRUCTURE and finding.confidence >= SURE:
        return f"{finding.cause} failure of the infrastructure"
    if document.last is not None and outputs_not_written(document.last):
        return "the job succeeded, but its outputs could not be written"
    return ""


def is_lost(document: JobDocument) -> bool:
    """Whether its claims are lost again and again: nobody knows what became of it, and a person is asked."""
    return document.last is None or document.releases >= MAX_RELEASES


def carried_out(
    document: JobDocument,
    answer: DefaultAnswer,
    *,
    now: int,
    by: str,
    cause: str = "unknown",
    retries: Mapping[Layer, int] | None = None,
) -> JobDocument:
    """The faulted document after the answer. A try goes into the ledger of all retries, with those that other layers are known to have made."""
    assert document.state is State.FAULTED  # noqa: S101 - the caller looked
    if answer.course is DefaultAction.HOLD:
        return document.having(not_before=NEVER, changed=now)
    if answer.course is DefaultAction.FAIL:
        return step(document, Event.GIVE_UP, now=now, by=by, note=answer.words, not_before=0)
    spent: dict[str, Any] = (
        {} if answer.charged else {"failures": max(0, document.failures - 1), "releases": document.releases + 1}
    )
    ledger = with_told(
        Ledger.from_plain(cast("list[list[Any]]", document.extra.get(RETRIES, []))), cause, retries or {}
    )
    spent["extra"] = {**document.extra, RETRIES: entered(ledger, cause).as_plain()}
    if answer.avoid:
        avoided = cast("dict[str, int]", document.extra.get(AVOIDED, {}))
        spent["extra"][AVOIDED] = avoided | dict.fromkeys(answer.avoid, now + AVOID_FOR)
    due = now + 1000 * answer.wait
    return step(document, Event.RETRY, now=now, by=by, note=answer.words, not_before=due, **spent)
