"""Trial after trial: a playbook is run, whoever carries it out is killed at one pass of one point, and the end must be as if nobody had been."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from tests.system.chaos.cases.fault_points import Order, give, passes, struck
from tests.system.chaos.cases.pilot import persist
from tests.system.chaos.cases.site import TENANT, CasesSite, answering
from tests.system.chaos.exlets.primitives import PARENT, WORKLET, Tried

from forestay.adapters.system.clock import SystemClock
from forestay.adapters.temporal.flow_engine import TemporalFlowEngine
from forestay.apps.compose.stores import Stores, open_stores
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import (
    Decision,
    Incident,
    IncidentState,
    StepMark,
    incident_id,
    status_of,
    step_record_id,
)
from forestay.domain.exlets.exlet_plain import exlet_as_plain
from forestay.domain.exlets.exlet_run import run_name, step_id, worklet_case
from forestay.domain.exlets.primitive import ActionTarget, CompensateAction, target_of
from forestay.domain.flows.execution.case_names import job_of
from forestay.domain.jobs.claim import Applied, claim, end
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument
from forestay.ports.errors import NotFound, PortError
from forestay.ports.jobs.job_store import DocumentChange, Stored, Written
from forestay.services.flows.flow_suspensions import FlowSuspensions

PATIENCE = 300.0
HOST = "node1"
ENDS = frozenset({IncidentState.COMPLETE, IncidentState.HELD, IncidentState.FAILED})
Signature = dict[str, Any]


@dataclass(slots=True)
class Report:
    """What the trials came to."""

    kills: Counter[str] = field(default_factory=Counter)
    """By primitive: how often it was in the middle of one."""
    times: int = 0
    points: set[str] = field(default_factory=set)
    missed: int = 0
    """Passes that did not come in that run."""
    wrong: list[str] = field(default_factory=list)
    slowest: float = 0.0


@dataclass(slots=True)
class Campaign:
    """On one site."""

    site: CasesSite
    stores: Stores
    engine: TemporalFlowEngine
    say: Callable[[str], None]
    report: Report = field(default_factory=Report)
    clock: SystemClock = field(default_factory=SystemClock)
    _worklet: str = ""
    _seen: Counter[str] = field(default_factory=Counter)
    """The points that were passed while the last exlet was carried out."""

    async def undisturbed(self, tried: Tried) -> tuple[Counter[str], Signature]:
        """One trial in peace: the points that are passed, how often, and the end."""
        found = await self._trial(tried, Order(f"none-{uuid4().hex[:8]}", "none"))
        return Counter({point: many for point, many in self._seen.items() if about(point, tried)}), found

    async def kill(self, tried: Tried, known: Signature, point: str, nth: int) -> None:
        order = Order(uuid4().hex, point, nth)
        began = time.monotonic()
        crashes = len(self.site.crashes)
        try:
            found = await self._trial(tried, order)
        except TimeoutError as error:
            self.report.wrong.append(f"{tried.name}, {point} {nth}: {error}")
            return
        if not struck(self.site.points, order):
            self.report.missed += 1
        else:
            self.report.kills[tried.name] += 1
            self.report.times += 1
            self.report.points.add(point)
        wrong = differences(found, known)
        wrong += self.site.crashes[crashes:]
        self.report.wrong += [f"{tried.name}, killed at pass {nth} of {point}: {one}" for one in wrong]
        took = time.monotonic() - began
        self.report.slowest = max(self.report.slowest, took)
        self.say(f"{took:5.1f} s  {tried.name}: {point} {nth}{'' if not wrong else '  WRONG: ' + '; '.join(wrong)}")

    async def _trial(self, tried: Tried, order: Order) -> Signature:
        give(self.site.points, Order(f"rest-{order.name}", "none"))
        await answering(self.site)
        async with asyncio.timeout(PATIENCE):
            incident = await self.prepare(tried)
            before = passes(self.site.points)
            give(self.site.points, order)
            await self.carry_out(incident)
            self._seen = passes(self.site.points) - before
            give(self.site.points, Order(f"past-{order.name}", "none"))
            return await self.signature(tried, incident)

    async def prepare(self, tried: Tried) -> Incident:
        """A case that waits, an incident of it, and the decision that the exlet is to be carried out."""
        case, flow = await self._case()
        if tried.faulted:
            await self._fault(case)
        return await self._decide(tried, case, flow)

    async def carry_out(self, incident: Incident) -> None:
        """From its start until the incident has its end, and the workflow too."""
        await self._persist(lambda: self.engine.start_exlet(incident.id, 1, tenant=TENANT, owner="ada"))

        async def over() -> bool:
            found = (await self.stores.incidents.get_standings([incident.id]))[incident.id].standing
            if found.state not in ENDS:
                return False
            handle = (await self.engine.client()).get_workflow_handle(run_name(incident.id, 1))
            return (await handle.describe()).close_time is not None

        await self._until(over, "the end of the exlet")

    async def _case(self) -> tuple[str, str]:
        """A case of a flow of its own, whose first item waits for a pilot that never comes."""
        async with self.site.person() as person:
            if not self._worklet:
                self._worklet = (await persist(person, "POST", "/v1/flows", json={"text": WORKLET}))["version"]
            text = PARENT.replace("NUMBER", uuid4().hex[:8])
            flow: str = (await persist(person, "POST", "/v1/flows", json={"text": text}))["version"]
            case: str = (await persist(person, "POST", "/v1/cases", json={"flow": flow}))["id"]
        await self._until(lambda: self._job(case), "the job")
        return case, flow

    async def _job(self, case: str, round_: int = 1) -> Stored | None:
        name = job_of(case, f"show@{round_}", 0)
        return (await self.stores.jobs.get([name])).get(name)

    async def _fault(self, case: str) -> None:
        """The job is claimed and fails, as if a pilot had been there."""
        stored = await self._job(case)
        assert stored is not None
        now = self.clock.now()
        taken = claim(stored.document, claim_id=uuid4().hex, pilot="p1", host=HOST, now=now)
        assert isinstance(taken, JobDocument)
        assert taken.claim is not None
        ended = end(
            taken,
            AttemptResult(taken.token, taken.claim.id, AttemptOutcome.FAULT, exit_code=1, host=HOST),
            now=now,
            by="p1",
        )
        assert isinstance(ended, Applied)
        for document in (taken, ended.document):
            current = await self._job(case)
            assert current is not None
            (result,) = await self.stores.jobs.write([DocumentChange(document, current.version)])
            assert isinstance(result, Written)

    async def _decide(self, tried: Tried, case: str, flow: str) -> Incident:
        job = job_of(case, "show@1", 0)
        kind = ExceptionType.ABORT
        now = self.clock.now()
        name = incident_id(kind, case=case, item="show", job=job, attempt=1 if tried.faulted else 0)
        incident = Incident(
            name, TENANT, "ada", kind, now, case=case, item="show", job=job, attempt=1 if tried.faulted else 0,
            cause="memory", flow=flow,
        )  # fmt: skip
        # Not due: it is carried out from here, and no keeper is to do it in our place.
        await self.stores.incidents.add_incidents([(incident, replace(status_of(incident), due=None))])
        exlet = exlet_as_plain(tried.exlet(self._worklet))
        await self.stores.incidents.add_decisions([Decision(name, 1, TENANT, now, "matched", "chaos", exlet)])
        return incident

    async def signature(self, tried: Tried, incident: Incident) -> Signature:
        """All that the exlet has done, without what differs from run to run."""
        await self._settled(incident)
        state = await self.engine.state(incident.case)
        found = (await self.stores.incidents.get_standings([incident.id]))[incident.id].standing
        ids = [step_id(incident.id, 1, place) for place in range(len(tried.steps))]
        marks = [step_record_id(incident.id, 1, place, mark) for place in range(len(ids)) for mark in StepMark]
        steps = await self.stores.incidents.get_steps(marks)
        jobs = {round_: await self._job(incident.case, round_) for round_ in (1, 2, 3)}
        gate = await FlowSuspensions(self.stores.documents).gate(TENANT, incident.flow)
        return {
            "incident": (found.state.value, found.note),
            "steps": {name.removeprefix(incident.id): one.detail.get("state") for name, one in steps.items()},
            "case": (state["phase"], state["outcome"], _nameless(state["holders"], incident), state["params"]),
            "items": {
                one["id"]: (one.get("state"), one.get("round"), _nameless(one.get("holders", ()), incident))
                for one in state["items"]
            },
            "verbs": sorted(one.replace(incident.id, "") for one in state["verbs"]),
            "jobs": {round_: _told(one, incident.id) for round_, one in jobs.items() if one is not None},
            "gate": (
                _nameless(gate.holders, incident),
                [one.id.removeprefix(incident.id) for one in (*gate.orders,)],
                len(gate.passed),
            ),
            "worklets": [await self._worklets(incident, place, do) for place, do in enumerate(tried.steps)],
            "alerts": [await self.stores.jobs.get_record(f"alert:{name}") is not None for name in ids],
        }

    async def _settled(self, incident: Incident) -> None:
        """What a verb brings about takes a moment: until two looks find the same, and no gate has orders left."""
        last: Any = None

        async def still() -> bool:
            nonlocal last
            state = await self.engine.state(incident.case)
            job = await self._job(incident.case)
            gate = await FlowSuspensions(self.stores.documents).gate(TENANT, incident.flow)
            now = (state, job, gate)
            same, last = now == last and not gate.orders, now
            await asyncio.sleep(0.5)
            return same

        await self._until(still, "the case to come to rest")

    async def _worklets(self, incident: Incident, place: int, do: object) -> list[str]:
        if not isinstance(do, CompensateAction):
            return []
        names = [worklet_case(incident.id, 1, place, number) for number in range(len(do.worklets))]
        return [(await self.engine.describe(name)).state for name in names]

    async def _persist(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            with suppress(PortError):
                return await ask()
            await asyncio.sleep(0.1)

    async def _until(self, look: Callable[[], Awaitable[Any]], what: str) -> None:
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up:
            with suppress(PortError, NotFound):
                if await look():
                    return
            await asyncio.sleep(0.05)
        raise TimeoutError(what)


def differences(found: Signature, known: Signature) -> list[str]:
    """What is not as in the undisturbed run."""
    return [
        f"{name}: {found.get(name)} instead of {value}" for name, value in known.items() if found.get(name) != value
    ]


def _nameless(names: Iterable[str], incident: Incident) -> list[str]:
    """Holders without the incident's own id."""
    return [name.replace(incident.id, "") for name in names]


