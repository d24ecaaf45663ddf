"""Creates the jobs of runs and follows them: the work of the activities of runs and shards.

A job's id is derived from run, work and index, and the job is created only if it is absent, so that every call may be repeated.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple

from forestay.domain.flows.commands import StartRun, WorkOrder
from forestay.domain.flows.definition.flow_plan import FlowPlan
from forestay.domain.flows.execution.grown import grown_plan
from forestay.domain.flows.execution.library import from_library
from forestay.domain.flows.execution.messages import Plain, as_plain
from forestay.domain.flows.execution.run_names import job_of, run_of, shard_of
from forestay.domain.flows.execution.task_jobs import Member, listed_places, parameters, run_params, task_jobs
from forestay.domain.flows.scatter.elements import elements as bits_of
from forestay.domain.flows.scatter.elements import from_text
from forestay.domain.flows.scatter.shard_run import BatchEnded
from forestay.domain.jobs.inputs import JobInput, filled, wrong_input
from forestay.domain.jobs.job_document import FlowRef, JobDocument
from forestay.domain.jobs.outbound import OutboundPolicy
from forestay.domain.jobs.submission import JobElement, Submission
from forestay.ports.documents import DocumentStore
from forestay.ports.errors import Permanent
from forestay.ports.jobs.job_store import JobStore
from forestay.services.data.listings import Listings
from forestay.services.data.output_resolver import OutputResolver
from forestay.services.flows.compensation_library import CompensationLibrary
from forestay.services.flows.completion_facts import CompletionFacts, ended_well, why
from forestay.services.flows.flow_checks import FlowChecks, InstanceRound
from forestay.services.flows.flow_store import FlowStore
from forestay.services.flows.flow_suspensions import KNOWN_AFTER, FlowSuspensions
from forestay.services.flows.result_reuse import ResultReuse
from forestay.services.jobs.job_control import JobControl
from forestay.services.jobs.job_submitter import JobSubmitter, specification_named

BULK = 1000
TURNS = 4
"""Large batches that are created at the same time: a flow of a million jobs must not be in memory at once, nor half created in every shard."""


@dataclass(frozen=True, slots=True)
class JobBatch:
    """Some jobs of a round."""

    tenant: str
    owner: str
    run: str
    flow: str
    order: WorkOrder
    shard: int
    base: int
    """The index of the first job of the same shard."""
    first: int
    count: int
    skip: int = 0
    holders: tuple[str, ...] = ()
    of: int = 0
    """The number of jobs that the shard waits for; 0: none."""
    ended: int = 0
    """The jobs that the shard knows to have ended, as bits from its first job."""
    cancelled: bool = False
    above: tuple[str, ...] = ()
    """The versions of the flows whose runs started this one."""
    waiting: int = 0
    """The jobs whose inputs are not available yet, as bits from the shard's first job."""
    works: tuple[str, ...] = ()
    """The rounds that made those inputs, where the order does not name them."""

    def jobs(self) -> list[str]:
        return [job_of(self.run, self.order.work, index) for index in range(self.first, self.first + self.count)]


class Submitted(NamedTuple):
    """The result of submitting a batch."""

    incident: str = ""
    """The incident that keeps the round from beginning; nothing was created."""
    bad: int = 0
    """The jobs that can never be created because their input is not exactly one file, as bits from the batch's first job."""
    reason: str = ""


