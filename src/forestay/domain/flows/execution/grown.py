"""Runs of Python flows: their flow is not known beforehand and grows by a task whenever the function calls one.

Everything else is as in every run: tasks, shards, holders, verbs, compensations. The function alone decides the order of tasks, so a task begins at
once and its failure does not affect the run: it is reported to the function. The run completes when the function has returned and every task has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from forestay.domain.flows.commands import Command
from forestay.domain.flows.definition.flow import Flow, Task, WhenFailed
from forestay.domain.flows.definition.flow_plan import FlowPlan, plan_flow
from forestay.domain.flows.definition.flow_version import task_as_plain, task_from_plain
from forestay.domain.flows.execution.constraints import held_at_start
from forestay.domain.flows.execution.endings import stop
from forestay.domain.flows.execution.flow_run import (
    EndCheck,
    FlowRun,
    InstanceState,
    RunEnding,
    RunPhase,
    TaskInstance,
)
from forestay.domain.flows.execution.run_update import RunUpdate
from forestay.domain.flows.execution.settle import settle
from forestay.domain.flows.scatter.shard_run import MAX_REASON

WELL = frozenset({InstanceState.COMPLETED, InstanceState.FORCED_COMPLETE, InstanceState.SKIPPED})
Change = Callable[[RunUpdate], None]


def grown_plan(name: str, version: str, tasks: Mapping[str, Mapping[str, Any]] | None = None) -> FlowPlan:
    """The plan of a Python flow, with the tasks of a run so far, in their plain form."""
    plan = FlowPlan(Flow(name, ()), {}, version=version, grown=True)
    for known, plain in (tasks or {}).items():
        plan = _with_task(plan, task_from_plain(known, plain))
    return plan


def grown_tasks(run: FlowRun) -> dict[str, dict[str, Any]]:
    """The plain form of the tasks that a run still needs: its present tasks, and those that may have to be undone."""
    wanted = {instance.task for instance in run.instances.values()} | {entry.task for entry in run.stack}
    return {name: task_as_plain(place.task) for name, place in run.plan.tasks.items() if name in wanted}


def start_grown(
    plan: FlowPlan,
    *,
    run: str,
    at: int,
    params: Mapping[str, object],
    check: EndCheck = EndCheck.NONE,
    held: tuple[str, ...] = (),
    library: bool = False,
) -> tuple[FlowRun, tuple[Command, ...]]:
    """A new run without tasks. ``held``: the incidents because of which none may begin yet."""
    new = FlowRun(plan=plan, run=run, params=dict(params), started=at, open=True, check=check, library=library)
    return held_at_start(new, held)


def add_task(
    run: FlowRun, task: Task, at: int, instance: TaskInstance | None = None
) -> tuple[FlowRun, tuple[Command, ...]]:
    """Begin a task that the function calls. Its name is new in the run. ``instance``: how it is found in a resumed run."""
    if task.name in run.instances:
        raise ValueError(f"there is already a task {task.name}")
    if task.when_failed is WhenFailed.FAIL:
        task = replace(task, when_failed=WhenFailed.IGNORE)
    run = replace(run, plan=_with_task(run.plan, task))

    def begin(update: RunUpdate) -> None:
        update.open_block("", (task,))
        if instance is not None:
            update.instances[task.name] = instance

    return _changed(run, at, begin)


def take_end(run: FlowRun, name: str) -> FlowRun:
    """The function has received a task's result, which need not be carried any further."""
    instance = run.instances[name]
    return (
        run
        if instance.result is None
        else replace(run, instances={**run.instances, name: replace(instance, result=None)})
    )


def forget_ended(run: FlowRun, keep: frozenset[str]) -> FlowRun:
    """Drop the ended tasks, except those that are still referred to."""
    instances = {name: instance for name, instance in run.instances.items() if not instance.ended or name in keep}
    wanted = {instance.task for instance in instances.values()} | {entry.task for entry in run.stack}
    tasks = {name: place for name, place in run.plan.tasks.items() if name in wanted}
    return replace(run, instances=instances, plan=replace(run.plan, tasks=tasks))


def returned(run: FlowRun, outputs: Mapping[str, object], at: int) -> tuple[FlowRun, tuple[Command, ...]]:
    """The function has returned: the run completes as soon as everything that it began has ended."""
    if not run.open or run.phase is not RunPhase.RUNNING:
        return replace(run, open=False), ()
    return _changed(run, at, lambda update: update.set(open=False, outputs=outputs))


def raised(run: FlowRun, reason: str, at: int) -> tuple[FlowRun, tuple[Command, ...]]:
    """The function has failed: running tasks are cancelled, and completed ones are compensated."""
    if not run.open or run.phase is not RunPhase.RUNNING:
        return replace(run, open=False), ()

    def fail(update: RunUpdate) -> None:
        update.set(open=False)
        stop(update, RunEnding.FAIL, reason[:MAX_REASON], cancel=True)

    return _changed(run, at, fail)


def _changed(run: FlowRun, at: int, change: Change) -> tuple[FlowRun, tuple[Command, ...]]:
    update = RunUpdate(run, at)
    change(update)
    settle(update)
    return update.frozen()


def _with_task(plan: FlowPlan, task: Task) -> FlowPlan:
    place = plan_flow(Flow(plan.flow.name, (task,))).tasks[task.name]
    return replace(plan, tasks={**plan.tasks, task.name: place})
