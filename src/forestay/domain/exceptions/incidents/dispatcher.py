"""The dispatcher of paper P2: it takes the fault of a job for which there is no rule and tells what may pass by itself from what will not.

What may pass goes to a ladder, which tries again in levels; what will not is rolled back: the case's compensations run. By cause the house may say
otherwise, and by itself it leaves every fault to the job's own retry policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from forestay.domain.exceptions.causes.cause import Cause, CauseFinding, RetryNeed
from forestay.domain.exceptions.incidents.house_policy import SURE
from forestay.domain.jobs.job_document import JobDocument

ANY = "*"
"""Stands for every cause that is not named."""


class FailureRoute(StrEnum):
    """Where a fault is sent."""

    OWN = "own"
    """To the job's own retry policy."""
    LADDER = "ladder"
    ROLLBACK = "rollback"
    HOLD = "hold"
    FAIL = "fail"
    DISPATCH = "dispatch"
    """To a ladder or to the roll-back, by whether it is recoverable."""


_WITH_LADDER = frozenset({FailureRoute.LADDER, FailureRoute.DISPATCH})


@dataclass(frozen=True, slots=True)
class RoutedFailure:
    """A way, and the ladder on it; without a name the house's."""

    way: FailureRoute
    ladder: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """What the house does about the causes for which it has no rule."""

    ways: Mapping[str, RoutedFailure] = field(default_factory=dict)
    """By cause; `*` for any other."""

    def send(self, finding: CauseFinding) -> RoutedFailure:
        """Pure: the same finding goes the same way."""
        cause = finding.cause.value
        told = self.ways.get(cause, self.ways.get(ANY, RoutedFailure(FailureRoute.OWN)))
        if told.way is not FailureRoute.DISPATCH:
            return RoutedFailure(told.way, told.ladder, f"the default policy for {cause} is {told.way}")
        if is_recoverable(finding):
            return RoutedFailure(
                FailureRoute.LADDER, told.ladder, f"{cause} failures may be transient: retried by a retry policy"
            )
        return RoutedFailure(FailureRoute.ROLLBACK, words=f"{cause} failures are permanent: the work is rolled back")


def is_recoverable(finding: CauseFinding) -> bool:
    """Whether another try of the same may end better. In doubt it may: the ladder's end comes all the same."""
    return finding.retry in (RetryNeed.SAME, RetryNeed.ELSEWHERE) or finding.confidence < SURE


def can_roll_back(document: JobDocument) -> bool:
    """Whether the end of a job is the end of its case: not of one that no case waits for, and not of a compensation, which is itself part of a roll-back."""
    return document.tie is not None and document.tie.of > 0 and "!" not in document.tie.work


def read_way(text: str) -> RoutedFailure | None:
    """A way as people write it: `hold`, `ladder`, `ladder patient`; None: it is none."""
    word, _, ladder = text.strip().partition(" ")
    if word not in list(FailureRoute) or (ladder and FailureRoute(word) not in _WITH_LADDER):
        return None
    return RoutedFailure(FailureRoute(word), ladder.strip())


def check_dispatcher(dispatcher: Dispatcher, ladders: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Everything that is wrong: the cause it is said of, and what."""
    known = {one.value for one in Cause} | {ANY}
    for cause, sent in dispatcher.ways.items():
        if cause not in known:
            yield cause, "there is no such cause"
        if sent.ladder and sent.ladder not in ladders:
            yield cause, f"there is no retry policy {sent.ladder!r}"
