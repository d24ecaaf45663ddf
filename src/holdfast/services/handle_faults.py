"""Answers the faults of jobs: evidence, cause, decision, act; each is written down before the next.

A fault is a job that stands in the state `faulted` and is due. That is the queue: there is no other one to lose. The server that takes a bad end handles it at
once; what it leaves behind when it dies is found by any keeper. Both may work on the same fault: the incident and the decision on it are create-only, whoever comes
second acts by the recorded ones, and the act itself is one version-checked write on the job, which only the fault it was decided for allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from holdfast.domain.exlets.exlet import Exlet, actions_of, is_one_write
from holdfast.domain.exlets.exlet_plain import exlet_from_plain
from holdfast.domain.exlets.exlet_run import RunState, StepState
from holdfast.domain.faults.attempt_evidence import evidence_of, find_cause
from holdfast.domain.faults.audit import Note
from holdfast.domain.faults.brakes import BrakePolicy, Chain, Request, core_seconds
from holdfast.domain.faults.brakes import Refused as Braked
from holdfast.domain.faults.classify import Classifier
from holdfast.domain.faults.exception_type import ExceptionType
from holdfast.domain.faults.house_policy import NEVER, Course, HouseAnswer, carried_out
from holdfast.domain.faults.incident import (
    CLOSED,
    Decision,
    Incident,
    IncidentState,
    Standing,
    standing_of,
)
from holdfast.domain.faults.storm import Sign
from holdfast.domain.jobs.job_document import JobDocument, State
from holdfast.domain.jobs.lifecycle import Refused
from holdfast.ports.clock import Clock
from holdfast.ports.errors import PortError, Transient
from holdfast.ports.exlet_engine import ExletEngine
from holdfast.ports.incident_store import IncidentQuery, IncidentStore
from holdfast.ports.job_store import JobQuery, JobStore, Stored
from holdfast.services.decide_faults import EXLET, DecideFaults
from holdfast.services.fault_incident import fault_incident, is_about
from holdfast.services.keep_audit import KeepAudit
from holdfast.services.lease_brakes import LeaseBrakes
from holdfast.services.run_exlet import RunExlet
from holdfast.services.write_checked import Settled, Wish, Writer

BULK = 200
CHAIN = 100
"""Incidents of one job that are looked at for what rules have done to it."""
LEFT_BEHIND = 5_000
"""Milliseconds after which a fault is surely not being handled by the server that took it."""
_STATES = {
    Course.RETRY: IncidentState.COMPLETE,
    Course.HOLD: IncidentState.HELD,
    Course.FAIL: IncidentState.FAILED,
}


class _Case(NamedTuple):
    """A fault on its way."""

    document: JobDocument
    incident: Incident
    decision: Decision


@dataclass(slots=True)
class HandleFaults:
    """The service; any number of servers and keepers run it."""

    store: JobStore
    incidents: IncidentStore
    writer: Writer
    clock: Clock
    classifier: Callable[[], Awaitable[Classifier]]
    deciding: DecideFaults
    exlets: RunExlet | None = None
    engine: ExletEngine | None = None
    """Where exlets of several steps live; None: this domain runs no cases."""
    brakes: LeaseBrakes | None = None
    audit: KeepAudit | None = None
    every: float = 2.0
    troubled: Callable[[str], None] = lambda _text: None
    handled: int = 0
    _rules_seen: int = 0

    async def run(self) -> None:
        """Look for faults that were left behind."""
        while True:
            try:
                await self.look()
            except PortError as error:
                self.troubled(str(error))
            await asyncio.sleep(self.every)

    async def look(self) -> None:
        await self.deciding.get_ready()
        if self.deciding.rules_seen != self._rules_seen:
            seen = self.deciding.rules_seen
            await self.reconsider()
            self._rules_seen = seen
        now = self.clock.now()
        bounds = {"not_before": now, "changed": now - LEFT_BEHIND}
        query = JobQuery(states=frozenset({State.FAULTED}), at_most=bounds, held=False)
        while True:
            page = await self.store.search(query, sort="changed", limit=BULK)
            if not page.jobs:
                return
            before = self.handled
            await self.handle([(one, await self._printed(one.document)) for one in page.jobs])
            if self.handled == before or page.cursor is None:
                return

    async def reconsider(self) -> None:
        """What waits for a person may be answered by rules that were added since: by a new decision, which stands beside the first."""
        cursor: str | None = None
        query = IncidentQuery(kind=ExceptionType.ABORT.value, states=frozenset({IncidentState.HELD}))
        while True:
            page = await self.incidents.find(query, sort="at", limit=BULK, cursor=cursor)
            standings = {one.standing.id: one.standing for one in page.found if one.standing.job}
            known = await self.incidents.get_incidents(list(standings))
            jobs = await self.store.get([one.job for one in standings.values()])
            for name, incident in known.items():
                stored = jobs.get(incident.job)
                if stored is not None and is_about(incident, stored.document):
                    await self._decide_again(stored.document, incident, standings[name].n + 1)
            cursor = page.cursor
            if cursor is None:
                return

    async def _decide_again(self, document: JobDocument, incident: Incident, n: int) -> None:
        evidence = evidence_of(document, await self._printed(document))
        finding = find_cause(document, evidence, await self.classifier())
        decision = await self.deciding.decide(document, evidence, finding, incident, self.clock.now())
        if decision.verdict == EXLET:
            (agreed,) = await self._agree([_Case(document, incident, replace(decision, n=n))])
            await self._act(agreed)
            self.handled += 1

    async def _printed(self, document: JobDocument) -> str:
        """What the last attempt printed, as the evidence beside it has it."""
        last = document.last
        if last is None:
            return ""
        for one in await self.store.find_records(kind="evidence", job=document.id, newest_first=True, limit=20):
            ending = one.body.get("ending")
            if isinstance(ending, Mapping) and ending.get("claim") == last.claim:
                return str(one.body.get("log_tail", ""))
        return ""

    async def handle(self, faults: Sequence[tuple[Stored, str]]) -> None:
        """Decide on each faulted job, with what its attempt printed, and act. `Transient` if the store does not answer: the faults stay due."""
        for start in range(0, len(faults), BULK):
            await self._handle(faults[start : start + BULK])

    async def _handle(self, faults: Sequence[tuple[Stored, str]]) -> None:
        classifier = await self.classifier()
        await self.deciding.get_ready()
        now = self.clock.now()
        found: list[_Case] = []
        for stored, log_tail in faults:
            document = stored.document
            if document.state is not State.FAULTED:
                continue
            try:
                evidence = evidence_of(document, log_tail)
                finding = find_cause(document, evidence, classifier)
                incident = fault_incident(document, evidence, finding, now)
                decision = await self.deciding.decide(document, evidence, finding, incident, now)
            except PortError:
                raise
            except Exception as error:  # one fault that we cannot read must not keep the others waiting
                self.troubled(f"the fault of job {document.id} stays due: {type(error).__name__}: {error}")
                continue
            found.append(_Case(document, incident, decision))
            await asyncio.sleep(0)  # a log may take a millisecond to read, and others wait for this process
        if not found:
            return
        new = await self.incidents.add_incidents(
            [(one.incident, standing_of(one.incident, due=now + 60_000)) for one in found]
        )
        await self._count([one for one, first in zip(found, new, strict=True) if first])
        agreed = await self._agree(found)
        if not all(new):
            agreed = await self._newest(agreed)
        house = [one for one in agreed if one.decision.verdict != EXLET]
        answers = await self.writer.write([_wish(one, self.clock.now()) for one in house])
        done = [one for one, answer in zip(house, answers, strict=True) if isinstance(answer, Settled | Refused)]
        await self._move(done)
        self.handled += len(done)
        for one in agreed:
            if one.decision.verdict == EXLET:
                await self._act(one)
                self.handled += 1

    async def _count(self, cases: Sequence[_Case]) -> None:
        """Faults that rules want to act on may be a storm; each is counted once, before anyone asks to act."""
        if self.brakes is None:
            return
        signs: dict[str, list[Sign]] = {}
        for one in cases:
            if one.decision.verdict == EXLET:
                signs.setdefault(one.incident.tenant, []).append(_sign(one))
        for tenant, some in signs.items():
            await self.brakes.storms.notice(tenant, some)

    async def _act(self, one: _Case) -> None:
        """Carry out what a rule concluded, if the brakes let it; each step takes place once, whoever repeats this."""
        assert one.decision.exlet is not None  # noqa: S101 - its verdict says so
        exlet = exlet_from_plain(one.decision.exlet)
        incident, n = one.incident.id, one.decision.n
        if self.brakes is not None:
            (said,) = await self.brakes.permit([_request(one, exlet, await self._chain(one, self.brakes.policy))])
            if isinstance(said, Braked):
                await self._put_off(one, said)
                return
        if self.audit is not None:
            # First the entry, then the act.
            acts = {"incident": incident, "n": n, "owner": one.incident.owner, "acts": list(actions_of(exlet.steps))}
            why = str(one.decision.detail.get("words", ""))
            await self.audit.write(
                one.incident.tenant, [Note(one.decision.by, "rule.act", one.incident.job, why, acts)]
            )
        if self.exlets is None:
            await self._put_off(one, None)
        elif is_one_write(exlet, of_case=bool(one.incident.case)):
            end = await self.exlets.do_step(incident, n, 0)
            state = RunState.COMPLETE if end.state is StepState.DONE else RunState.FAILED
            await self.exlets.finish(incident, n, state, reason=end.detail)
            if state is RunState.FAILED:
                await self._park(one, NEVER)
        elif self.engine is None:
            await self._put_off(one, None)
        else:
            # Noted first: an exlet that is quickly over says itself where the incident stands then.
            await self._note(one, IncidentState.ACTING, ", ".join(actions_of(exlet.steps)))
            await self.engine.start_exlet(incident, n, tenant=one.incident.tenant, owner=one.incident.owner)
            await self._park(one, NEVER)

    async def _put_off(self, one: _Case, said: Braked | None) -> None:
        """It is not done now: later by itself, or when a person has looked."""
        words = "this domain cannot carry it out" if said is None else said.words
        again = None if said is None else said.again
        await self._park(one, NEVER if again is None else again)
        state = IncidentState.HELD if again is None else IncidentState.WAITING
        await self._note(one, state, words, due=again, group="" if said is None else said.group)

    async def _chain(self, one: _Case, policy: BrakePolicy) -> Chain:
        """The acts of rules that led to this fault. They are counted only where there can be too many of them."""
        document = one.document
        if document.attempt <= min(policy.max_by_rule, policy.max_depth):
            return Chain()
        query = IncidentQuery(tenant=document.tenant, job=document.id)
        page = await self.incidents.find(query, sort="-at", limit=CHAIN)
        before = [found.standing.id for found in page.found if found.standing.id != one.incident.id]
        made = [decision for name in before for decision in await self.incidents.decisions(name)]
        acted = [decision.by for decision in made if decision.verdict == EXLET and not decision.shadow]
        return Chain(by_rule=acted.count(one.decision.by), on_job=len(acted))

    async def _park(self, one: _Case, until: int) -> None:
        """The fault is not due before then."""
        now = self.clock.now()

        def decide(document: JobDocument) -> JobDocument | Refused:
            if not _stands(one, document):
                return Refused("the job has moved on")
            return document if document.not_before == until else document.having(not_before=until, changed=now)

        await self.writer.write([Wish(one.document.id, decide, lambda document: not _stands(one, document))])

    async def _note(
        self, one: _Case, state: IncidentState, words: str, *, due: int | None = None, group: str = ""
    ) -> None:
        known = (await self.incidents.get_standings([one.incident.id])).get(one.incident.id)
        if known is not None and known.standing.state not in CLOSED and not _over(known.standing, one, state):
            now, group = self.clock.now(), group or known.standing.group
            moved = known.standing.moved(state, now=now, due=due, n=one.decision.n, note=words, group=group)
            await self.incidents.put_standings([(moved, known.version)])

    async def _agree(self, cases: Sequence[_Case]) -> list[_Case]:
        """The decisions as they are recorded: ours, or those of whoever was first."""
        added = await self.incidents.add_decisions([one.decision for one in cases])
        agreed: list[_Case] = []
        for one, new in zip(cases, added, strict=True):
            decision = one.decision if new else await self.incidents.get_decision(one.incident.id, one.decision.n)
            if decision is None:
                raise Transient("a decision could not be read back")
            agreed.append(one._replace(decision=decision))
        return agreed

    async def _newest(self, cases: Sequence[_Case]) -> list[_Case]:
        """With the decision that stands now: one that was put off may have been made after the first."""
        known = await self.incidents.get_standings([one.incident.id for one in cases])
        newest: list[_Case] = []
        for one in cases:
            stored = known.get(one.incident.id)
            later = None
            if stored is not None and stored.standing.n > one.decision.n:
                later = await self.incidents.get_decision(one.incident.id, stored.standing.n)
            newest.append(one if later is None else one._replace(decision=later))
        return newest

    async def _move(self, cases: Sequence[_Case]) -> None:
        """Say where the incidents stand. Only for people: what was lost of it costs nothing but a line in a list."""
        now = self.clock.now()
        stored = await self.incidents.get_standings([one.incident.id for one in cases])
        changes = []
        for one in cases:
            known = stored.get(one.incident.id)
            if known is not None and known.standing.state is IncidentState.OPEN:
                answer = _answer(one.decision)
                moved = known.standing.moved(_STATES[answer.course], now=now, n=one.decision.n, note=answer.words)
                changes.append((moved, known.version))
        if changes:
            await self.incidents.put_standings(changes)


def _answer(decision: Decision) -> HouseAnswer:
    """The house's answer as it was recorded."""
    detail: Mapping[str, Any] = decision.detail
    return HouseAnswer(Course(decision.verdict), detail["words"], detail["wait"], charged=detail["charged"])


