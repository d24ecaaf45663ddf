"""Resumes an ended run of a Python flow: its function is replayed, and what it calls as before is taken from the run as it ended.

The function has no graph to continue in, so a call is recognised by its key: the requested name and everything else that it says. Calls with the same key are
taken in the order in which they were made. A call that says something else than before is new work; if it repeats external effects, it waits for a person.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from forestay.domain.flows.commands import RunOutcome
from forestay.domain.flows.definition.flow import Task, WhenFailed
from forestay.domain.flows.definition.flow_pattern import JobPattern
from forestay.domain.flows.definition.flow_version import task_as_plain
from forestay.domain.flows.execution.compensation import MAX_ENTRIES
from forestay.domain.flows.execution.flow_run import FlowRun, InstanceState, RunPhase, TaskInstance
from forestay.domain.flows.execution.redo import MAX_EARLIER, leftover
from forestay.domain.flows.execution.resumption import WELL, Resumption, TaskAgain
from forestay.domain.flows.execution.run_end import check_anew
from forestay.domain.flows.execution.run_update import RunUpdate
from forestay.domain.flows.execution.scope import MAX_DATA, size_of
from forestay.domain.flows.execution.settle import settle
from forestay.domain.jobs.specification import Effects

REFERENCE = re.compile(r"\$\{tasks\.([A-Za-z_][A-Za-z0-9_-]*)\.outputs\.")


class RememberedCall(NamedTuple):
    """What is remembered of a task's call besides its instance."""

    wanted: str
    """The name that the function requested."""
    branch: str = ""
    """The branch of `gather` in which it was called."""
    result: str = ""
    """The digest of the result that the function was given."""


@dataclass(frozen=True, slots=True)
class FormerTask:
    """A task that the function began before its run ended."""

    instance: TaskInstance
    wanted: str
    """The name that the function requested."""
    key: str
    after: tuple[str, ...] = ()
    """The tasks that had ended last when it began."""
    branch: str = ""
    """The branch of `gather` in which it was called."""
    refers: tuple[str, ...] = ()
    """The tasks whose outputs it uses."""
    result: str = ""
    """The digest of the result that the function was given."""
    external: bool = False
    blamed: bool = False
    """The function did not handle its failure."""
    again: bool = False
    """It is run again when the function calls it."""

    @property
    def name(self) -> str:
        return self.instance.id

    def as_plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"instance": self.instance.as_plain(), "wanted": self.wanted, "key": self.key}
        for name in _OPTIONAL:
            if value := getattr(self, name):
                plain[name] = list(value) if isinstance(value, tuple) else value
        return plain

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> FormerTask:
        lists = {name: tuple(data[name]) for name in _LISTS if name in data}
        return cls(**{**data, **lists, "instance": TaskInstance.from_plain(data["instance"])})


_LISTS = ("after", "refers")
_OPTIONAL = (*_LISTS, "branch", "result", "external", "blamed", "again")


class GrownResumption(NamedTuple):
    """A resumed run, and what its function may find again."""

    resumption: Resumption
    former: tuple[FormerTask, ...]


def call_key(wanted: str, task: Task) -> str:
    """What makes two calls the same: all that the function says, apart from the number that its run gives the name."""
    call = replace(task, when_failed=WhenFailed.IGNORE) if task.when_failed is WhenFailed.FAIL else task
    return digest([wanted, task_as_plain(call)])


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def is_external(task: Task) -> bool:
    return isinstance(task.pattern, JobPattern) and task.pattern.effects is Effects.EXTERNAL


def refers_to(task: Task) -> tuple[str, ...]:
    return tuple(sorted(set(REFERENCE.findall(json.dumps(task_as_plain(task))))))


