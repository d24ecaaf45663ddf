"""Compensations from the library instead of the flow: registered by action, and changed while runs are active.

When a task completes, an entry is pushed at once, so that the stack is in the order of completion, and the library is queried for the task's
action at that moment. The answer is a version. The entry keeps it, whatever is registered later, until a person changes it; if nothing is registered
the entry leaves the stack. A run does not end, and is not compensated, before the library has answered for every completed task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from forestay.domain.flows.commands import FindCompensation, Report, WorkOrder
from forestay.domain.flows.definition.expression import inside, template_references
from forestay.domain.flows.definition.flow import Compensation, Task
from forestay.domain.flows.definition.flow_pattern import AskPattern, JobPattern
from forestay.domain.flows.definition.flow_plan import (
    MAX_COMPENSATIONS,
    MAX_UNDO,
    MIN_RESULT,
    FlowPlan,
    job_texts,
)
from forestay.domain.flows.events import CompensationFound, Verb
from forestay.domain.flows.execution.compensation import CompensationEntry
from forestay.domain.flows.execution.flow_run import TaskInstance
from forestay.domain.flows.execution.run_update import RunUpdate
from forestay.domain.flows.execution.scope import bound, size_of
from forestay.domain.flows.scatter.fan_out import Piece

LARGE_ENTRIES = 100
"""How many entries may keep `MAX_UNDO` bytes of their tasks' results; those above them may keep `MIN_RESULT`, so that the state of a run stays small."""
ONLY_COMPENSATIONS = "rebind applies to compensations only; name one by its number, such as !3"
REBOUND = "compensation-rebound"


def action_of(plan: FlowPlan, task: Task) -> str:
    """The action of a task. Without a name of its own it is this task of this flow, so that it does not apply to tasks of other flows."""
    return task.action or f"{plan.flow.name}:{task.name}"


def is_of_library(update: RunUpdate, instance: TaskInstance) -> bool:
    """Whether a completed task is looked up in the library: it runs jobs that are waited for, or asks a person, and its flow does not define how to undo it."""
    task = update.task(instance)
    if not update.run.library or task.compensation is not None:
        return False
    return task.pattern.wait if isinstance(task.pattern, JobPattern) else isinstance(task.pattern, AskPattern)


def is_full(update: RunUpdate) -> bool:
    """Whether no more compensations of the library can be kept."""
    return sum(not entry.pending for entry in update.stack) >= MAX_COMPENSATIONS


def push_from_library(update: RunUpdate, instance: TaskInstance, pieces: Sequence[Piece]) -> None:
    """Keep a task's results, and query the library for its compensation."""
    number = update.run.pushed + 1
    update.set(pushed=number)
    large = isinstance(instance.result, Mapping) and "$too_large" in instance.result
    came_to: dict[str, object] = {"result": None if large else instance.result, "exit_code": instance.exit_code}
    if instance.outputs:
        came_to["outputs"] = instance.outputs
    scope = {"task": came_to, **bound(update, instance, update.place(instance).source_wants, params=False)}
    limit = MAX_UNDO if len(update.stack) < LARGE_ENTRIES else MIN_RESULT
    entry = CompensationEntry(
        number=number,
        instance=instance.id,
        task=instance.task,
        work=instance.work,
        pieces=tuple(pieces),
        sizes=instance.sizes,
        listings={name: listing for name, (listing, _) in instance.listings.items()},
        scope=scope if size_of(scope) <= limit else {},
        action=action_of(update.plan, update.task(instance)),
        pending=True,
    )
    update.stack.append(entry)
    update.say(FindCompensation(instance.work, number, entry.action))


def compensation_found(update: RunUpdate, event: CompensationFound) -> None:
    """Keep the version that is registered now, or drop the entry if there is none."""
    for place, entry in enumerate(update.stack):
        if entry.number == event.number and entry.pending:
            if event.version:
                update.stack[place] = replace(entry, version=event.version, most=max(1, event.tries), pending=False)
            else:
                del update.stack[place]
            return


def rebind(update: RunUpdate, verb: Verb) -> str:
    """Give an entry another version, and record this in the run's story; returns why not, or nothing. An entry that was held for a person is run again."""
    version, tries = verb.changes.get("version"), verb.changes.get("tries")
    if not isinstance(version, str) or not version or not isinstance(tries, int):
        return "name the version of the compensation"
    for place, entry in enumerate(update.stack):
        if verb.instance != f"!{entry.number}":
            continue
        if not entry.action:
            return f"{verb.instance} is the flow's own compensation, not one of the library"
        if entry.pending or entry.fan_out is not None:
            return f"{verb.instance} is being {'looked up' if entry.pending else 'run'}"
        update.stack[place] = replace(
            entry, version=version, most=max(1, tries), held=False, reason="", rebound_by=verb.by
        )
        why = f": {verb.reason}" if verb.reason else ""
        detail = f"{verb.instance} {entry.action} from {entry.version} to {version} by {verb.by}{why}"
        update.say(Report(f"verb:{verb.id}", REBOUND, entry.instance, detail))
        return ""
    return f"{verb.instance} is not on the compensation stack"


def library_values(update: RunUpdate, entry: CompensationEntry) -> dict[str, object]:
    """What a compensation of the library may refer to, beside the values kept in the entry: the run, its parameters and the files of the task."""
    values: dict[str, object] = {"run": update.run.run, "params": dict(update.run.params)}
    came_to = entry.scope.get("task")
    pattern = update.plan.tasks[entry.task].task.pattern
    if isinstance(pattern, JobPattern) and pattern.outputs and not entry.sizes:
        files = {
            name: {"$output": {"run": update.run.run, "work": entry.work, "output": name}} for name in pattern.outputs
        }
        values["task"] = {**(came_to if isinstance(came_to, dict) else {}), "outputs": files}
    return values


def from_library(plan: FlowPlan, order: WorkOrder, compensation: Compensation) -> tuple[FlowPlan, WorkOrder]:
    """The plan and the order as if the flow had declared a compensation of the library; `ValueError` if it refers to what the run does not have."""
    place = plan.tasks[order.task]
    task = replace(place.task, compensation=compensation)
    own = {dimension.name for dimension in task.scatter} | ({"index"} if task.scatter else set())
    scope = {name: value for name, value in order.scope.items() if name not in ("params", "task")}
    for path in (path for text in job_texts(compensation.job) for path in template_references(text)):
        if path[0] in own:
            continue
        value = inside(order.scope, path)
        if value is None:
            raise ValueError(f"${{{'.'.join(path)}}} has no value in this run, or one that was too large to be kept")
        scope[".".join(path)] = value
    planned = replace(plan, tasks={**plan.tasks, order.task: replace(place, task=task)})
    return planned, replace(order, scope=scope)
