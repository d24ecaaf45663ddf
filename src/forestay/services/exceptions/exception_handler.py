"""Answers exceptions other than the failure of a job of ours: constraints, timeouts, what people raise, what another engine reports.

The same order as for failures: the incident with everything that it is decided by, the decision on it, then the act; each is written down before the next, and
create-only, so that whoever repeats acts by what was written first. What was recorded and not carried out is due, and any reconciler finds it by that.

An exception for which no rule concludes and for which the default policy wants nothing leaves nothing behind: it is ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from forestay.domain.exceptions.incidents.exception_policy import ExceptionAction, ExceptionPolicy
from forestay.domain.exceptions.incidents.exception_type import EXCEPTIONS, ExceptionType
from forestay.domain.exceptions.incidents.incident import (
    CLOSED,
    OWN_ENGINE,
    Decision,
    Incident,
    IncidentState,
    IncidentStatus,
    status_of,
)
from forestay.domain.exceptions.safeguards.job_cost import cost_of
from forestay.domain.exceptions.safeguards.safeguards import ActionRequest, Chain
from forestay.domain.exceptions.safeguards.storm import FailureSignature, sign_of
from forestay.domain.playbooks.action import RESENDING, ActionKind, ActionTarget, RetryByPolicy, Steer
from forestay.domain.playbooks.playbook import Playbook, PlaybookStep
from forestay.domain.playbooks.playbook_plain import playbook_as_plain, playbook_from_plain
from forestay.domain.rules.condition import ConditionVerdict
from forestay.domain.rules.context import read_context
from forestay.domain.rules.incident_context import told_by
from forestay.domain.rules.rule_set import ANY_TASK
from forestay.ports.clock import Clock
from forestay.ports.errors import NotFound, Permanent, Transient, Unreadable
from forestay.ports.exceptions.incident_store import IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobStore
from forestay.services.exceptions.act.incident_actions import ActionTaken, IncidentActions
from forestay.services.exceptions.detect.exception_event import ExceptionEvent, incident_raised
from forestay.services.exceptions.record.decision_log import agreed_on, newest, readable_of
from forestay.services.exceptions.record.incident_settlement import NOTE_KEPT
from forestay.services.rules.playbook_store import PlaybookStore, concluded_in_place
from forestay.services.rules.rule_cache import RuleCache
from forestay.services.rules.rule_decision import DEFAULT_POLICY, PLAYBOOK, decision_by_rule, shadow_said
from forestay.services.shared.polling import poll_forever
from forestay.services.shared.quarantine import Quarantine

FRESH = 0.5
"""Seconds that the copy of the rules may be old."""
LEFT_BEHIND = 60_000
"""Milliseconds after which what was recorded is surely not being carried out by who recorded it."""
BULK = 200
CHAIN = 100
"""Earlier incidents of a task or a run that are looked at for what rules have done to it."""
_STATES = {ExceptionAction.HOLD.value: IncidentState.HELD, ExceptionAction.IGNORE.value: IncidentState.IGNORED}


class HandledException(NamedTuple):
    """What an exception came to."""

    incident: str
    """Empty: it was ignored, and nothing was written down."""
    verdict: str
    """``ignore``, ``hold``, ``retry``, ``fail``, or ``playbook`` where a rule concluded."""
    decision: Decision | None = None

    @property
    def ignored(self) -> bool:
        return self.verdict == ExceptionAction.IGNORE

    @property
    def acts(self) -> bool:
        """Whether something is to be carried out."""
        return self.decision is not None and self.decision.playbook is not None


@dataclass(slots=True)
class ExceptionHandler:
    """The service; any number of servers, orchestrators and reconcilers run it."""

    incidents: IncidentStore
    store: JobStore
    rules: RuleCache
    playbooks: PlaybookStore | None
    """Those that rules conclude by their names."""
    acting: IncidentActions
    clock: Clock
    policy: ExceptionPolicy = field(default_factory=ExceptionPolicy)
    every: float = 2.0
    troubled: Callable[[str], None] = lambda _text: None
    answered: int = 0
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Counts what this loop could not handle."""
    _rules_seen: int = 0
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def get_ready(self) -> None:
        """Look at the rules, unless that was just done. `Transient` if the store does not answer: nobody decides by half of them."""
        if self.rules.age > FRESH:
            async with self._looking:
                # Of many who ask at once one looks, for all.
                if self.rules.age > FRESH:
                    await self.rules.refresh()

    def has_rules(self, tenant: str, flow_name: str, kind: ExceptionType, task: str = "", *, own: bool = False) -> bool:
        """Whether any rule, or shadow of one, could answer: in memory, and as quick for many rules as for few. ``own``: one of the task's own tree."""
        return self.rules.has_tree(tenant, flow_name, kind, task, own=own)

    def wanted(self, tenant: str, flow_name: str, kind: ExceptionType, task: str = "") -> bool:
        """Whether anything at all could come of such an exception: by a rule, or by the default policy."""
        return self.policy.course(kind) is not ExceptionAction.IGNORE or self.has_rules(tenant, flow_name, kind, task)

    # -- what was raised ---------------------------------------------------------------------------------------

    async def answer(self, raised: Sequence[ExceptionEvent]) -> Sequence[HandledException]:
        """Decide on each, and carry it out. `Transient` if the store does not answer: the same call again is safe."""
        exceptions = await self.record(raised)
        await self.carry_out([exception.incident for exception in exceptions if exception.acts])
        return exceptions

    async def record(
        self, raised: Sequence[ExceptionEvent], *, left_behind: int | None = LEFT_BEHIND
    ) -> Sequence[HandledException]:
        """Decide on each and write it down; `carry_out` does the rest.

        ``left_behind``: after so many milliseconds a reconciler carries it out; None: whoever recorded it surely will.
        """
        await self.get_ready()
        now = self.clock.now()
        answers: list[HandledException] = []
        for start in range(0, len(raised), BULK):
            answers += await self._record(raised[start : start + BULK], now, left_behind)
        return answers

    async def _record(
        self, raised: Sequence[ExceptionEvent], now: int, left_behind: int | None
    ) -> list[HandledException]:
        decided = {event.id: await self._decide_or_hold(incident_raised(event), now) for event in raised}
        kept = {name: pair for name, pair in decided.items() if not _forgettable(pair[1])}
        if kept:
            due = None if left_behind is None else now + left_behind
            costs = await self._costs([incident for incident, _ in kept.values()])
            new = await self.incidents.add_incidents(
                [(incident, _status(incident, due, costs)) for incident, _ in kept.values()]
            )
            await self._count([incident for (incident, _), first in zip(kept.values(), new, strict=True) if first])
            agreed = await readable_of(self.incidents, [decision for _, decision in kept.values()])
            if not all(new):
                agreed = await newest(self.incidents, agreed)
            for decision in agreed:
                kept[decision.incident] = (kept[decision.incident][0], decision)
            readable = {decision.incident for decision in agreed}
            for name in kept.keys() - readable:
                self.quarantine.report(f"incident {name}", "its decision cannot be read", self.troubled)
            await self._settle([decision for decision in agreed if decision.playbook is None])
            self.answered += sum(new)
        return [_answered(kept.get(event.id)) for event in raised]

    async def _costs(self, incidents: Sequence[Incident]) -> Mapping[str, int]:
        """What another attempt would cost, by job."""
        jobs = sorted({incident.job for incident in incidents if incident.job and incident.engine == OWN_ENGINE})
        known = await self.quarantine.readable(self.store.get, jobs, self.troubled) if jobs else {}
        return {name: cost_of(stored.document) for name, stored in known.items()}

    async def _count(self, incidents: Sequence[Incident]) -> None:
        """Failures of other engines' tasks are counted for storms once, before anyone asks to act on them; those of our own jobs are counted where they are handled."""
        signs: dict[str, list[FailureSignature]] = {}
        for incident in incidents:
            if _is_foreign_failure(incident):
                signs.setdefault(incident.tenant, []).append(_sign(incident))
        for tenant, some in signs.items():
            if self.acting.safeguards is not None:
                await self.acting.safeguards.storms.notice(tenant, some)

    async def _settle(self, decisions: Sequence[Decision]) -> None:
        """Say incident status for which there is nothing to carry out."""
        for decision in decisions:
            await self.acting.note(
                decision.incident, decision.n, _STATES[decision.verdict], str(decision.detail.get("words", ""))
            )

    async def carry_out(self, incidents: Sequence[str]) -> Sequence[ActionTaken]:
        """Act by the recorded decisions; what is over, or under way, is left alone.

        An incident that cannot be acted on is held for a person. `Transient` after all others were acted on: the same call again is safe.
        """
        known = await self.quarantine.readable(self.incidents.get_incidents, incidents, self.troubled)
        statuses = await self.quarantine.readable(self.incidents.get_statuses, incidents, self.troubled)
        acted: list[ActionTaken] = []

        async def act_on(incident: Incident) -> None:
            status = statuses[incident.id].status if incident.id in statuses else None
            if status is None or status.state in CLOSED | {IncidentState.ACTING, IncidentState.HELD}:
                return
            decision = await self.incidents.get_decision(incident.id, max(1, status.n))
            if decision is not None and decision.playbook is not None:
                acted.append(await self.act(incident, decision))

        later = await self.quarantine.each(
            known.values(),
            act_on,
            name=lambda incident: f"incident {incident.id}",
            troubled=self.troubled,
            failed=lambda incident, why: self._hold(incident.id, why),
        )
        if later is not None:
            raise later
        return acted

    async def act(self, incident: Incident, decision: Decision, *, by_person: bool = False) -> ActionTaken:
        """Carry out the playbook of a decision; what a person has decided asks no safeguards."""
        assert decision.playbook is not None  # noqa: S101 - the caller looked
        playbook = playbook_from_plain(decision.playbook)
        request = None if by_person else await self._request(incident, decision, playbook)
        return await self.acting.act(incident, decision, playbook, request)

    async def resume(self, incident: str, n: int) -> bool:
        """Act now on a decision that was held: another person has agreed to it."""
        known = (await self.incidents.get_incidents([incident])).get(incident)
        status = (await self.incidents.get_statuses([incident])).get(incident)
        decision = await self.incidents.get_decision(incident, n)
        if known is None or status is None or decision is None or decision.playbook is None:
            return False
        if status.status.state is not IncidentState.HELD or status.status.n != n:
            return False
        await self.acting.note(incident, n, IncidentState.WAITING, "agreed to", due=self.clock.now() + LEFT_BEHIND)
        await self.act(known, decision)
        return True

    # -- decisions ---------------------------------------------------------------------------------------------

    async def _decide_or_hold(self, incident: Incident, now: int) -> tuple[Incident, Decision]:
        """What is done about an incident; a person is asked where that cannot be decided. `Transient` if the store does not answer."""
        try:
            return await self._decide(incident, now)
        except Transient:
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            self.quarantine.report(f"incident {incident.id}", why, self.troubled)
            detail = {"words": f"could not be decided on: {why}"}
            held = Decision(
                incident.id, 1, incident.tenant, now, ExceptionAction.HOLD.value, DEFAULT_POLICY, detail=detail
            )
            return incident, held

    async def _decide(self, incident: Incident, now: int, n: int = 1) -> tuple[Incident, Decision]:
        """What is done about an incident, by what is written in it and nothing else."""
        context, _ = read_context(told_by(incident))
        flow, task = str(context["run.flow"]), str(context["exception.task"])
        active, shadow = self.rules.decide(incident.tenant, flow, incident.kind, task, context)
        by = active.by
        if by is not None and by.key.task == ANY_TASK and _stands_beside(incident):
            # A rule for any task speaks of the task whose time is over, not of those that happen to run beside it.
            active = type(active)(())
        seen = {"shadow": shadow_said(shadow)} if shadow is not None else {}
        if active.verdict is ConditionVerdict.FALSE:
            return incident, _by_default_policy(incident, self.policy.course(incident.kind), now, n, seen)
        if self.playbooks is None:
            playbook = concluded_in_place(active.conclusion, incident.kind)
        else:
            playbook = await self.playbooks.concluded(incident.tenant, active.conclusion, incident.kind)
        return incident, decision_by_rule(incident, active, playbook, now, n=n, seen=seen)

    async def _request(self, incident: Incident, decision: Decision, playbook: Playbook) -> ActionRequest:
        first, *later = playbook.steps
        cost = 0
        if incident.job and incident.engine == OWN_ENGINE and any(step.action in RESENDING for step in playbook.steps):
            stored = (await self.store.get([incident.job])).get(incident.job)
            cost = cost_of(stored.document) if stored is not None else 0
        return ActionRequest(
            tenant=incident.tenant,
            owner=incident.owner,
            job=incident.job or incident.id,
            attempt=incident.attempt,
            sign=_sign(incident),
            action=first.action.value,
            target=str(getattr(first.do, "target", "")),
            rule=decision.by,
            rule_owner=str(decision.detail.get("rule_owner", "")),
            core_seconds=cost,
            chain=await self._chain(incident, decision),
            also=tuple((step.action.value, str(getattr(step.do, "target", ""))) for step in later),
            decision=decision.id,
        )

    async def _chain(self, incident: Incident, decision: Decision) -> Chain:
        """The acts of rules that led here: on the same task or run before, and in the runs whose playbooks started this one."""
        if not incident.run:
            return Chain()
        page = await self.incidents.find(
            IncidentQuery(tenant=incident.tenant, run=incident.run, instance=incident.instance), sort="-at", limit=CHAIN
        )
        before = [stored.status.id for stored in page.statuses if stored.status.id != incident.id and stored.status.n]
        made = [other_decision for name in before for other_decision in await self.incidents.decisions(name)]
        acted = [
            other_decision.by
            for other_decision in made
            if other_decision.verdict == PLAYBOOK and not other_decision.shadow
        ]
        most = self.acting.safeguards.policy.max_depth if self.acting.safeguards is not None else 0
        above, run = 0, incident.run
        while above <= most and (record := await self.store.get_record(f"worklet:{run}")) is not None:
            above, run = above + 1, str(record.body.get("run", ""))
        return Chain(by_rule=acted.count(decision.by), on_instance=len(acted), above=above)

    # -- what is due -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look for what was left behind or put off, and for rules that answer what waits for a person."""
        await poll_forever(self.look, self.every, self.troubled)

    async def look(self) -> None:
        await self.get_ready()
        if self.rules.taken_over != self._rules_seen:
            seen = self.rules.taken_over
            await self.reconsider()
            self._rules_seen = seen
        now = self.clock.now()
        for query in _queries(frozenset({IncidentState.OPEN, IncidentState.WAITING}), due=now):
            async for page in self._pages(query, "due"):
                later = await self.quarantine.each(
                    page,
                    lambda status: self._go_on(status, now),
                    name=lambda status: f"incident {status.id}",
                    troubled=self.troubled,
                    failed=lambda status, why: self._hold(status.id, why),
                )
                if later is not None:
                    self.troubled(str(later))

    async def _pages(self, query: IncidentQuery, sort: str) -> AsyncIterator[Sequence[IncidentStatus]]:
        """All statuses of a query: those that cannot be handled now must not hide the others behind them."""
        cursor: str | None = None
        while True:
            page = await self.incidents.find(query, sort=sort, limit=BULK, cursor=cursor)
            yield [stored.status for stored in page.statuses]
            cursor = page.cursor
            if cursor is None:
                return

    async def _hold(self, incident: str, why: str) -> None:
        """Hold an incident for a person that cannot be handled without one."""
        known = (await self.incidents.get_statuses([incident])).get(incident)
        n = max(1, known.status.n) if known is not None else 1
        await self.acting.note(incident, n, IncidentState.HELD, f"could not be handled: {why}"[:NOTE_KEPT])

    async def _go_on(self, status: IncidentStatus, now: int) -> None:
        incident = (await self.incidents.get_incidents([status.id])).get(status.id)
        if incident is None:
            raise Permanent("its incident is missing from the store")
        decision = await self.incidents.get_decision(incident.id, max(1, status.n))
        if decision is None:
            (decision,) = await agreed_on(self.incidents, [(await self._decide(incident, now))[1]])
        if decision.playbook is None:
            await self._settle([decision])
            return
        await self.act(incident, decision)

    async def reconsider(self) -> None:
        """What waits for a person may be answered by rules that were added since: by a new decision, which stands beside the first."""
        for query in _queries(frozenset({IncidentState.HELD})):
            async for page in self._pages(query, "at"):
                names = [status.id for status in page]
                known = await self.quarantine.readable(self.incidents.get_incidents, names, self.troubled)
                later = await self.quarantine.each(
                    [(known[status.id], status.n) for status in page if status.id in known],
                    lambda held: self._decide_again(*held),
                    name=lambda held: f"incident {held[0].id}",
                    troubled=self.troubled,
                )
                if later is not None:
                    raise later

    async def _decide_again(self, incident: Incident, n: int) -> None:
        try:
            before = await self.incidents.get_decision(incident.id, n) if n else None
        except Unreadable:
            before = None  # whatever it was, it could not be carried out
        _, decision = await self._decide(incident, self.clock.now(), n + 1)
        if decision.verdict != PLAYBOOK or (before is not None and before.by == decision.by):
            return  # what this rule could do it has done
        (agreed,) = await agreed_on(self.incidents, [decision])
        try:
            await self.act(incident, agreed)
        except NotFound:
            await self.acting.note(incident.id, agreed.n, IncidentState.HELD, "its run no longer exists")
        self.answered += 1


