"""The default policy for a failure that no rule answers: the job's own retry policy; failures of the infrastructure do not consume its retries.

`default_course` alone decides. What is recorded, shown and done follows from it, and a replay calls it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, cast

from forestay.domain.exceptions.causes.cause import SURE, Cause, CauseFinding, RetryNeed
from forestay.domain.exceptions.causes.pilot_finding import outputs_not_written
from forestay.domain.exceptions.incidents.retry_policy import (
    INFRASTRUCTURE,
    RETRIES,
    Layer,
    Ledger,
    entered,
    wait_words,
    with_told,
)
from forestay.domain.jobs.claim import (
    AVOIDED,
    MAX_RELEASES,
    PolicySays,
    has_external_effects,
    needs_person,
    retry_policy,
)
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.jobs.lifecycle import Event, step

FREE_TRIES = (0, 60, 600, 3600)
"""Seconds before each further uncharged try, and the longest wait of any. None: the default policy retries nothing by itself."""
TRIED_BY_ITSELF = INFRASTRUCTURE | {Cause.UNKNOWN.value, Cause.OUTPUT_MISSING.value}
"""Causes for which the tries that a finding recommends are made without a rule, after the job's own attempts. For other causes another try has a cost: a rule or a person decides."""
AVOID_FOR = 3_600_000
"""Milliseconds for which a job avoids hosts that cannot run it; afterwards they may have been changed."""
NEVER = 253_402_300_799_000
"""The end of the year 9999: the due time of a failure that waits for a person."""


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


class FailureFacts(NamedTuple):
    """The facts by which the default policy decides."""

    cause: str
    confidence: float
    retry: RetryNeed
    tries: int = 0
    """How many more tries the finding recommends."""
    wait: int = 0
    """Seconds before each of them."""
    releases: int = 0
    """Uncharged tries so far."""
    spent: int = 0
    """Tries so far for this cause, charged or not."""
    outputs_not_written: bool = False
    """The job itself succeeded."""
    external_effects: bool = False


def default_course(own: PolicySays, facts: FailureFacts, free_tries: Sequence[int] = FREE_TRIES) -> DefaultAnswer:
    """The action for a failure that needs no person, by the job's own policy and the facts of the failure."""
    why = _not_the_users(facts)
    if why and facts.releases < len(free_tries):
        reason = f"{why}: free retry {facts.releases + 1} of {len(free_tries)}"
        return DefaultAnswer(DefaultAction.RETRY, reason, free_tries[facts.releases], charged=False)
    if own.event is not Event.RETRY and _is_worth_a_try(facts) and facts.releases < len(free_tries):
        wait = min(facts.wait, max(free_tries))
        return DefaultAnswer(DefaultAction.RETRY, _once_more(facts, wait), wait, charged=False)
    return DefaultAnswer(_COURSES[own.event], own.words + _tried(own, facts), own.wait)


def default_answer(
    document: JobDocument, finding: CauseFinding, free_tries: Sequence[int] = FREE_TRIES
) -> DefaultAnswer:
    """Pure: the same failure gives the same answer."""
    person = needs_person(document)
    if person:
        return DefaultAnswer(DefaultAction.HOLD, person)
    if is_lost(document):
        return DefaultAnswer(DefaultAction.HOLD, f"{document.releases} claims were lost; a person must check")
    return default_course(retry_policy(document), _facts(document, finding), free_tries)


def _facts(document: JobDocument, finding: CauseFinding) -> FailureFacts:
    return FailureFacts(
        cause=finding.cause.value,
        confidence=finding.confidence,
        retry=finding.retry,
        tries=finding.tries,
        wait=finding.wait,
        releases=document.releases,
        spent=ledger_of(document).spent(finding.cause.value),
        outputs_not_written=document.last is not None and outputs_not_written(document.last),
        external_effects=has_external_effects(document),
    )


def _not_the_users(facts: FailureFacts) -> str:
    """Why the next try is not charged to the user; empty if it is."""
    trying = facts.retry in (RetryNeed.SAME, RetryNeed.ELSEWHERE)
    if facts.cause in INFRASTRUCTURE and facts.confidence >= SURE and trying:
        return f"{facts.cause} failure of the infrastructure"
    if facts.outputs_not_written:
        return "the job succeeded, but its outputs could not be written"
    return ""


def _is_worth_a_try(facts: FailureFacts) -> bool:
    return facts.cause in TRIED_BY_ITSELF and facts.spent < facts.tries and not facts.external_effects


def _once_more(facts: FailureFacts, wait: int) -> str:
    count = "once more" if facts.tries == 1 else f"retry {facts.spent + 1} of {facts.tries}"
    return f"{facts.cause} failure that may pass: {count}, {wait_words(wait)}"


def _tried(own: PolicySays, facts: FailureFacts) -> str:
    """Why a failure for which another try is recommended is not retried."""
    if own.event is Event.RETRY or not facts.tries or facts.retry not in (RetryNeed.SAME, RetryNeed.ELSEWHERE):
        return ""
    if facts.external_effects:
        return "; it has external effects, so only a rule or a person tries it again"
    if facts.spent:
        return f"; {facts.spent} {'retry' if facts.spent == 1 else 'retries'} did not help"
    return "" if facts.cause in TRIED_BY_ITSELF else f"; without a rule {facts.cause} failures are not retried"


def ledger_of(document: JobDocument) -> Ledger:
    """All retries of a job so far."""
    return Ledger.from_plain(cast("list[list[Any]]", document.extra.get(RETRIES, [])))


def is_lost(document: JobDocument) -> bool:
    """Whether its claims are lost again and again: the cause is unknown, and a person is asked."""
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
    """The faulted document after the answer. A retry is entered in the ledger of all retries, with those known from other layers."""
    assert document.state is State.FAULTED  # noqa: S101 - the caller looked
    if answer.course is DefaultAction.HOLD:
        return document.having(not_before=NEVER, changed=now)
    if answer.course is DefaultAction.FAIL:
        return step(document, Event.GIVE_UP, now=now, by=by, note=answer.words, not_before=0)
    spent: dict[str, Any] = (
        {} if answer.charged else {"failures": max(0, document.failures - 1), "releases": document.releases + 1}
    )
    ledger = with_told(ledger_of(document), cause, retries or {})
    spent["extra"] = {**document.extra, RETRIES: entered(ledger, cause).as_plain()}
    if answer.avoid:
        avoided = cast("dict[str, int]", document.extra.get(AVOIDED, {}))
        spent["extra"][AVOIDED] = avoided | dict.fromkeys(answer.avoid, now + AVOID_FOR)
    due = now + 1000 * answer.wait
    return step(document, Event.RETRY, now=now, by=by, note=answer.words, not_before=due, **spent)
