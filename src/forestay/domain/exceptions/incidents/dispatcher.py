"""The dispatcher of paper P2: separates failures that may pass by themselves from those that will not, if no rule answers them.

The former go to a retry policy, which retries in levels; the latter are rolled back: the run's compensations run. The default policy may be configured differently
by cause; unconfigured, it leaves every failure to the job's own retry policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from forestay.domain.exceptions.causes.cause import SURE, Cause, CauseFinding, RetryNeed
from forestay.domain.jobs.job_document import JobDocument

ANY = "*"
"""Every cause that is not named."""


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
    """A route and its retry policy; without a name the default policy's."""

    way: FailureRoute
    retry_policy: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Dispatcher:
    """What the default policy does about the causes for which it has no rule."""

    ways: Mapping[str, RoutedFailure] = field(default_factory=dict)
    """By cause; `*` for any other."""

    def send(self, finding: CauseFinding) -> RoutedFailure:
        """The route of a finding. Pure: the same finding takes the same route."""
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
    """Whether an unchanged retry may succeed. If unknown, it may: the retry policy ends in any case."""
    return finding.retry in (RetryNeed.SAME, RetryNeed.ELSEWHERE) or finding.confidence < SURE


def can_roll_back(document: JobDocument) -> bool:
    """Whether the failure of a job ends its run: not for a job that no run waits for, and not for a compensation, which is itself part of a roll-back."""
    return document.flow_ref is not None and document.flow_ref.of > 0 and "!" not in document.flow_ref.work


def read_way(text: str) -> RoutedFailure | None:
    """A route as people write it: `hold`, `retry`, `retry patient`; None: not a route."""
    word, _, retry_policy = text.strip().partition(" ")
    if word not in list(FailureRoute) or (retry_policy and FailureRoute(word) not in _WITH_RETRY_POLICY):
        return None
    return RoutedFailure(FailureRoute(word), retry_policy.strip())


def check_dispatcher(dispatcher: Dispatcher, retry_policies: frozenset[str]) -> Iterator[tuple[str, str]]:
    """All errors: the cause that each concerns, and the message."""
    known = {cause.value for cause in Cause} | {ANY}
    for cause, sent in dispatcher.ways.items():
        if cause not in known:
            yield cause, "there is no such cause"
        if sent.retry_policy and sent.retry_policy not in retry_policies:
            yield cause, f"there is no retry policy {sent.retry_policy!r}"
