"""Replay: a rule set is evaluated on recorded incidents, and differences from the decisions made then are reported (P1-34).

Pure: the caller passes the incidents in one by one, each with the recorded decision, the decision by the present rules and its outcome (`incident_outcome`), and reads the report at the
end. No job is changed.

A verdict of a rule is *wrong* if the outcome of the incident contradicts it:

* *stops*: the rule would hold or fail a job that a further try recovered. Holding is not wrong if a person had to act before the job succeeded; failing it is.
* *counts*: the rule would declare a job done that really succeeded later: its outputs would be missing.
* *in vain*: the rule would retry, and exactly that was tried, and the job failed again of the same cause and never succeeded. The actual try must include at least what the rule
  would do: more memory if the rule gives more memory, another host if it goes elsewhere.

A verdict without evidence for or against it, since nothing similar was tried, is *unproven*. Answers of the default policy are compared and not judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from forestay.domain.exceptions.safeguards.rate_limit import MINUTE
from forestay.domain.exceptions.safeguards.safeguards import SafeguardPolicy
from forestay.domain.rules.answer import STOPPING, TRYING, Answer, AnswerKind
from forestay.domain.rules.incident_outcome import Attempt, IncidentOutcome, OutcomeKind

HOUR = 60 * MINUTE
EXAMPLES = 5
"""The most incidents named for each group."""
MOST_GROUPS = 1_000
MOST_ERRORS = 100


class DecisionError(StrEnum):
    """The way in which a verdict is wrong."""

    STOPS = "stops"
    """It would stop a job that a further try recovered."""
    COUNTS = "counts"
    """It would declare a job done that was not."""
    IN_VAIN = "in-vain"
    """It would repeat a try that failed."""


WORDS: Mapping[DecisionError, str] = {
    DecisionError.STOPS: "would stop a job that a further attempt recovered",
    DecisionError.COUNTS: "would mark a job as complete that only a further attempt completed",
    DecisionError.IN_VAIN: "would retry what was already retried and failed in the same way",
}


class Proof(StrEnum):
    """Whether the outcome of an incident supports a verdict."""

    RIGHT = "right"
    WRONG = "wrong"
    UNPROVEN = "unproven"


class ComparedIncident(NamedTuple):
    """An incident with the answers of the replayed rules."""

    incident: str
    at: int
    cause: str
    job: str
    then: Answer
    now: Answer
    outcome: IncidentOutcome
    proof: Proof
    wrong: DecisionError | None

    @property
    def differs(self) -> bool:
        now, then = self.now, self.then
        return now is not then and not now.same_as(then)


class ReplayGroupKey(NamedTuple):
    """Incidents whose answer would change in the same way, by the same rule."""

    rule: str
    cause: str
    then: AnswerKind
    now: AnswerKind


@dataclass(slots=True)
class ReplayGroup:
    """The number of incidents in a group, their outcomes, and some of them by name."""

    count: int = 0
    wrong: int = 0
    came: Counter[OutcomeKind] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)


@dataclass(slots=True)
class RuleTally:
    """The answers that one rule would have given."""

    answered: int = 0
    differs: int = 0
    errors: int = 0
    right: int = 0
    unproven: int = 0
    wrong: Counter[DecisionError] = field(default_factory=Counter)
    came: Counter[OutcomeKind] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    """Incidents of wrong verdicts."""
    saved: float = 0.0
    """Core-seconds."""
    spent: float = 0.0
    peak_hour: int = 0
    """The most acts in any hour of the clock."""
    put_off: int = 0
    """Acts that the limit for one rule would have postponed."""


class ErrorOnPath(NamedTuple):
    """A condition that failed with an error."""

    rule: str
    incident: str
    message: str


@dataclass(slots=True)
class Replay:
    """Collects incidents one by one, and is the report at the end.

    Its size is bounded by the numbers of rules, causes and hours, not of incidents.
    """

    policy: SafeguardPolicy = field(default_factory=SafeguardPolicy)
    shown: int = 100
    """The most incidents that are kept whole: those that differ, the wrong ones first."""
    incidents: int = 0
    same: int = 0
    differs: int = 0
    by_rule: int = 0
    errors: int = 0
    wrong: Counter[DecisionError] = field(default_factory=Counter)
    proof: Counter[Proof] = field(default_factory=Counter)
    came: Counter[OutcomeKind] = field(default_factory=Counter)
    saved: float = 0.0
    spent: float = 0.0
    rules: dict[str, RuleTally] = field(default_factory=dict)
    groups: dict[ReplayGroupKey, ReplayGroup] = field(default_factory=dict)
    more_groups: int = 0
    """Differing incidents of groups beyond the most that are kept."""
    messages: list[ErrorOnPath] = field(default_factory=list)
    first: int | None = None
    last: int | None = None
    _wrong_ones: list[ComparedIncident] = field(default_factory=list)
    _others: list[ComparedIncident] = field(default_factory=list)
    _hours: Counter[tuple[str, int]] = field(default_factory=Counter)
    _windows: Counter[tuple[str, int]] = field(default_factory=Counter)

    def take(
        self, incident: str, *, at: int, job: str, attempt: Attempt, then: Answer, now: Answer, outcome: IncidentOutcome
    ) -> ComparedIncident:
        """Add an incident."""
        proof, wrong = judge(now, outcome)
        compared_incident = ComparedIncident(incident, at, attempt.cause, job, then, now, outcome, proof, wrong)
        self.incidents += 1
        if self.first is None or at < self.first:
            self.first = at
        if self.last is None or at > self.last:
            self.last = at
        self.came[outcome.came] += 1
        saved = spent = 0.0
        differs = compared_incident.differs
        if differs:
            self.differs += 1
            saved, spent = cost(then, now, attempt, outcome)
            self.saved += saved
            self.spent += spent
            self._group(compared_incident)
        else:
            self.same += 1
        if wrong is not None:
            self.wrong[wrong] += 1
        if differs or wrong is not None:
            kept = self._wrong_ones if wrong is not None else self._others
            if len(kept) < self.shown:
                kept.append(compared_incident)
        if now.by_rule:
            self._count(compared_incident, saved, spent)
        return compared_incident

    def _group(self, compared_incident: ComparedIncident) -> None:
        key = ReplayGroupKey(
            compared_incident.now.by, compared_incident.cause, compared_incident.then.way, compared_incident.now.way
        )
        group = self.groups.get(key)
        if group is None:
            if len(self.groups) >= MOST_GROUPS:
                self.more_groups += 1
                return
            group = self.groups[key] = ReplayGroup()
        group.count += 1
        group.wrong += compared_incident.wrong is not None
        group.came[compared_incident.outcome.came] += 1
        if len(group.examples) < EXAMPLES:
            group.examples.append(compared_incident.incident)

    def _count(self, compared_incident: ComparedIncident, saved: float, spent: float) -> None:
        self.by_rule += 1
        self.proof[compared_incident.proof] += 1
        tally = self.rules.get(compared_incident.now.by)
        if tally is None:
            tally = self.rules[compared_incident.now.by] = RuleTally()
        tally.answered += 1
        tally.differs += compared_incident.differs
        tally.came[compared_incident.outcome.came] += 1
        tally.saved += saved
        tally.spent += spent
        if compared_incident.now.way is AnswerKind.ERROR:
            self.errors += 1
            tally.errors += 1
            if len(self.messages) < MOST_ERRORS:
                self.messages.append(
                    ErrorOnPath(compared_incident.now.by, compared_incident.incident, compared_incident.now.does)
                )
            return
        tally.right += compared_incident.proof is Proof.RIGHT
        tally.unproven += compared_incident.proof is Proof.UNPROVEN
        if compared_incident.wrong is not None:
            tally.wrong[compared_incident.wrong] += 1
            if len(tally.examples) < EXAMPLES:
                tally.examples.append(compared_incident.incident)
        self._hours[compared_incident.now.by, compared_incident.at // HOUR] += 1
        self._windows[compared_incident.now.by, compared_incident.at // self.policy.rule_acts.window] += 1

    def finish(self) -> Replay:
        """Estimate the effect of the safeguards: acts of a rule in each hour, and in each window of its limit. Storms and canaries are not included."""
        for tally in self.rules.values():
            tally.peak_hour = tally.put_off = 0
        for (rule, _), acts in self._hours.items():
            self.rules[rule].peak_hour = max(self.rules[rule].peak_hour, acts)
        for (rule, _), acts in self._windows.items():
            self.rules[rule].put_off += max(0, acts - self.policy.rule_acts.tokens)
        return self

    @property
    def peak_hour(self) -> int:
        """The most acts of all rules in any hour of the clock."""
        hours: Counter[int] = Counter()
        for (_, hour), acts in self._hours.items():
            hours[hour] += acts
        return max(hours.values(), default=0)

    @property
    def wrongs(self) -> int:
        return sum(self.wrong.values())

    def examples(self) -> list[ComparedIncident]:
        """Incidents that differ or are wrong, the wrong ones first."""
        return (self._wrong_ones + self._others)[: self.shown]


def judge(now: Answer, outcome: IncidentOutcome) -> tuple[Proof, DecisionError | None]:
    """Whether the outcome of an incident supports or contradicts the verdict of a rule."""
    came = outcome.came
    if (
        not now.by_rule
        or now.way is AnswerKind.OTHER
        or came in (OutcomeKind.OPEN, OutcomeKind.UNKNOWN, OutcomeKind.CANCELLED)
    ):
        return Proof.UNPROVEN, None
    if now.way in TRYING:
        if came is OutcomeKind.RECOVERED or came is OutcomeKind.BY_HAND:
            # It was recovered. Whether this answer would have recovered it is only known if no more than this was done.
            return (Proof.RIGHT if _covers(now, outcome) else Proof.UNPROVEN), None
        if came is OutcomeKind.AGAIN and _was_tried(now, outcome):
            return Proof.WRONG, DecisionError.IN_VAIN
        return Proof.UNPROVEN, None
    if came is OutcomeKind.RECOVERED or (came is OutcomeKind.BY_HAND and now.way is not AnswerKind.HOLD):
        if now.way is AnswerKind.ERROR:
            return Proof.UNPROVEN, None
        return Proof.WRONG, DecisionError.COUNTS if now.way is AnswerKind.COMPLETE else DecisionError.STOPS
    if came is OutcomeKind.FORCED:
        return (Proof.WRONG, DecisionError.STOPS) if now.way is AnswerKind.FAIL else (Proof.RIGHT, None)
    return (Proof.UNPROVEN if now.way is AnswerKind.COMPLETE else Proof.RIGHT), None


def _was_tried(now: Answer, outcome: IncidentOutcome) -> bool:
    """Whether the next attempt was at least what the answer would do."""
    match now.way:
        case AnswerKind.CHANGED:
            return now.needs <= outcome.more
        case AnswerKind.ELSEWHERE:
            return outcome.other_host
        case _:
            return outcome.tried is not None


def _covers(now: Answer, outcome: IncidentOutcome) -> bool:
    """Whether the answer would do at least what the next attempt was given."""
    if outcome.tried is None:
        return False
    return outcome.more <= now.needs and (now.way is not AnswerKind.ELSEWHERE or outcome.other_host)


def cost(then: Answer, now: Answer, attempt: Attempt, outcome: IncidentOutcome) -> tuple[float, float]:
    """Core-seconds that the other answer would have saved, and would have spent in addition.

    An actual try costs what it cost; one that was not made, as much as the failed attempt. Stopping a job that succeeded would save nothing: the job had to run.
    """
    tried = outcome.tried
    if now.way in TRYING:
        return (0.0, 0.0) if tried is not None or then.way in TRYING else (0.0, attempt.core_seconds)
    in_vain = outcome.came not in (OutcomeKind.RECOVERED, OutcomeKind.BY_HAND)
    if now.way in STOPPING and tried is not None and in_vain:
        return tried.core_seconds, 0.0
    return 0.0, 0.0


def wrong_in(replay: Replay, rules: Iterable[str]) -> Counter[DecisionError]:
    """The wrong verdicts of some rules only."""
    wrong: Counter[DecisionError] = Counter()
    for rule in rules:
        if (tally := replay.rules.get(rule)) is not None:
            wrong += tally.wrong
    return wrong