def _queries(states: frozenset[IncidentState], due: int | None = None) -> Sequence[IncidentQuery]:
    """The incidents that are answered here. Those of our own jobs' failures have a job; they are `FailureHandler`'."""
    return [
        IncidentQuery(kind=kind.value, states=states, due=due, job="" if kind is ExceptionType.ABORT else None)
        for kind in sorted(EXCEPTIONS)
    ]


def _status(incident: Incident, due: int | None, costs: Mapping[str, int]) -> IncidentStatus:
    status = replace(status_of(incident, core_seconds=costs.get(incident.job, 0)), due=due)
    # A job of another engine is none that anybody here could look for.
    return status if incident.engine == OWN_ENGINE else replace(status, job="")


def _stands_beside(incident: Incident) -> bool:
    """Whether a timeout is told to a task that runs beside the one whose time is over."""
    exception: Any = incident.context.get("exception")
    late = exception.get("task_id", incident.instance) if isinstance(exception, Mapping) else incident.instance
    return incident.kind is ExceptionType.TIMEOUT and bool(incident.instance) and late != incident.instance


def _forgettable(decision: Decision) -> bool:
    """Nothing is done, and no shadow would have done something."""
    return decision.verdict == ExceptionAction.IGNORE and "shadow" not in decision.detail