def _over(standing: Standing, one: _Case, state: IncidentState) -> bool:
    """Whether an exlet that is to be said to act has come to its end already, and was kept for a person."""
    held = standing.state is IncidentState.HELD and standing.n >= one.decision.n
    return state is IncidentState.ACTING and held


def _stands(one: _Case, document: JobDocument) -> bool:
    """It is this very fault, and nobody has answered it."""
    before = one.document
    return document.state is State.FAULTED and document.attempt == before.attempt and document.last == before.last


def _wish(one: _Case, now: int) -> Wish:
    def decide(document: JobDocument) -> JobDocument | Refused:
        if not _stands(one, document):
            return Refused("the job has moved on")
        return carried_out(document, _answer(one.decision), now=now, by=one.decision.by)

    return Wish(one.document.id, decide, lambda document: not _stands(one, document))


def _sign(one: _Case) -> Sign:
    last = one.document.last
    return Sign(one.incident.cause, host=last.host if last is not None else "")


def _request(one: _Case, exlet: Exlet, chain: Chain) -> Request:
    document, last = one.document, one.document.last
    step = exlet.steps[0]
    return Request(
        tenant=document.tenant,
        owner=document.owner,
        job=document.id,
        attempt=document.attempt,
        sign=_sign(one),
        action=step.action.value,
        target=str(getattr(step.do, "target", "")),
        rule=one.decision.by,
        core_seconds=core_seconds(
            document.resources.cpus,
            expected=document.expected_runtime,
            past=last.wall if last is not None else None,
            limit=document.resources.wall,
        ),
        chain=chain,
        also=tuple((later.action.value, str(getattr(later.do, "target", ""))) for later in exlet.steps[1:]),
        decision=one.decision.id,
    )
