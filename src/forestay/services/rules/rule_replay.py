"""Evaluates rules on recorded incidents: those of a rule set at some version, with one rule promoted, or with drafts that are not yet added.

The incidents are read from the newest back, page by page, since the outcome of an incident depends on what its job did later (`domain.rules.incident_outcome`). One small value for each job is kept in
memory, and nothing of the incidents. The rules are evaluated once for each group of incidents that they cannot distinguish (`domain.rules.decision_groups`). The work is done in slices of a few milliseconds, so that a server continues to answer; one replay at a time in a process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from forestay.domain.exceptions.incidents.incident import Decision, Incident, IncidentStatus, as_judged
from forestay.domain.exceptions.safeguards.safeguards import SafeguardPolicy
from forestay.domain.rules.answer import Answer, answer_of_decision
from forestay.domain.rules.context import ALL_FIELDS, told_by
from forestay.domain.rules.incident_outcome import (
    UNKNOWN,
    Attempt,
    IncidentOutcome,
    LaterAttempts,
    earlier,
    incident_attempt,
    job_later,
    outcome_of,
)
from forestay.domain.rules.replay import Replay
from forestay.domain.rules.rule_set import RuleSet, RuleSetId, RuleSetLevel, tree_key, with_tree
from forestay.domain.rules.rule_tree import (
    ROOT,
    Rule,
    RuleChangeRefused,
    RuleState,
    RuleTree,
    add,
    walk,
    with_rules,
)
from forestay.ports.clock import Clock
from forestay.ports.errors import NotFound
from forestay.ports.exceptions.incident_store import IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobStore
from forestay.ports.rules.conditions import ConditionProblem, Conditions, ConditionSandbox
from forestay.services.flows.flow_store import FlowStore
from forestay.services.jobs.store_marks import incidents_pruned_before
from forestay.services.rules.playbook_store import PlaybookStore
from forestay.services.rules.replayed_sets import ReplayedSets
from forestay.services.rules.rule_editor import RuleDraft, check_draft, found_at
from forestay.services.rules.rule_store import RuleCache, RuleStore

T = TypeVar("T")
PAGE = 200
"""Statuses of one search."""
BUNCH = 100
"""Incidents that are read at once, with their decisions and jobs: decoding each kind takes a few milliseconds."""
SLICE = 0.002
"""Seconds of work between two turns of the event loop."""
MOST = 1_000_000
"""The most incidents of one replay, unless fewer are requested; the newest are used."""
MOST_ALLOWED = 1_000_000
MOST_PROPOSED_FROM = 100_000
"""The most incidents that are searched for proposals, unless more are requested; they are read completely, and twice."""
MOST_DRAFTS = 50


class ReplayRequest(NamedTuple):
    """What to replay, over which incidents."""

    rule_set: RuleSetId
    version: int | None = None
    """None: the newest version."""
    acting: bool = False
    """Only active rules count; else shadow rules do too, as if they were promoted."""
    promoted: str | None = None
    """This rule alone is taken as promoted; implies `acting`."""
    drafts: Sequence[RuleDraft] = ()
    """Rules that have not been added yet. They act."""
    since: int | None = None
    until: int | None = None
    most: int = MOST
    shown: int = 100
    fingerprint: str | None = None
    """Only the failures of this error; their outcomes then come from the job alone, not from its later failures of other errors."""
    grouped: bool = True
    """Evaluate the rules once for each group of incidents that they cannot distinguish; the verdicts are the same."""


@dataclass(frozen=True, slots=True)
class NotReplayed:
    """The replay is impossible; lists all reasons."""

    reasons: tuple[str, ...]
    problems: tuple[ConditionProblem, ...] = ()
    """Problems of a draft's condition, with their positions."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The report of a replay, and its subject."""

    question: ReplayRequest
    version: int
    """The version of the replayed set."""
    report: Replay
    drafts: tuple[str, ...] = ()
    """The names of the drafts in the report, in their order."""
    whole: bool = True
    """Whether every incident of the period was read; else only the newest."""
    evaluated: int = 0
    """The number of incidents on which the rules were evaluated; all others equal one of these in everything that the rules read."""
    read: tuple[str, ...] = ()
    """The fields that the rules read."""
    kept_since: int = 0
    """Incidents that were closed before this time may have been removed (milliseconds since 1970); 0: none was."""

    @property
    def rule_set(self) -> RuleSetId:
        return self.question.rule_set


class ReplayedIncident(NamedTuple):
    """One incident in a replay."""

    incident: Incident
    facts: Mapping[str, object]
    attempt: Attempt
    decision: Decision | None
    then: Answer
    outcome: IncidentOutcome
    flow: str


_Bunch = Sequence[tuple[Incident, Decision | None]]
Progress = Callable[[int], None]
Take = Callable[[ReplayedIncident], Awaitable[None]]