@dataclass(slots=True)
class FlowJobs:
    """The service."""

    store: JobStore
    documents: DocumentStore
    flows: FlowStore
    submitting: JobSubmitter
    steering: JobControl
    completions: CompletionFacts
    listings: Listings
    outputs: OutputResolver
    staging: OutboundPolicy
    suspensions: FlowSuspensions
    library: CompensationLibrary
    checks: FlowChecks | None = None
    """Checks whether rounds may begin and end; None: they may."""
    reuse: ResultReuse | None = None
    """Finds results of earlier runs; None: nothing is reused."""
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(TURNS))

    async def submit(self, batch: JobBatch) -> Submitted:
        """Create missing jobs; `Permanent` or `NotFound` if these jobs can never be created."""
        if batch.first == 0 and batch.shard < 0 and (held := await self.begins(batch)):
            return Submitted(incident=held)
        wanted = [at for at in range(batch.count) if not batch.skip >> at & 1]
        if len(wanted) <= BULK // 2:
            return await self._create(batch, wanted, generation=0)
        async with self._turns:
            return await self._create(batch, wanted, generation=0)

    async def begins(self, batch: JobBatch) -> str:
        """The incident that keeps a round from beginning; empty: it may begin."""
        order = batch.order
        if self.checks is None or order.checked or order.undo:
            return ""
        return await self.checks.instance_begins(_round(batch), dict(order.scope))

    async def _create(self, batch: JobBatch, wanted: Sequence[int], *, generation: int) -> Submitted:
        """Create the jobs at these positions of a batch, some at a time."""
        plan = await self._plan(batch.tenant, batch.flow, batch.order)
        if batch.order.version:
            plan, order = await self._from_library(batch, plan)
            batch = replace(batch, order=order)
        order = batch.order
        indexes = [batch.first + at for at in wanted]
        outputs = await self.outputs.referred(batch.tenant, batch.run, list(order.scope.values()), indexes, batch.works)
        lacking = {index - batch.first for index in outputs.lacking(indexes)}
        wanted = [at for at in wanted if at not in lacking]
        member = await self._members(batch.tenant, plan, order, batch.first, batch.count)
        try:
            common = task_jobs(plan, order, tenant=batch.tenant, files=outputs.places, sources=outputs.sources)
            indexes = [batch.first + at for at in wanted]
            elements = parameters(plan, order, indexes, member=member, files=outputs.places)
            given_parameters = dict(zip(wanted, elements, strict=True))
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise Permanent(f"the jobs of {order.work} cannot be created: {error}") from error
        self._check_inputs(batch, common.specification.inputs, [(at, given_parameters[at]) for at in wanted])
        content = asdict(common.specification)
        for name in ("checkpoint", "secrets"):
            if not content[name]:
                del content[name]  # its id is what it was before there were any
        named = specification_named(batch.tenant, content)
        specification = replace(common.specification, id=named)
        for start in range(0, len(wanted), BULK):
            some = wanted[start : start + BULK]
            closed = await self.suspensions.closed(batch.tenant, (batch.flow, *batch.above))
            not_before = self.submitting.clock.now() + KNOWN_AFTER if closed else 0
            submission = Submission(
                specification=specification,
                owner=batch.owner,
                labels=common.labels,
                priority=common.priority,
                expected_runtime=common.expected_runtime,
                not_before=not_before,
                holders=batch.holders,
                generation=generation,
            )
            job_elements = [
                JobElement(
                    job=job_of(batch.run, order.work, batch.first + at),
                    at=batch.first + at if order.sizes else None,
                    parameters=given_parameters[at],
                    flow_ref=self._flow_ref(batch, at, common.result),
                )
                for at in some
            ]
            if self.reuse is not None and plan.flow.reuse and not order.undo:
                place = f"{plan.flow.name}/{order.task}"
                again = not order.work.endswith("@1")
                job_elements = list(
                    await self.reuse.decide(place, specification, job_elements, owner=batch.owner, again=again)
                )
            await self.submitting.submit_elements(submission, job_elements, by=f"run:{batch.run}")
        reason = "what it is scattered over is not one file of the element with its number" if lacking else ""
        return Submitted(bad=bits_of(lacking), reason=reason)

    async def _plan(self, tenant: str, flow: str, order: WorkOrder) -> FlowPlan:
        """The flow of an order; an order of a Python flow contains its task."""
        if not order.spelt:
            return await self.flows.plan(tenant, flow)
        return grown_plan(order.task, flow, {order.task: json.loads(order.spelt)})

    async def _from_library(self, batch: JobBatch, plan: FlowPlan) -> tuple[FlowPlan, WorkOrder]:
        """The plan and the order with the library's compensation that the order names; `NotFound`, or `Permanent` if it does not fit the run."""
        order = batch.order
        stored = await self.library.get(batch.tenant, order.action, order.version)
        try:
            return from_library(plan, order, stored.registered.compensation)
        except ValueError as error:
            raise Permanent(f"the compensation {order.action} cannot be run: {error}") from error

    def _flow_ref(self, batch: JobBatch, at: int, result: str) -> FlowRef:
        place = batch.first + at - batch.base
        order = batch.order
        return FlowRef(
            batch.run, order.work, batch.flow, batch.shard, place, batch.of, result, batch.above, order.prompt
        )

    async def steer(self, batch: JobBatch, verb: str, holder: str) -> None:
        """Cancel, hold or continue the jobs of a batch that have not ended."""
        await self.steering.many(batch.jobs(), verb, holder=holder, by=f"run:{batch.run}", reason="by its run")

    async def check(self, batch: JobBatch) -> Plain:
        """Check the jobs of a shard: return completions that it does not know of, and create again jobs that the store has lost.

        Only a job that a realtime get does not find, and whose completion was not delivered, is created again, as the next
        generation: if the lost document comes back, its claims are fenced off.
        """
        names = batch.jobs()
        known = (batch.ended | batch.waiting) >> (batch.first - batch.base)
        open_ = [at for at in range(batch.count) if not known >> at & 1]
        well = bad = 0
        reason = ""
        facts: Plain = {}
        missing: list[int] = []
        for start in range(0, len(open_), BULK):
            some = open_[start : start + BULK]
            stored_jobs = await self.store.get([names[at] for at in some])
            for at in some:
                stored = stored_jobs.get(names[at])
                if stored is None:
                    missing.append(at)
                elif stored.document.final:
                    bit = 1 << (batch.first + at - batch.base)
                    if ended_well(stored.document):
                        well |= bit
                    else:
                        bad |= bit
                        reason = reason or why(stored.document)
                    if batch.of == 1:
                        facts = await self.completions.facts(stored.document)
        if missing:
            delivered = await self._delivered(batch)
            again: list[int] = []
            for at in missing:
                place = batch.first + at - batch.base
                if batch.cancelled or delivered >> place & 1:
                    bad |= 1 << place
                    reason = reason or f"the document of job {names[at]} was lost after its completion"
                else:
                    again.append(at)
            unmade = await self._create(batch, again, generation=1)
            bad |= unmade.bad << (batch.first - batch.base)
            reason = reason or unmade.reason
        stored_jobs = as_plain(BatchEnded(well, bad, 0, reason)) | facts
        done = 0 < batch.of <= (batch.ended | well | bad).bit_count()
        if self.checks is not None and batch.shard < 0 and done and (well or bad) and not batch.cancelled:
            held = await self.checks.job_ended(batch.tenant, batch.owner, self._flow_ref(batch, 0, ""), bad, facts)
            stored_jobs |= {"incident": held} if held else {}
        return stored_jobs

    async def _delivered(self, batch: JobBatch) -> int:
        name = document_of(batch.run, batch.order.work, batch.shard)
        stored = (await self.documents.get([name])).get(name)
        return from_text(str(stored.document.body["ended"])) if stored is not None else 0

    async def results(self, run: str, works: Sequence[str], count: int, file: str, most: int) -> list[object]:
        """The content of the result file of each job of a scatter, in order; ``None`` for a job that did not succeed. Later rounds take precedence.

        `Permanent` if they are larger than ``most`` bytes together.
        """
        winners: dict[int, JobDocument] = {}
        for work in works:
            missing = [at for at in range(count) if at not in winners]
            stored = await self.store.get([job_of(run, work, at) for at in missing])
            for at in missing:
                returned_stored = stored.get(job_of(run, work, at))
                if returned_stored is not None and returned_stored.document.winner is not None:
                    winners[at] = returned_stored.document
        results: list[object] = []
        size = 0
        for at in range(count):
            result = await self.completions.result(winners[at], file) if at in winners else None
            size += len(json.dumps(result))
            if size > most:
                raise Permanent(f"its results are larger than {most} bytes together; collect them in another job")
            results.append(result)
        return results

    async def prepare_run(self, tenant: str, owner: str, run: str, flow: str, command: StartRun) -> Plain:
        """The flow, as text, and the parameters of a sub-flow's run; `NotFound` or `Permanent` if it cannot be run.

        If the round may not begin, only the incident; ``held``: the incidents that keep the sub-flow's run from beginning.
        """
        batch = JobBatch(tenant, owner, run, flow, command.order, -1, 0, command.index, 1)
        if incident := await self.begins(batch):
            return {"incident": incident}
        text = await self.flows.text(tenant, command.flow)
        plan = await self.flows.plan(tenant, flow)
        outputs = await self.outputs.referred(tenant, run, list(command.order.scope.values()))
        member = await self._members(tenant, plan, command.order, command.index, 1)
        try:
            params = run_params(plan, command, member=member, files=outputs.places)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise Permanent(f"the parameters of the sub-flow cannot be computed: {error}") from error
        name = str(json.loads(text)["name"])
        held = ""
        if self.checks is not None:
            inner = run_of(run, command.order.work, command.index)
            given_params = {**(await self.flows.plan(tenant, command.flow)).flow.params, **params}
            held = await self.checks.run_begins(
                tenant=tenant, owner=owner, run=inner, flow=command.flow, name=name, params=given_params
            )
        return {"flow": text, "name": name, "params": dict(params), "held": [held] if held else []}

    async def _members(self, tenant: str, plan: FlowPlan, order: WorkOrder, first: int, count: int) -> Member:
        """The members of listings that some jobs use, read in advance."""
        members = {
            listing: await self.listings.members(tenant, listing, places)
            for listing, places in listed_places(plan, order, first, count).items()
        }
        return lambda listing, place: members[listing][place]

    def _check_inputs(
        self, batch: JobBatch, inputs: Sequence[JobInput], jobs: Sequence[tuple[int, Mapping[str, object]]]
    ) -> None:
        """The same check as for jobs that are submitted one by one. Repeated when a pilot claims the job."""
        if not inputs:
            return
        for at, job in jobs:
            index = batch.first + at if batch.order.sizes else None
            names: set[str] = set()
            for job_input in (filled(entry, job, index) for entry in inputs):
                why = wrong_input(job_input, self.staging) or (
                    "two inputs have this name" if job_input.name in names else None
                )
                names.add(job_input.name)
                if why:
                    raise Permanent(f"the jobs of {batch.order.work} cannot be created: input {job_input.name}: {why}")


def _round(batch: JobBatch) -> InstanceRound:
    order = batch.order
    return InstanceRound(batch.tenant, batch.owner, batch.run, batch.flow, order.work, order.instance, order.task)


def document_of(run: str, work: str, shard: int) -> str:
    """The name of the document that records the delivered completions."""
    return f"delivery:{shard_of(run, work, shard)}"
