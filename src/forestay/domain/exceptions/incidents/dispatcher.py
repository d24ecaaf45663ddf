"""The dispatcher of paper P2: separates failures that may pass by themselves from those that will not, if no rule answers them.

What may pass goes to a retry policy, which tries again in levels; what will not is rolled back: the run's compensations run. By cause the default policy may say
otherwise, and by itself it leaves every failure to the job's own retry policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from forestay.domain.exceptions.causes.cause import SURE, Cause, CauseFinding, RetryNeed
from forestay.domain.jobs.job_document import JobDocument

ANY = "*"
"""Stands for every cause that is not named."""


class FailureRoute(StrEnum):
    """Where a failure is sent."""

    OWN = "own"
    """To the job's own retry policy."""
    RETRY = "retry"
    ROLLBACK = "rollback"
    HOLD = "hold"
    FAIL = "fail"
    DISPATCH = "dispatch"
    """To a retry policy or to the roll-back, by whether it is recoverable."""


_WITH_RETRY_POLICY = frozenset({FailureRoute.RETRY, FailureRoute.DISPATCH})


@dataclass(frozen=True, slots=True)
class RoutedFailure:
    """A way, and the retry policy on it; without a name the default policy's."""

    way: FailureRoute
    retry_policy: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """What the default policy does about the causes for which it has no rule."""

    ways: Mapping[str, RoutedFailure] = field(default_factory=dict)
    """By cause; `*` for any other."""

    def send(self, finding: CauseFinding) -> RoutedFailure:
        """Pure: the same finding goes the same way."""
        cause = finding.cause.value
        failure = self.ways.get(cause, self.ways.get(ANY, RoutedFailure(FailureRoute.OWN)))
        if failure.way is not FailureRoute.DISPATCH:
            return RoutedFailure(failure.way, failure.retry_policy, f"the default policy for {cause} is {failure.way}")
        if is_recoverable(finding):
            return RoutedFailure(
                FailureRoute.RETRY,
                failure.retry_policy,
                f"{cause} failures may be transient: retried by a retry policy",
            )
        return RoutedFailure(FailureRoute.ROLLBACK, words=f"{cause} failures are permanent: the work is rolled back")


def is_recoverable(finding: CauseFinding) -> bool:
    """Whether another try of the same may end better. In doubt it may: the retry policy's end comes all the same."""
    return finding.retry in (RetryNeed.SAME, RetryNeed.ELSEWHERE) or finding.confidence < SURE


def can_roll_back(document: JobDocument) -> bool:
    """Whether the end of a job is the end of its run: not of one that no run waits for, and not of a compensation, which is itself part of a roll-back."""
    return document.flow_ref is not None and document.flow_ref.of > 0 and "!" not in document.flow_ref.work


def read_way(text: str) -> RoutedFailure | None:
    """A way as people write it: `hold`, `retry`, `retry patient`; None: it is none."""
    word, _, retry_policy = text.strip().partition(" ")
    if word not in list(FailureRoute) or (retry_policy and FailureRoute(word) not in _WITH_RETRY_POLICY):
        return None
    return RoutedFailure(FailureRoute(word), retry_policy.strip())


def check_dispatcher(dispatcher: Dispatcher, retry_policies: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Everything that is wrong: the cause it is said of, and what."""
    known = {cause.value for cause in Cause} | {ANY}
    for cause, sent in dispatcher.ways.items():
        if cause not in known:
            yield cause, "there is no such cause"
        if sent.retry_policy and sent.retry_policy not in retry_policies:
            yield cause, f"there is no retry policy {sent.retry_policy!r}"