@dataclass(slots=True)
class RuleReplay:
    """The service."""

    incidents: IncidentStore
    jobs: JobStore
    flows: FlowStore
    rules: RuleStore
    cache: RuleCache
    conditions: Conditions
    trying: ConditionSandbox
    clock: Clock
    policy: SafeguardPolicy = field(default_factory=SafeguardPolicy)
    playbooks: PlaybookStore | None = None
    """The playbooks that rules conclude by name."""
    waiting: int = 0
    """The number of replays that run, or wait for the running one."""
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def count(self, question: ReplayRequest) -> int:
        """The number of incidents to read; up to a second old."""
        query = IncidentQuery(tenant=question.rule_set.tenant, since=question.since, until=question.until)
        return min(question.most, sum((await self.incidents.count(query, by="kind")).values()))

    async def replay(self, question: ReplayRequest, progress: Progress = lambda _: None) -> Replayed | NotReplayed:
        """Run the rules over the incidents. `NotFound` for a version or a rule that does not exist."""
        return await self.alone(lambda: self._replay(question, progress))

    async def alone(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do work that reads all incidents, one at a time in this process."""
        self.waiting += 1
        try:
            async with self._one:
                return await work()
        finally:
            self.waiting -= 1

    async def _replay(self, question: ReplayRequest, progress: Progress) -> Replayed | NotReplayed:
        made = await self._candidate(question)
        if isinstance(made, NotReplayed):
            return made
        candidate, drafts = made
        report = Replay(self.policy, question.shown)
        others = {rule_set.id: rule_set for rule_set in await self._others(candidate.id)}
        sets = ReplayedSets(self.cache, self.conditions, self.playbooks, candidate, others)
        sets.groups.alone = not question.grouped

        async def take(replayed_incident: ReplayedIncident) -> None:
            decided = await sets.decide(
                replayed_incident.incident, replayed_incident.facts, replayed_incident.flow, replayed_incident.then
            )
            report.take(
                replayed_incident.incident.id, at=replayed_incident.incident.at, job=replayed_incident.incident.job, attempt=replayed_incident.attempt,
                then=replayed_incident.then, now=decided, outcome=replayed_incident.outcome,
            )  # fmt: skip

        whole = await self.look(question, take, progress, sets.wanted())
        # Read afterwards: the mark of a removal comes before it, so that whatever was missing is reported.
        kept_since = await incidents_pruned_before(self.rules.documents)
        return Replayed(
            question,
            candidate.version,
            report.finish(),
            drafts,
            whole,
            sets.groups.evaluated,
            tuple(sets.read().values),
            kept_since if question.since is None or question.since < kept_since else 0,
        )

    async def look(
        self,
        question: ReplayRequest,
        take: Take,
        progress: Progress = lambda _: None,
        wanted: frozenset[str] = ALL_FIELDS,
    ) -> bool:
        """Pass every incident to `take`, newest first, each with its decision, its outcome and the wanted fields. Returns whether those were all.

        If the period has an end, incidents after it are read too, since they determine the outcomes of earlier ones.
        """
        tenant, flows = question.rule_set.tenant, dict[str, str]()
        later: dict[str, LaterAttempts] = {}
        only = question.rule_set.name if question.rule_set.level is RuleSetLevel.FLOW else None
        taken, turn = 0, self.clock.monotonic()
        async with aclosing(
            self._read(IncidentQuery(tenant=tenant, since=question.since, fingerprint=question.fingerprint), later)
        ) as known:
            async for incident, decision in known:
                looked = _looked(incident, decision, later, wanted)
                if question.until is not None and incident.at >= question.until:
                    continue
                if taken >= question.most:
                    return False
                taken += 1
                if incident.flow:
                    if incident.flow not in flows:
                        flows[incident.flow] = await self.flows.name(tenant, incident.flow)
                    looked = looked._replace(flow=flows[incident.flow])
                if only is None or looked.flow == only:
                    await take(looked)
                if self.clock.monotonic() - turn > SLICE:
                    progress(taken)
                    await asyncio.sleep(0)
                    turn = self.clock.monotonic()
        progress(taken)
        return True

    async def _read(
        self, query: IncidentQuery, later: dict[str, LaterAttempts]
    ) -> AsyncGenerator[tuple[Incident, Decision | None], None]:
        """The incidents from the newest back. While one batch is processed, the next one is read."""
        coming: asyncio.Task[_Bunch] | None = None
        try:
            async with aclosing(self._statuses(query)) as bunches:
                async for statuses in bunches:
                    ready = await coming if coming is not None else None
                    coming = asyncio.create_task(self._bunch(statuses, later))
                    for pair in ready or ():
                        yield pair
            for pair in await coming if coming is not None else ():
                yield pair
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)

    async def _statuses(self, query: IncidentQuery) -> AsyncGenerator[Sequence[IncidentStatus], None]:
        cursor: str | None = None
        while True:
            page = await self.incidents.find(query, sort="-at", limit=PAGE, cursor=cursor)
            for start in range(0, len(page.statuses), BUNCH):
                yield [stored.status for stored in page.statuses[start : start + BUNCH]]
            cursor = page.cursor
            if cursor is None:
                return

    async def _bunch(self, statuses: Sequence[IncidentStatus], later: dict[str, LaterAttempts]) -> _Bunch:
        """The incidents, decisions and jobs of some statuses; jobs that are not known yet are remembered."""
        incidents = await self.incidents.get_incidents([status.id for status in statuses])
        decisions = await self.incidents.get_decisions([_last(status) for status in statuses])
        new = list(dict.fromkeys(status.job for status in statuses if status.job and status.job not in later))
        jobs = await self.jobs.get(new) if new else {}
        for name in new:
            stored = jobs.get(name)
            later[name] = job_later(stored.document if stored is not None else None)
        return [
            # The last decision, which is compared, was made by the cause that was assigned last.
            (as_judged(incidents[status.id], status), decisions.get(_last(status)))
            for status in statuses
            if status.id in incidents
        ]

    async def _others(self, candidate: RuleSetId) -> Sequence[RuleSet]:
        await self.cache.refresh()
        return [rule_set for rule_set in self.cache.sets_of(candidate.tenant) if rule_set.id != candidate]

    async def _candidate(self, question: ReplayRequest) -> tuple[RuleSet, tuple[str, ...]] | NotReplayed:
        """The set to replay."""
        current = await self.rules.load(question.rule_set, question.version)
        if question.version is not None and current.version != question.version:
            raise NotFound(f"there is no version {question.version} of {question.rule_set}")
        made = current
        if question.promoted is not None:
            key, rule = found_at(current, question.promoted)
            made = with_tree(made, key, with_rules(made.tree(key), replace(rule, state=RuleState.ACTIVE)))
        elif not question.acting:
            made = acting(made)
        names: list[str] = []
        for place, draft in enumerate(question.drafts, 1):
            name = f"draft-{place}"
            grown = await self._with_draft(made, draft, name)
            if isinstance(grown, NotReplayed):
                return grown
            made, names = grown, [*names, name]
        return RuleSet(made.id, current.version, made.trees), tuple(f"{made.id}#{name}" for name in names)

    async def _with_draft(self, current: RuleSet, draft: RuleDraft, name: str) -> RuleSet | NotReplayed:
        """The set with one more rule, at the end of its reference incident's evaluation."""
        context, reasons, problems = await check_draft(draft, self.trying, self.playbooks)
        if reasons or problems:
            return NotReplayed(tuple(f"{name}: {reason}" for reason in reasons), problems)
        key = tree_key(draft.type, draft.task)
        tree = current.tree(key)
        rule = Rule(name, draft.condition, draft.conclusion, RuleState.ACTIVE, draft.reference_incident)
        grown = add(tree, rule, walk(tree, self.conditions.over(context), shadow=True))
        return (
            NotReplayed((f"{name}: {grown.reason}",))
            if isinstance(grown, RuleChangeRefused)
            else with_tree(current, key, grown)
        )


def acting(rule_set: RuleSet) -> RuleSet:
    """The set as if every rule of it were promoted."""
    trees = {
        key: RuleTree(
            MappingProxyType(
                {
                    name: rule if rule.state is RuleState.ACTIVE else replace(rule, state=RuleState.ACTIVE)
                    for name, rule in tree.rules.items()
                }
            )
        )
        if tree.shadowed
        else tree
        for key, tree in rule_set.trees.items()
    }
    return RuleSet(rule_set.id, rule_set.version, MappingProxyType(trees))


def beneath(rule_set: RuleSet, rule: str) -> frozenset[str]:
    """A rule and all its refinements, which can only be reached through it."""
    key, _ = found_at(rule_set, rule)
    rules = rule_set.tree(key).rules
    below, waiting = {rule}, [rules[rule].true_child]
    while waiting:
        returned_rule = waiting.pop()
        if returned_rule is not None and returned_rule != ROOT:
            below.add(returned_rule)
            waiting += [rules[returned_rule].true_child, rules[returned_rule].false_child]
    return frozenset(below)


def _last(status: IncidentStatus) -> tuple[str, int]:
    """The name of the valid decision: the last one."""
    return status.id, max(1, status.n)


def _looked(
    incident: Incident, decision: Decision | None, later: dict[str, LaterAttempts], wanted: frozenset[str]
) -> ReplayedIncident:
    """One incident with its outcome; the job's memory moves back to before it."""
    facts = told_by(incident, wanted)
    attempt = incident_attempt(facts)
    known = later.get(incident.job) if incident.job else None
    outcome = UNKNOWN if known is None else outcome_of(attempt, known)
    if known is not None:
        later[incident.job] = earlier(known, attempt)
    return ReplayedIncident(incident, facts, attempt, decision, answer_of_decision(decision), outcome, "")
