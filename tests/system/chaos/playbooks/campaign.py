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

from tests.system.chaos.playbooks.actions import PARENT, WORKLET, Tried
from tests.system.chaos.runs.fault_points import Order, give, passes, struck
from tests.system.chaos.runs.pilot import persist
from tests.system.chaos.runs.site import TENANT, RunsSite, answering

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
    step_id,
    step_record_id,
)
from forestay.domain.flows.execution.run_names import job_of
from forestay.domain.jobs.claim import Applied, claim, end
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, JobDocument
from forestay.domain.playbooks.action import ActionTarget, CompensateAction, target_of
from forestay.domain.playbooks.playbook import playbook_as_plain
from forestay.domain.playbooks.playbook_run import run_name, worklet_run
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
    """By action: how often it was in the middle of one."""
    times: int = 0
    points: set[str] = field(default_factory=set)
    missed: int = 0
    """Passes that did not come in that run."""
    wrong: list[str] = field(default_factory=list)
    slowest: float = 0.0


@dataclass(slots=True)
class Campaign:
    """On one site."""

    site: RunsSite
    stores: Stores
    engine: TemporalFlowEngine
    say: Callable[[str], None]
    report: Report = field(default_factory=Report)
    clock: SystemClock = field(default_factory=SystemClock)
    _worklet: str = ""
    _seen: Counter[str] = field(default_factory=Counter)
    """The points that were passed while the last playbook was carried out."""

    async def undisturbed(self, tried: Tried) -> tuple[Counter[str], Signature]:
        """One trial in peace: the points that are passed, how often, and the end."""
        trial = await self._trial(tried, Order(f"none-{uuid4().hex[:8]}", "none"))
        return Counter({point: many for point, many in self._seen.items() if about(point, tried)}), trial

    async def kill(self, tried: Tried, known: Signature, point: str, nth: int) -> None:
        order = Order(uuid4().hex, point, nth)
        began = time.monotonic()
        crashes = len(self.site.crashes)
        try:
            trial = await self._trial(tried, order)
        except TimeoutError as error:
            self.report.wrong.append(f"{tried.name}, {point} {nth}: {error}")
            return
        if not struck(self.site.points, order):
            self.report.missed += 1
        else:
            self.report.kills[tried.name] += 1
            self.report.times += 1
            self.report.points.add(point)
        wrong = differences(trial, known)
        wrong += self.site.crashes[crashes:]
        self.report.wrong += [f"{tried.name}, killed at pass {nth} of {point}: {name}" for name in wrong]
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
        """A run that waits, an incident of it, and the decision that the playbook is to be carried out."""
        run, flow = await self._run()
        if tried.faulted:
            await self._fault(run)
        return await self._decide(tried, run, flow)

    async def carry_out(self, incident: Incident) -> None:
        """From its start until the incident has its end, and the workflow too."""
        await self._persist(lambda: self.engine.start_playbook(incident.id, 1, tenant=TENANT, owner="ada"))

        async def over() -> bool:
            status = (await self.stores.incidents.get_statuses([incident.id]))[incident.id].status
            if status.state not in ENDS:
                return False
            handle = (await self.engine.client()).get_workflow_handle(run_name(incident.id, 1))
            return (await handle.describe()).close_time is not None

        await self._until(over, "the end of the playbook")

    async def _run(self) -> tuple[str, str]:
        """A run of a flow of its own, whose first task waits for a pilot that never comes."""
        async with self.site.person() as person:
            if not self._worklet:
                self._worklet = (await persist(person, "POST", "/v1/flows", json={"text": WORKLET}))["version"]
            text = PARENT.replace("NUMBER", uuid4().hex[:8])
            flow: str = (await persist(person, "POST", "/v1/flows", json={"text": text}))["version"]
            run: str = (await persist(person, "POST", "/v1/runs", json={"flow": flow}))["id"]
        await self._until(lambda: self._job(run), "the job")
        return run, flow

    async def _job(self, run: str, round_: int = 1) -> Stored | None:
        name = job_of(run, f"show@{round_}", 0)
        return (await self.stores.jobs.get([name])).get(name)

    async def _fault(self, run: str) -> None:
        """The job is claimed and fails, as if a pilot had been there."""
        stored = await self._job(run)
        assert stored is not None
        now = self.clock.now()
        taken = claim(stored.document, claim_id=uuid4().hex, pilot="p1", host=HOST, now=now)
        assert isinstance(taken, JobDocument)
        assert taken.claim is not None
        ended = end(
            taken,
            AttemptResult(taken.token, taken.claim.id, AttemptOutcome.FAILURE, exit_code=1, host=HOST),
            now=now,
            by="p1",
        )
        assert isinstance(ended, Applied)
        for document in (taken, ended.document):
            current = await self._job(run)
            assert current is not None
            (result,) = await self.stores.jobs.write([DocumentChange(document, current.version)])
            assert isinstance(result, Written)

    async def _decide(self, tried: Tried, run: str, flow: str) -> Incident:
        job = job_of(run, "show@1", 0)
        kind = ExceptionType.ABORT
        now = self.clock.now()
        name = incident_id(kind, run=run, instance="show", job=job, attempt=1 if tried.faulted else 0)
        incident = Incident(
            name, TENANT, "ada", kind, now, run=run, instance="show", job=job, attempt=1 if tried.faulted else 0,
            cause="memory", flow=flow,
        )  # fmt: skip
        # Not due: it is carried out from here, and no reconciler is to do it in our place.
        await self.stores.incidents.add_incidents([(incident, replace(status_of(incident), due=None))])
        playbook = playbook_as_plain(tried.playbook(self._worklet))
        await self.stores.incidents.add_decisions([Decision(name, 1, TENANT, now, "matched", "chaos", playbook)])
        return incident

    async def signature(self, tried: Tried, incident: Incident) -> Signature:
        """All that the playbook has done, without what differs from run to run."""
        await self._settled(incident)
        state = await self.engine.state(incident.run)
        status = (await self.stores.incidents.get_statuses([incident.id]))[incident.id].status
        ids = [step_id(incident.id, 1, place) for place in range(len(tried.steps))]
        marks = [step_record_id(incident.id, 1, place, mark) for place in range(len(ids)) for mark in StepMark]
        steps = await self.stores.incidents.get_steps(marks)
        jobs = {round_: await self._job(incident.run, round_) for round_ in (1, 2, 3)}
        suspension = await FlowSuspensions(self.stores.documents).suspension(TENANT, incident.flow)
        return {
            "incident": (status.state.value, status.note),
            "steps": {name.removeprefix(incident.id): step.detail.get("state") for name, step in steps.items()},
            "run": (state["phase"], state["outcome"], _nameless(state["holders"], incident), state["params"]),
            "tasks": {
                task["id"]: (task.get("state"), task.get("round"), _nameless(task.get("holders", ()), incident))
                for task in state["instances"]
            },
            "verbs": sorted(verb.replace(incident.id, "") for verb in state["verbs"]),
            "jobs": {round_: _told(job, incident.id) for round_, job in jobs.items() if job is not None},
            "suspension": (
                _nameless(suspension.holders, incident),
                [verb.id.removeprefix(incident.id) for verb in (*suspension.orders,)],
                len(suspension.passed),
            ),
            "worklets": [await self._worklets(incident, place, do) for place, do in enumerate(tried.steps)],
            "alerts": [await self.stores.jobs.get_record(f"alert:{name}") is not None for name in ids],
        }

    async def _settled(self, incident: Incident) -> None:
        """What a verb brings about takes a moment: until two looks find the same, and no suspension has orders left."""
        last: Any = None

        async def still() -> bool:
            nonlocal last
            state = await self.engine.state(incident.run)
            job = await self._job(incident.run)
            suspension = await FlowSuspensions(self.stores.documents).suspension(TENANT, incident.flow)
            now = (state, job, suspension)
            same, last = now == last and not suspension.orders, now
            await asyncio.sleep(0.5)
            return same

        await self._until(still, "the run to come to rest")

    async def _worklets(self, incident: Incident, place: int, do: object) -> list[str]:
        if not isinstance(do, CompensateAction):
            return []
        names = [worklet_run(incident.id, 1, place, number) for number in range(len(do.worklets))]
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


