"""Reports what a run would do without starting it: nothing is stored or submitted, and no engine is called.

Jobs are built by the same code as in a run, so that their inputs and reuse keys are the same; they are discarded afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import NamedTuple

from forestay.domain.flows.commands import WorkOrder
from forestay.domain.flows.definition.expression import Path, as_text, fill, inside, template_references
from forestay.domain.flows.definition.flow import Task
from forestay.domain.flows.definition.flow_pattern import (
    FilesOf,
    JobPattern,
    LinesOf,
    LoopPattern,
    WatchOf,
    kind_of,
)
from forestay.domain.flows.definition.flow_plan import FlowPlan, TaskPlan, scattered_over, source_texts
from forestay.domain.flows.dry_run import (
    MAX_CHECKED,
    MAX_NAMED,
    RUNNING,
    DryRun,
    InputCheck,
    PlannedTask,
    ReuseForecast,
    holds_before,
    in_order,
    known_inputs,
    unknown,
)
from forestay.domain.flows.execution.rounds import Impossible, scatter_sizes
from forestay.domain.flows.execution.run_names import job_of
from forestay.domain.flows.execution.task_jobs import TaskJobs, parameters, task_jobs
from forestay.domain.flows.scatter.fan_out import MAX_ELEMENTS
from forestay.domain.jobs.inputs import filled, local_path, produced
from forestay.domain.jobs.job_document import FlowRef, JobDocument
from forestay.domain.jobs.submission import JobElement
from forestay.ports.clock import Clock
from forestay.ports.data.file_lists import FileLists
from forestay.ports.errors import Permanent
from forestay.services.data.output_resolver import OutputReference, OutputResolver, ResolvedOutput, ResolvedOutputs
from forestay.services.flows.result_reuse import ResultReuse

RUN = "dry-run"
"""The placeholder for the run's id."""
MOST = 20_000
"""The most jobs that are built in one dry run."""
AT_ONCE = 50
"""Jobs whose earlier results are searched between two checks of the time."""
PATIENCE = 10.0
"""Seconds spent on searching earlier results, for which the content of input files has to be read."""


class _ScatterElements(NamedTuple):
    """The elements of a task's scatter."""

    sizes: tuple[int, ...] = ()
    members: Mapping[str, Sequence[str]] = MappingProxyType({})
    """The members of the dimensions that are listings."""
    open: str = ""
    """Why the elements are not known; empty: they are."""

    @property
    def jobs(self) -> int | None:
        return None if self.open else prod(self.sizes)


@dataclass(slots=True)
class _KnownRun:
    """The parts of the run that are known so far."""

    tenant: str
    owner: str
    params: Mapping[str, object]
    until: float
    """Until when files are checked."""
    left: int = MOST
    """Jobs that may still be built."""
    counts: dict[str, int] = field(default_factory=dict)
    """The number of jobs of each task."""
    reused: dict[str, Mapping[OutputReference, Mapping[int, Sequence[ResolvedOutput]]]] = field(default_factory=dict)
    """The outputs, element by element, of the jobs whose results would be reused."""
    done: set[str] = field(default_factory=set)
    """The tasks whose results would all be reused."""
    scattered: set[str] = field(default_factory=set)

    def value(self, path: Path) -> object:
        if path[0] == "params":
            return inside(self.params, path[1:])
        if path[0] != "tasks" or len(path) < 3:
            return None
        task, what = path[1], path[2]
        if task in self.done and what == "outputs" and len(path) == 4:
            reference = {"work": f"{task}@1", "output": path[3]}
            several = {"$outputs": reference | {"count": self.counts[task], "well": self.counts[task]}}
            return several if task in self.scattered else {"$output": reference}
        if what == "count":
            return self.counts.get(task)
        return ("completed" if what == "state" else self.counts[task] if what == "well" else None) if task in self.done else None  # fmt: skip

    def resolved(self, producer: str) -> ResolvedOutputs:
        """All known outputs; those of a producer also element by element."""
        outputs: dict[OutputReference, Sequence[ResolvedOutput]] = {}
        elements: dict[OutputReference, Mapping[int, ResolvedOutput]] = {}
        for task, made in self.reused.items():
            for reference, files in made.items():
                if task in self.done:
                    outputs[reference] = [output for element in files.values() for output in element]
                if task == producer:
                    elements[reference] = {at: element[0] for at, element in files.items() if len(element) == 1}
        return ResolvedOutputs(RUN, outputs, elements)