def grown_refusal(
    run: FlowRun, former: Sequence[FormerTask], *, task: str = "", changes: Mapping[str, object] | None = None
) -> str:
    """Why a run cannot be resumed in this way; empty: it can."""
    if run.outcome is None:
        return "the run has not ended"
    if task and task not in {each.name for each in former}:
        return (
            f"the run has no task {task} since its last restart; its tasks: {', '.join(each.name for each in former)}"
        )
    if run.outcome in WELL and not task:
        return "the run has completed; name the task to start from"
    if unknown := sorted((changes or {}).keys() - run.params.keys()):
        return f"the run has no parameter {', '.join(unknown)}"
    if size_of({**run.params, **(changes or {})}) > MAX_DATA:
        return f"the parameters of the run would be larger than {MAX_DATA} bytes"
    if run.outcome is RunOutcome.FAILED and not changes and not _again(run, former, task):
        return (
            f"its function would fail again in the same way ({run.reason or 'no reason given'}), since no task has to run again; "
            "change a parameter, name the task to start from, or start a new run"
        )
    return "too many compensations wait on the stack" if len(run.stack) >= MAX_ENTRIES // 2 else ""


def resume_grown(
    run: FlowRun,
    former: Sequence[FormerTask],
    *,
    at: int,
    task: str = "",
    changes: Mapping[str, object] | None = None,
) -> GrownResumption:
    """Continue an ended run that has passed `grown_refusal`: what its function called is found again as `former`, and the rest stays as it was."""
    again = _again(run, former, task)
    known = {each.name for each in former}
    earlier = {name: instance for name, instance in run.instances.items() if name not in known}
    update = RunUpdate(replace(run, instances=earlier), at)
    update.set(
        phase=RunPhase.RUNNING, ending=None, outcome=None, outputs={}, reason="", failed=False, holders=(), undone=(), open=True,
        restarts=run.restarts + 1, params={**run.params, **(changes or {})},
    )  # fmt: skip
    check_anew(update)
    settle(update)
    prepared = tuple(_prepared(each, again) for each in former)
    kept = tuple(each.name for each in prepared if not each.again)
    repeated = tuple(_task_again(each, again[each.name]) for each in former if each.name in again)
    return GrownResumption(Resumption(*update.frozen(), kept, repeated), prepared)


def _again(run: FlowRun, former: Sequence[FormerTask], task: str) -> dict[str, bool]:
    """The tasks that must run again, each with whether all of its elements must.

    These are the tasks that were cancelled, undone or named, or whose failure the function did not handle; and everything that began when one of them had
    ended, except in another branch of the same `gather`, which knew nothing of it.
    """
    nobody_blamed = run.outcome not in WELL and not any(each.blamed for each in former)
    again: dict[str, bool] = {}
    for each in former:
        state = each.instance.state
        whole = each.name == task or each.name in run.undone
        last = nobody_blamed and state is InstanceState.FAILED and not _followers(former, each)
        if whole or last or each.blamed or each.again or state is InstanceState.CANCELLED:
            again[each.name] = whole or not each.instance.done or len(each.instance.earlier) >= MAX_EARLIER
    found = [each for each in former if each.name in again]
    while found:
        for later in _followers(former, found.pop()):
            if not again.get(later.name):
                again[later.name] = True
                found.append(later)
    return again


def _followers(former: Sequence[FormerTask], each: FormerTask) -> list[FormerTask]:
    """The tasks that may depend on how this one ended. Tasks are in the order in which they began."""
    reached = {each.name}
    using = {each.name}
    found: list[FormerTask] = []
    for later in former:
        if reached & set(later.after):
            reached.add(later.name)
        if using & set(later.refers) or (later.name in reached - {each.name} and _related(each.branch, later.branch)):
            using.add(later.name)
            found.append(later)
    return found


def _related(one: str, other: str) -> bool:
    """Whether one branch is the other, or inside it."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _prepared(each: FormerTask, again: Mapping[str, bool]) -> FormerTask:
    """A former task as the function finds it when it calls it again."""
    instance = each.instance
    if each.name not in again:
        return replace(each, blamed=False)
    new = TaskInstance(each.name, instance.task, round=instance.round) if again[each.name] else leftover(instance)
    return replace(each, instance=replace(new, holders=()), blamed=False, again=True)


def _task_again(each: FormerTask, whole: bool) -> TaskAgain:  # noqa: FBT001
    instance = each.instance
    count = instance.count or None
    rest = count if whole or count is None else instance.count - instance.well
    return TaskAgain(each.name, rest, count, each.external and instance.round > 0)
