"""What failures cost in a period, and what rules would have done about them.

Attempts are added one by one, in the order of their submission, and only sums are kept: memory grows with the number of owners and hosts, not of attempts.

Whether a retry would have succeeded is unknown. What is known is how the same work ended when somebody ran it again: a later attempt of the same job, or a
later job of the same owner and name. The share of these that succeeded is given as a 95 % interval (Wilson), and is assumed for those that nobody ran again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.domain.exceptions.evidence.past_attempt import PastAttempt, PastState
from forestay.domain.rules.plain_condition import FieldComparison

EXAMPLES = 3
"""How many failures of each cause are shown."""
FOLLOWS_WITHIN = 7 * 86_400
"""Seconds: a job of the same name that is submitted later than this is other work."""
COMPARED = 8
"""The most open failures of one name with which a later job is compared."""
SURE = 1.959964
"""Standard deviations on each side of a 95 % interval."""


@dataclass(slots=True)
class Loss:
    """Failed attempts and the core-hours that they held."""

    failures: int = 0
    core_hours: float = 0.0

    def add(self, core_hours: float, failures: int = 1) -> None:
        self.failures += failures
        self.core_hours += core_hours


@dataclass(slots=True)
class CauseLoss(Loss):
    """The same for one cause."""

    confidence: float = 0.0
    """The sum over the failures."""
    advice: dict[str, int] = field(default_factory=dict)
    examples: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    """Ids, and the lines that decided."""


@dataclass(frozen=True, slots=True)
class PastRule:
    """A rule, as far as it is needed here."""

    name: str
    description: str
    comparisons: tuple[FieldComparison, ...]
    """The comparisons, all of which must hold."""


@dataclass(slots=True)
class RuleEstimate:
    """What one rule would have done."""

    rule: PastRule
    answered: Loss = field(default_factory=Loss)
    run_again: int = 0
    """Failures whose work somebody ran again."""
    succeeded: int = 0
    """Those of them that then succeeded."""
    works: set[tuple[str, str, str, str]] = field(default_factory=set)
    """The work that was run again. A thousand jobs of one name say little more than one, so the interval counts each name as one trial."""

    def _share(self) -> tuple[float, float]:
        return wilson(self.succeeded / self.run_again if self.run_again else 0.0, len(self.works))

    def recovered(self) -> tuple[float, float]:
        """The lowest and highest number of failures for which a retry would have succeeded."""
        low, high = self._share()
        return low * self.answered.failures, high * self.answered.failures

    def wasted(self) -> tuple[float, float]:
        """Core-hours of retries that fail again, assuming that each takes as long as the attempt before."""
        low, high = self._share()
        return (1 - high) * self.answered.core_hours, (1 - low) * self.answered.core_hours


def wilson(share: float, trials: int) -> tuple[float, float]:
    """The 95 % interval of a share of a number of trials; without trials it is the whole range."""
    if not trials:
        return 0.0, 1.0
    spread = SURE * SURE / trials
    middle = share + spread / 2
    half = SURE * math.sqrt(share * (1 - share) / trials + spread / (4 * trials))
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))


def holds(comparisons: Sequence[FieldComparison], context: Mapping[str, object]) -> bool:
    """Whether all comparisons of a condition hold."""
    return all(_holds(comparison, context[comparison.field]) for comparison in comparisons)


def _holds(comparison: FieldComparison, value: object) -> bool:
    if comparison.sign == "==":
        return value == comparison.value
    if comparison.sign == "!=":
        return value != comparison.value
    bound = comparison.value
    if not isinstance(value, int | float) or not isinstance(bound, int | float):
        raise TypeError(f"{comparison.field} {comparison.sign} {bound!r} is not a comparison of numbers")
    return {"<": value < bound, "<=": value <= bound, ">": value > bound, ">=": value >= bound}[comparison.sign]


FIELDS = frozenset({"cause", "confidence", "retry", "job.attempt"})
"""The fields known of a past failure; a rule that uses others cannot be judged."""


@dataclass(slots=True)
class _Open:
    """A failure that nobody has run again so far."""

    ended: float
    estimate: RuleEstimate
    id: str


class LostHours:
    """The sums over a period."""

    def __init__(self, rules: Sequence[PastRule]) -> None:
        self.attempts = 0
        self.core_hours = 0.0
        self.succeeded = Loss()
        self.cancelled = Loss()
        self.failed = Loss()
        self.by_cause: dict[str, CauseLoss] = {}
        self.by_owner: dict[str, Loss] = {}
        self.by_host: dict[str, Loss] = {}
        self.by_day: dict[int, dict[str, float]] = {}
        """Core-hours by day since 1970 and cause."""
        self.by_source: dict[str, int] = {}
        self.first: float | None = None
        self.last: float | None = None
        self.estimates = [RuleEstimate(rule) for rule in rules]
        self._open: dict[tuple[str, str, str, str], list[_Open]] = {}

    def add(self, attempt: PastAttempt, finding: CauseFinding | None) -> None:
        """Add an attempt; a failure with its cause."""
        self.attempts += 1
        hours = attempt.core_hours
        self.core_hours += hours
        self.by_source[attempt.source] = self.by_source.get(attempt.source, 0) + 1
        if attempt.ended is not None:
            self.first = attempt.ended if self.first is None else min(self.first, attempt.ended)
            self.last = attempt.ended if self.last is None else max(self.last, attempt.ended)
        if self._open:
            self._follow(attempt)
        if attempt.state is PastState.SUCCEEDED:
            self.succeeded.add(hours)
        elif attempt.state is PastState.CANCELLED:
            self.cancelled.add(hours)
        elif finding is not None:
            self._fail(attempt, finding, hours)

    def _fail(self, attempt: PastAttempt, finding: CauseFinding, hours: float) -> None:
        cause = str(finding.cause)
        self.failed.add(hours)
        loss = self.by_cause.setdefault(cause, CauseLoss())
        loss.add(hours)
        loss.confidence += finding.confidence
        if finding.advice:
            loss.advice[finding.advice] = loss.advice.get(finding.advice, 0) + 1
        if len(loss.examples) < EXAMPLES and (finding.lines or len(loss.examples) < 1):
            loss.examples.append((attempt.id, finding.lines))
        self.by_owner.setdefault(attempt.owner, Loss()).add(hours)
        for host in attempt.hosts or ("(none)",):
            self.by_host.setdefault(host, Loss()).add(hours / max(1, len(attempt.hosts)))
        if attempt.ended is not None:
            day = self.by_day.setdefault(int(attempt.ended // 86_400), {})
            day[cause] = day.get(cause, 0.0) + hours
        context = {
            "cause": cause,
            "confidence": finding.confidence,
            "retry": str(finding.retry),
            "job.attempt": attempt.attempt,
        }
        for estimate in self.estimates:
            if holds(estimate.rule.comparisons, context):
                estimate.answered.add(hours)
                if attempt.ended is not None:
                    self._open.setdefault(attempt.same_work, []).append(_Open(attempt.ended, estimate, attempt.id))
                break

    def _follow(self, attempt: PastAttempt) -> None:
        """Whether this attempt repeats the work of an earlier failure; then its result is recorded there."""
        waiting = self._open.get(attempt.same_work)
        if not waiting or attempt.state is PastState.CANCELLED or attempt.submitted is None:
            return
        # A restart follows its job at once; otherwise the oldest open failure counts. Only a few are compared: thousands may have one name.
        places = [len(waiting) - 1, *range(min(len(waiting), COMPARED))]
        for place in places:
            known = waiting[place]
            again = known.id == attempt.id or known.ended <= attempt.submitted <= known.ended + FOLLOWS_WITHIN
            if again:
                known.estimate.run_again += 1
                known.estimate.succeeded += attempt.state is PastState.SUCCEEDED
                known.estimate.works.add(attempt.same_work)
                del waiting[place]
                if not waiting:
                    del self._open[attempt.same_work]
                return
