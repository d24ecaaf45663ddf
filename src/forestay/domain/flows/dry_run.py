"""What a run would do, as far as its flow and its parameters determine it beforehand.

A reference is known or not: parameters are known, and so are the results of a task if all of them would be reused. What depends on anything else is
reported as open, with the reference that it depends on; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from forestay.domain.flows.definition.expression import Path, Values, evaluate, parse_condition, template_references
from forestay.domain.flows.definition.flow import Task, bodies
from forestay.domain.flows.definition.flow_pattern import JobPattern
from forestay.domain.flows.definition.flow_plan import FlowPlan, TaskPlan, condition_paths
from forestay.domain.jobs.resources import Resources
from forestay.domain.jobs.specification import RetryPolicy

MAX_CHECKED = 1000
"""The most jobs of a task whose inputs and earlier results are checked; more are only counted."""
MAX_NAMED = 20
"""The most missing inputs that are named."""


@dataclass(frozen=True, slots=True)
class InputCheck:
    """The input files of a task's jobs that lie on the shared file system."""

    checked: int = 0
    missing: tuple[str, ...] = ()
    """The first `MAX_NAMED` of them."""
    missing_count: int = 0
    elsewhere: int = 0
    """Inputs that cannot be checked from here: addresses, the catalogue, folders that flows may not read."""
    later: tuple[str, ...] = ()
    """Names of inputs that earlier tasks produce."""


@dataclass(frozen=True, slots=True)
class ReuseForecast:
    """How many jobs of a task would have the result of an earlier one."""

    reused: int = 0
    run: int = 0
    open: int = 0
    """Jobs for which this is not known before the run."""
    why: str = ""
    """Why the first job that is not reused would run, or why this is not known."""


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A task as it would run."""

    name: str
    kind: str
    inside: tuple[str, ...]
    branch: str
    after: tuple[str, ...]
    condition: str
    runs: bool | None
    """Whether its condition holds; None: not known before the run."""
    jobs: int | None
    """Its jobs, or runs of a sub-flow, in one round; None: not known before the run."""
    open: str = ""
    """Why the number is not known."""
    rounds: int = 1
    """The most rounds, inside loops."""
    resources: Resources | None = None
    retry: RetryPolicy | None = None
    when_failed: str = ""
    tolerate: int = 0
    inputs: InputCheck | None = None
    reuse: ReuseForecast | None = None
    """None: its flow reuses nothing, or it has no jobs."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a run would do. Nothing of it was begun."""

    name: str
    version: str
    params: Mapping[str, object]
    problems: tuple[str, ...]
    """Why the run could not be started with these parameters."""
    reuse: bool
    tasks: tuple[PlannedTask, ...]
    grown: bool = False
    """The tasks become known only in the run itself."""

    @property
    def missing(self) -> int:
        return sum(task.inputs.missing_count for task in self.tasks if task.inputs is not None)

    @property
    def jobs(self) -> int:
        """The number of jobs, as far as known, each task counted once."""
        return sum(task.jobs or 0 for task in self.tasks if task.kind == JOB and task.runs is not False)


JOB = "job"
RUNNING = frozenset({JOB, "sub-flow", "worklet"})
"""Kinds of tasks that start jobs or runs."""


def in_order(plan: FlowPlan) -> Iterator[TaskPlan]:
    """All tasks, each after those that it waits for, and tasks inside a task after that task; otherwise as they are written."""

    def block(tasks: Sequence[Task]) -> Iterator[TaskPlan]:
        waiting = list(tasks)
        done: set[str] = set()
        while waiting:
            # There can be no cycle, since the flow was checked; if there is one, its tasks are listed as they are written.
            task = next((task for task in waiting if done.issuperset(plan.tasks[task.name].before)), waiting[0])
            waiting.remove(task)
            done.add(task.name)
            yield plan.tasks[task.name]
            for body in bodies(task.pattern):
                yield from block(body.tasks)

    return block(plan.flow.tasks)


def unknown(paths: Iterable[Path], known: Values) -> list[str]:
    """The references without a value before the run."""
    return sorted({".".join(path) for path in paths if known(path) is None})


def holds_before(condition: str, known: Values) -> bool | None:
    """Whether a condition holds; None if it depends on an unknown value."""
    if not condition:
        return True
    if unknown(condition_paths(condition), known):
        return None
    return evaluate(parse_condition(condition), known) is True


def known_inputs(job: JobPattern, known: Values, own: frozenset[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The inputs of a job whose sources are known except for the task's own elements; and the names of all others."""
    ready: dict[str, str] = {}
    later: list[str] = []
    for name, source in job.inputs.items():
        paths = [path for text in (name, source) for path in template_references(text) if path[0] not in own]
        if unknown(paths, known):
            later.append(name)
        else:
            ready[name] = source
    return ready, tuple(later)