def _told(stored: Stored, incident: str) -> tuple[Any, ...]:
    """A job without its times."""
    job = stored.document
    by_exlet = [(line.event, line.by.replace(incident, "")) for line in job.history if line.by.startswith("exlet:")]
    ledger = job.extra.get("retry_ledger")
    return (job.state.value, job.attempt, len(job.holders), job.resources, by_exlet, ledger, sorted(job.extra))


def about(point: str, tried: Tried) -> bool:
    """Points of those who carry the exlet out: workers, and where all cases are meant the keeper that tells them."""
    all_cases = any(target_of(one) is ActionTarget.ALL_CASES for one in tried.steps)
    return point.startswith("worker.") or (all_cases and point.startswith(("keeper.documents", "keeper.engine")))


def drawn(found: Counter[str], chance: random.Random, times: int) -> list[tuple[str, int]]:
    """So many kills: each pass of each point is as likely as any other."""
    every = [(point, nth) for point, often in sorted(found.items()) for nth in range(1, often + 1)]
    whole, rest = divmod(times, len(every))
    return [*every * whole, *chance.sample(every, rest)]


def opened(site: CasesSite) -> tuple[Stores, TemporalFlowEngine]:
    """The site's own stores and engine, for the campaign to look at and to start exlets with."""
    return open_stores(site.store), TemporalFlowEngine(site.temporal, namespace="default", task_queue="forestay")