def _answered(decided: tuple[Incident, Decision] | None) -> HandledException:
    if decided is None:
        return HandledException("", ExceptionAction.IGNORE.value)
    incident, decision = decided
    return HandledException(incident.id, decision.verdict, decision)


def _by_default_policy(
    incident: Incident, course: ExceptionAction, now: int, n: int, seen: Mapping[str, object]
) -> Decision:
    """The default decision, with the playbook that it needs."""
    playbook: Playbook | None = None
    own_job = bool(incident.job) and incident.engine == OWN_ENGINE
    if course is ExceptionAction.RETRY and own_job:
        playbook = Playbook("default", (PlaybookStep(RetryByPolicy()),))
    elif course is ExceptionAction.FAIL and (own_job or incident.instance):
        playbook = Playbook(
            "default", (PlaybookStep(Steer(ActionKind.FORCE_FAIL, ActionTarget.JOB if own_job else ActionTarget.TASK)),)
        )
    elif course in (ExceptionAction.RETRY, ExceptionAction.FAIL):
        course = ExceptionAction.HOLD
    detail = {"words": _WORDS[course]} | dict(seen)
    plain = None if playbook is None else playbook_as_plain(playbook)
    return Decision(incident.id, n, incident.tenant, now, course.value, DEFAULT_POLICY, playbook=plain, detail=detail)


_WORDS = {
    ExceptionAction.IGNORE: "no rule matches; ignored by the default policy",
    ExceptionAction.RETRY: "no rule matches; retried by the default retry policy",
    ExceptionAction.HOLD: "no rule answers; held for a person",
    ExceptionAction.FAIL: "no rule matches; failed by the default policy",
}


def _is_foreign_failure(incident: Incident) -> bool:
    """A task of another engine failed."""
    return incident.engine != OWN_ENGINE and incident.kind is ExceptionType.ABORT and bool(incident.instance)


def _sign(incident: Incident) -> FailureSignature:
    """By what exceptions are alike: failures by their cause, others by their kind."""
    if _is_foreign_failure(incident):
        return sign_of(incident.cause, owner=incident.owner)
    return FailureSignature(incident.kind.value)