def differences(signature: Signature, known: Signature) -> list[str]:
    """What is not as in the undisturbed run."""
    return [
        f"{name}: {signature.get(name)} instead of {value}"
        for name, value in known.items()
        if signature.get(name) != value
    ]


def _nameless(names: Iterable[str], incident: Incident) -> list[str]:
    """Holders without the incident's own id."""
    return [name.replace(incident.id, "") for name in names]


def _told(stored: Stored, incident: str) -> tuple[Any, ...]:
    """A job without its times."""
    job = stored.document
    by_playbook = [
        (line.event, line.by.replace(incident, "")) for line in job.history if line.by.startswith("playbook:")
    ]
    ledger = job.extra.get("retry_ledger")
    return (job.state.value, job.attempt, len(job.holders), job.resources, by_playbook, ledger, sorted(job.extra))


def about(point: str, tried: Tried) -> bool:
    """Points of those who carry the playbook out: orchestrators, and where all runs are meant the reconciler that tells them."""
    all_runs = any(target_of(step) is ActionTarget.ALL_RUNS for step in tried.steps)
    return point.startswith("orchestrator.") or (
        all_runs and point.startswith(("reconciler.documents", "reconciler.engine"))
    )


def drawn(counts: Counter[str], chance: random.Random, times: int) -> list[tuple[str, int]]:
    """So many kills: each pass of each point is as likely as any other."""
    every = [(point, nth) for point, often in sorted(counts.items()) for nth in range(1, often + 1)]
    whole, rest = divmod(times, len(every))
    return [*every * whole, *chance.sample(every, rest)]


def opened(site: RunsSite) -> tuple[Stores, TemporalFlowEngine]:
    """The site's own stores and engine, for the campaign to look at and to start playbooks with."""
    return open_stores(site.store), TemporalFlowEngine(site.temporal, namespace="default", task_queue="forestay")