@dataclass(slots=True)
class DryRunner:
    """The service; reads only."""

    files: FileLists
    outputs: OutputResolver
    reuse: ResultReuse
    clock: Clock
    patience: float = PATIENCE

    async def dry_run(
        self, plan: FlowPlan, params: Mapping[str, object], *, tenant: str, owner: str, problems: Sequence[str] = ()
    ) -> DryRun:
        """Report what a run of this flow with these parameters would do."""
        flow = plan.flow
        given = {**flow.params, **params}
        run = _KnownRun(tenant, owner, given, self.clock.monotonic() + self.patience)
        tasks = [await self._task(plan, task_plan, run) for task_plan in in_order(plan)]
        return DryRun(flow.name, plan.version, given, tuple(problems), flow.reuse, tuple(tasks), grown=plan.grown)

    async def _task(self, plan: FlowPlan, task_plan: TaskPlan, run: _KnownRun) -> PlannedTask:
        task = task_plan.task
        pattern = task.pattern
        runs = holds_before(task.when, run.value)
        await asyncio.sleep(0)
        kind = kind_of(pattern)
        elements = await self._elements(task_plan, run) if kind in RUNNING else _ScatterElements()
        planned = PlannedTask(
            name=task.name,
            kind=kind,
            inside=task_plan.inside,
            branch=task_plan.branch,
            after=task_plan.before,
            condition=task.when,
            runs=runs,
            jobs=elements.jobs if kind in RUNNING else 0,
            open=elements.open,
            rounds=prod(
                outer.maximum
                for name in task_plan.inside
                if isinstance(outer := plan.tasks[name].task.pattern, LoopPattern)
            ),
            when_failed=task.when_failed.value,
            tolerate=task.tolerate,
        )
        if not isinstance(pattern, JobPattern):
            return planned
        planned = replace(planned, resources=pattern.resources, retry=pattern.retry)
        if runs is False:
            return planned
        if elements.jobs is not None:
            run.counts[task.name] = elements.jobs
        if task.scatter:
            run.scattered.add(task.name)
        planned = replace(planned, inputs=await self._inputs(plan, task_plan, run, elements))
        if plan.flow.reuse:
            planned = replace(planned, reuse=await self._reuse(plan, task_plan, run, elements))
        return planned

    async def _elements(self, task_plan: TaskPlan, run: _KnownRun) -> _ScatterElements:
        task = task_plan.task
        over = scattered_over(task)
        if over is not None and run.value(over) is None and over[1] in run.counts and over[1] in run.scattered:
            return _ScatterElements((run.counts[over[1]],))
        texts = [text for dimension in task.scatter for text in source_texts(dimension.source)]
        if open_ := unknown((path for text in texts for path in template_references(text)), run.value):
            return _ScatterElements(open=f"depends on {', '.join(open_)}")
        members: dict[str, Sequence[str]] = {}
        try:
            for dimension in task.scatter:
                match dimension.source:
                    case FilesOf(pattern):
                        members[dimension.name] = await self.files.files(as_text(fill(pattern, run.value)))
                    case LinesOf(path):
                        members[dimension.name] = await self.files.lines(as_text(fill(path, run.value)))
                    case WatchOf(pattern):
                        return _ScatterElements(
                            open=f"one for each file that appears at {as_text(fill(pattern, run.value))}"
                        )
            listed = {name: len(names) for name, names in members.items()}
            sizes = scatter_sizes(task, run.value, listed)
        except (Permanent, Impossible, OSError) as error:
            return _ScatterElements(open=str(error))
        if prod(sizes) > MAX_ELEMENTS:
            return _ScatterElements(open=f"{prod(sizes)} elements; at most {MAX_ELEMENTS} are possible")
        return _ScatterElements(sizes, members)

    async def _inputs(
        self, plan: FlowPlan, task_plan: TaskPlan, run: _KnownRun, elements: _ScatterElements
    ) -> InputCheck:
        """Check the input files that are known by now."""
        task, pattern = task_plan.task, task_plan.task.pattern
        assert isinstance(pattern, JobPattern)  # noqa: S101 - the caller has looked
        over = scattered_over(task)
        listed = not elements.open and (over is None or run.value(over) is not None)
        own = {dimension.name for dimension in task.scatter} | ({"index"} if task.scatter else set())
        ready, later = known_inputs(pattern, run.value, frozenset(own if listed else ()))
        only = replace(task, pattern=JobPattern(command=("true",), inputs=ready), compensation=None)
        if not listed:
            # The elements are not known: inputs that do not depend on them are checked once.
            only, elements = replace(only, scatter=()), _ScatterElements()
        made_up = self._made_up(
            replace(plan, tasks={only.name: replace(task_plan, task=only)}), task_plan, run, elements
        )
        if isinstance(made_up, str):
            return InputCheck(later=later)
        common, jobs = made_up
        found: dict[str, bool | None] = {}
        for job in jobs if common.specification.inputs else ():
            for entry in (filled(job_input, job.parameters, job.at) for job_input in common.specification.inputs):
                if entry.source not in found and produced(entry.source) is None:
                    late = self.clock.monotonic() > run.until
                    found[entry.source] = None if late else await self._there(entry.source)
        missing = [source for source, there in found.items() if there is False]
        return InputCheck(
            checked=sum(there is not None for there in found.values()),
            missing=tuple(missing[:MAX_NAMED]),
            missing_count=len(missing),
            elsewhere=sum(there is None for there in found.values()),
            later=later,
        )

    async def _there(self, source: str) -> bool | None:
        path = local_path(source)
        if path is None:
            return None
        try:
            return await self.files.there(path)
        except Permanent:
            return None

    async def _reuse(
        self, plan: FlowPlan, task_plan: TaskPlan, run: _KnownRun, elements: _ScatterElements
    ) -> ReuseForecast:
        """Search earlier results of the jobs that are known by now."""
        task = task_plan.task
        count = elements.jobs
        if count is None or task_plan.inside:
            return ReuseForecast(open=count or 1, why=elements.open or f"it is inside {task_plan.inside[-1]}")
        # Of a producer whose elements continue one by one, the reused ones are enough.
        over = scattered_over(task) if task_plan.producer in run.reused else None
        if open_ := unknown((path for path in task_plan.wants if path != over), run.value):
            return ReuseForecast(open=count, why=f"depends on {', '.join(open_)}")
        made_up = self._made_up(plan, task_plan, run, elements)
        if isinstance(made_up, str):
            return ReuseForecast(open=count, why=made_up)
        common, jobs = made_up
        originals: dict[int, JobDocument] = {}
        first = ""
        looked = 0
        for start in range(0, len(jobs), AT_ONCE):
            if self.clock.monotonic() > run.until:
                first = first or "the input files are too large to be compared in a dry run"
                break
            some = jobs[start : start + AT_ONCE]
            place = f"{plan.flow.name}/{task.name}"
            foreseen = await self.reuse.foresee(place, common.specification, some, owner=run.owner)
            looked += len(some)
            for job in some:
                earlier = foreseen[job.job]
                if earlier.original is not None:
                    originals[job.at or 0] = earlier.original
                first = first or ("" if earlier.original is not None else earlier.why)
        if common.wait:
            with suppress(Permanent):
                run.reused[task.name] = await self._outputs_of(task, common, originals)
                run.done |= {task.name} if len(originals) == count else set()
        if looked < count and not first:
            path = ".".join(over) if over is not None else ""
            first = f"depends on {path}" if path else f"only the first {looked} were compared"
        return ReuseForecast(len(originals), looked - len(originals), count - looked, first)

    async def _outputs_of(
        self, task: Task, common: TaskJobs, originals: Mapping[int, JobDocument]
    ) -> Mapping[OutputReference, Mapping[int, Sequence[ResolvedOutput]]]:
        made: dict[OutputReference, Mapping[int, Sequence[ResolvedOutput]]] = {}
        for name, pattern in common.specification.named_outputs.items():
            reference = OutputReference(RUN, f"{task.name}@1", name)
            made[reference] = {
                at: await self.outputs.files_of(original, pattern, reference) for at, original in originals.items()
            }
        return made

    def _made_up(
        self, plan: FlowPlan, task_plan: TaskPlan, run: _KnownRun, elements: _ScatterElements
    ) -> tuple[TaskJobs, list[JobElement]] | str:
        """The first jobs of a task as its run would create them, or why it could not."""
        task = plan.tasks[task_plan.task.name].task
        scope = {".".join(path): run.value(path) for path in task_plan.wants}
        over = scattered_over(task) if task_plan.producer else None
        if over is not None:
            scope[".".join(over)] = {"$elements": {"work": f"{task_plan.producer}@1", "output": over[3]}}
        work = f"{task.name}@1"
        order = WorkOrder(
            work,
            task.name,
            task.name,
            sizes=elements.sizes,
            listings={name: name for name in elements.members},
            scope=scope,
        )
        outputs = run.resolved(task_plan.producer)
        some = range(min(prod(elements.sizes), MAX_CHECKED, run.left))
        lacking = set(outputs.lacking(some)) if elements.sizes else set()
        indexes = [at for at in some if at not in lacking]
        run.left -= len(indexes)
        try:
            common = task_jobs(plan, order, tenant=run.tenant, files=outputs.places, sources=outputs.sources)
            values = parameters(
                plan, order, indexes, member=lambda name, place: elements.members[name][place], files=outputs.places
            )
            jobs = [
                JobElement(
                    job_of(RUN, work, at), at if elements.sizes else None, value, FlowRef(RUN, work, "", -1, at, 0)
                )
                for at, value in zip(indexes, values, strict=True)
            ]
        except (ValueError, TypeError, KeyError, IndexError) as error:
            return f"its jobs cannot be created: {error}"
        return common, jobs
