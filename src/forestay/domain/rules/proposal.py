"""Proposals: rules derived from what recovered past failures, and from what people did by hand (P0-30).

Pure: the incidents are passed in one by one with their outcomes (`incident_outcome`). Each that was followed by an action shows one *remedy*: the job was retried unchanged, on another host, or with more of
a resource; or a person failed it, cancelled it or declared it done. Remedies are counted over groups of incidents, from broad (a cause) to narrow (a cause with a pattern, an exit code, a task, a
job's name, a host, and finally a single error). A rule is proposed for a group in which a remedy helped at least `LEAST` times, and failed in at most a fifth of the tries. Where further tries failed again and again, the proposal is to ask a person.

The condition is as narrow as the support allows: the facts that define the group, and every further fact that all supporting incidents share. A proposal has no effect by itself; when added it becomes a shadow rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.jobs.lifecycle import Event
from forestay.domain.rules.answer import Answer, answer_of_steps
from forestay.domain.rules.incident_outcome import AMOUNTS, Attempt, IncidentOutcome, OutcomeKind

LEAST = 3
"""How often a remedy must have helped."""
EXCEPTIONS = 0.2
"""The share of the tries in which it may have failed."""
MOST_WRONG = 0.1
"""The largest share of the answered incidents for which a proposal may be wrong."""
MOST_GROUPS = 20_000
EXAMPLES = 5
MOST_SHARED = 3
"""The most further facts in a condition."""
FINGERPRINT = "exception.fingerprint"
FACTS = (
    "cause", "pattern", "exception.task", "job.name", "evidence.exit_code", "evidence.signal", "evidence.scheduler_state",
    "evidence.scheduler_reason", "evidence.stage", "host.name", FINGERPRINT,
)  # fmt: skip
"""The fields that conditions of proposals compare, the most significant first."""
SPLITS: tuple[tuple[str, ...], ...] = (
    ("cause",), ("cause", "pattern"), ("cause", "exception.task"), ("cause", "job.name"), ("cause", "evidence.exit_code"),
    ("cause", "evidence.signal"), ("cause", "evidence.scheduler_reason"), ("cause", "host.name"),
    ("cause", FINGERPRINT),
)  # fmt: skip
"""The groups that are examined, the broad ones first."""
OF_ONE_ERROR = SPLITS[-1:]
"""The groups when only the failures of one error are examined: they support nothing broader."""
UNKNOWN = "unknown"

Fact = tuple[str, str | int]


class FollowUpKind(StrEnum):
    """What followed a failure."""

    RETRY = "retry"
    ELSEWHERE = "elsewhere"
    MORE = "more"
    FAIL = "fail"
    COMPLETE = "complete"
    ASK = "ask"
    """Further tries failed."""


class ProposedRemedy(NamedTuple):
    """A possible action on a failure."""

    kind: FollowUpKind
    amounts: tuple[str, ...] = ()
    """The resources that were increased."""


class ProposalGroupKey(NamedTuple):
    """The incidents of a type that share some facts."""

    type: ExceptionType
    facts: tuple[Fact, ...]


@dataclass(slots=True)
class Support:
    """How often a remedy helped in a group, and the facts shared by the incidents in which it did."""

    helped: int = 0
    tried: int = 0
    by_hand: int = 0
    shared: dict[str, str | int] | None = None
    examples: list[str] = field(default_factory=list)
    """Incidents in which it helped, the newest first."""
    against: list[str] = field(default_factory=list)
    """Incidents in which it did not help."""
    factors: dict[str, tuple[float, int]] = field(default_factory=dict)
    """For each amount: the largest factor by which it was raised, and the most that a job then had."""

    @property
    def enough(self) -> bool:
        return self.helped >= LEAST and self.tried - self.helped <= EXCEPTIONS * self.tried


@dataclass(frozen=True, slots=True)
class Proposal:
    """A rule that somebody may want to add."""

    type: ExceptionType
    condition: str
    steps: tuple[Mapping[str, object], ...]
    remedy: ProposedRemedy
    helped: int
    tried: int
    by_hand: int
    examples: tuple[str, ...]
    against: tuple[str, ...]
    facts: tuple[Fact, ...]

    @property
    def reference_incident(self) -> str:
        return self.examples[0]

    @property
    def id(self) -> str:
        """The id of the proposal: the same for the same rule, whenever it is proposed."""
        text = json.dumps([self.type.value, self.condition, self.remedy.kind.value, self.remedy.amounts])
        return blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()

    @property
    def fingerprint(self) -> str:
        """The error that it applies to; empty: more than one."""
        return str(dict(self.facts).get(FINGERPRINT, ""))

    @property
    def answer(self) -> Answer:
        """The answer that it would give; its name is only valid among proposals."""
        return answer_of_steps(self.steps, f"proposal#{self.condition}")


def remedy_of(outcome: IncidentOutcome) -> tuple[ProposedRemedy, bool] | None:
    """The action that followed a failure, and whether it helped. None: there was none, or it has not ended."""
    if outcome.came in (OutcomeKind.OPEN, OutcomeKind.UNKNOWN):
        return None
    tried = outcome.tried
    if tried is not None:
        if outcome.more:
            return ProposedRemedy(FollowUpKind.MORE, tuple(name for name in AMOUNTS if name in outcome.more)), tried.ok
        return ProposedRemedy(FollowUpKind.ELSEWHERE if outcome.other_host else FollowUpKind.RETRY), tried.ok
    events = {hand.event for hand in outcome.hands}
    if outcome.came is OutcomeKind.FORCED and Event.FORCE_COMPLETE in events:
        return ProposedRemedy(FollowUpKind.COMPLETE), True
    if events & {Event.FORCE_FAIL.value, Event.CANCEL.value}:
        return ProposedRemedy(FollowUpKind.FAIL), True
    return None


def facts_of(facts: Mapping[str, object]) -> dict[str, str | int]:
    """The facts of an incident that a condition may compare; empty values are left out."""
    values: dict[str, str | int] = {}
    for name in FACTS:
        value = facts.get(name)
        if isinstance(value, bool) or not isinstance(value, str | int):
            continue
        if value != "" and (not isinstance(value, str) or len(value) <= 200):
            values[name] = value
    return values


@dataclass(slots=True)
class Proposals:
    """Collects incidents one by one. Its size is bounded by the number of groups."""

    groups: dict[ProposalGroupKey, dict[ProposedRemedy, Support]] = field(default_factory=dict)
    splits: tuple[tuple[str, ...], ...] = SPLITS

    def take(
        self,
        incident: str,
        type_: ExceptionType,
        facts_data: Mapping[str, object],
        attempt: Attempt,
        outcome: IncidentOutcome,
        *,
        by_person: bool = False,
    ) -> None:
        """Add an incident; the newest come first. ``by_person``: a person chose the action, such as a playbook for a group of the inbox."""
        found_remedy = remedy_of(outcome)
        if found_remedy is None:
            return
        remedy, helped = found_remedy
        facts = facts_of(facts_data)
        seen = [(remedy, helped)]
        if remedy.kind in (FollowUpKind.RETRY, FollowUpKind.ELSEWHERE, FollowUpKind.MORE):
            # Asking a person is right where the tries failed to the end, and counts as an exception where one succeeded.
            seen.append((ProposedRemedy(FollowUpKind.ASK), outcome.came is OutcomeKind.AGAIN))
        for names in self.splits:
            key = ProposalGroupKey(type_, tuple((name, facts[name]) for name in names if name in facts))
            if len(key.facts) < len(names):
                continue
            group = self.groups.get(key)
            if group is None:
                if len(self.groups) >= MOST_GROUPS:
                    continue
                group = self.groups[key] = {}
            for proposed_remedy, good in seen:
                support = group.setdefault(proposed_remedy, Support())
                _note(support, incident, facts, attempt, outcome, good=good, by_hand=by_person or bool(outcome.hands))

    def made(self) -> list[Proposal]:
        """The proposed rules, the best supported first. A narrow group is skipped if a broad one has the same remedy."""
        proposals: list[Proposal] = []
        for key, group in sorted(self.groups.items(), key=lambda pair: (len(pair[0].facts), str(pair[0]))):
            if _vague(key):
                continue
            for remedy, support in group.items():
                if not support.enough or any(_covers(proposal, key, remedy) for proposal in proposals):
                    continue
                if remedy.kind is FollowUpKind.ELSEWHERE and _helps(group, FollowUpKind.RETRY):
                    continue  # another try on the same host does as well
                proposals.append(_proposal(key, remedy, support))
        return sorted(proposals, key=lambda proposal: (-proposal.helped, proposal.condition))


def _note(
    support: Support,
    incident: str,
    facts: Mapping[str, str | int],
    attempt: Attempt,
    outcome: IncidentOutcome,
    *,
    good: bool,
    by_hand: bool,
) -> None:
    support.tried += 1
    if not good:
        if len(support.against) < EXAMPLES:
            support.against.append(incident)
        return
    support.helped += 1
    support.by_hand += by_hand
    if support.shared is None:
        support.shared = dict(facts)
    else:
        support.shared = {name: value for name, value in support.shared.items() if facts.get(name) == value}
    if len(support.examples) < EXAMPLES:
        support.examples.append(incident)
    if outcome.tried is not None:
        for place, name in enumerate(AMOUNTS):
            before, after = attempt.amounts[place], outcome.tried.amounts[place]
            if after > before > 0:
                factor, most = support.factors.get(name, (1.0, 0))
                support.factors[name] = (max(factor, after / before), max(most, after))


def _vague(key: ProposalGroupKey) -> bool:
    """Whether a group is too vague: an unknown cause alone is no basis for an answer."""
    facts = dict(key.facts)
    return facts.get("cause", UNKNOWN) == UNKNOWN and len(facts) == 1


def _covers(proposal: Proposal, key: ProposalGroupKey, remedy: ProposedRemedy) -> bool:
    return proposal.type is key.type and proposal.remedy == remedy and set(proposal.facts) <= set(key.facts)


def _helps(group: Mapping[ProposedRemedy, Support], kind: FollowUpKind) -> bool:
    return any(remedy.kind is kind and support.enough for remedy, support in group.items())


def _proposal(key: ProposalGroupKey, remedy: ProposedRemedy, support: Support) -> Proposal:
    further = [
        (name, value)
        for name, value in (support.shared or {}).items()
        if name in FACTS and name not in dict(key.facts) and name not in ("cause", FINGERPRINT)
    ]
    if FINGERPRINT in dict(key.facts):
        further = []  # nothing is narrower than one error
    condition = " && ".join(_comparison(*fact) for fact in (*key.facts, *further[:MOST_SHARED]))
    return Proposal(
        key.type,
        condition,
        _steps(remedy, support),
        remedy,
        support.helped,
        support.tried,
        support.by_hand,
        tuple(support.examples),
        tuple(support.against),
        key.facts,
    )


def _comparison(name: str, value: str | int) -> str:
    return f"{name} == {json.dumps(value)}"


def _steps(remedy: ProposedRemedy, support: Support) -> tuple[Mapping[str, object], ...]:
    match remedy.kind:
        case FollowUpKind.RETRY:
            return ({"action": "retry"},)
        case FollowUpKind.ELSEWHERE:
            return ({"action": "avoid-host"}, {"action": "resubmit"})
        case FollowUpKind.MORE:
            needs = {
                name: {"factor": round(min(support.factors[name][0], 64.0), 2), "at_most": support.factors[name][1]}
                for name in remedy.amounts
                if name in support.factors
            }
            if not needs:
                return ({"action": "retry"},)
            return ({"action": "resubmit", "how": "changed", "needs": needs},)
        case FollowUpKind.FAIL:
            return ({"action": "force-fail"},)
        case FollowUpKind.COMPLETE:
            return ({"action": "force-complete"},)
        case FollowUpKind.ASK:
            return ({"action": "hold"},)


def in_words(proposal: Proposal) -> Iterator[str]:
    """A proposal in words: the observation, and the conclusion."""
    named = [(name, value) for name, value in proposal.facts if not proposal.fingerprint or name == FINGERPRINT]
    where = " and ".join(f"error {value}" if name == FINGERPRINT else f"{name} {value}" for name, value in named)
    did = {
        FollowUpKind.RETRY: "a retry recovered",
        FollowUpKind.ELSEWHERE: "a retry on another host recovered",
        FollowUpKind.MORE: f"a retry with more {' and '.join(proposal.remedy.amounts)} recovered",
        FollowUpKind.FAIL: "a person gave up",
        FollowUpKind.COMPLETE: "a person marked as complete",
        FollowUpKind.ASK: "further retries did not help",
    }[proposal.remedy.kind]
    hand = f", {proposal.by_hand} of them by hand" if proposal.by_hand else ""
    yield f"Of failures with {where}, {did} {proposal.helped} of {proposal.tried}{hand}."
    if proposal.against:
        yield f"It did not hold for {proposal.tried - proposal.helped}, such as {proposal.against[0]}."


def worth(*, answered: int, differs: int, wrong: int) -> bool:
    """Whether a proposal is worth showing after it was replayed: it changes something, and is hardly ever wrong."""
    return differs >= 1 and wrong <= MOST_WRONG * answered
