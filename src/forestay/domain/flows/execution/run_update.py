"""A run while one event is processed: the state under change, and the resulting commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from forestay.domain.flows.commands import CancelTimer, Command, ContinueWork, HoldWork, Report
from forestay.domain.flows.definition.flow import Task
from forestay.domain.flows.definition.flow_plan import FlowPlan, TaskPlan
from forestay.domain.flows.execution.compensation import CompensationEntry
from forestay.domain.flows.execution.flow_run import (
    BEGUN,
    FlowRun,
    InstanceState,
    SettledCompensation,
    TaskInstance,
    fan_out_of,
    instance_at,
)
from forestay.domain.flows.scatter.fan_out import FanOut


class RunUpdate:
    """The working copy of a run. Its values are replaced, never mutated."""

    def __init__(self, run: FlowRun, at: int) -> None:
        self.before = run
        self.run = run
        self.at = at
        self.instances: dict[str, TaskInstance] = dict(run.instances)
        self.stack: list[CompensationEntry] = list(run.stack)
        self.settled: list[SettledCompensation] = list(run.settled)
        self.commands: list[Command] = []

    @property
    def plan(self) -> FlowPlan:
        return self.run.plan

    def frozen(self) -> tuple[FlowRun, tuple[Command, ...]]:
        """The new state and the commands."""
        run = replace(self.run, instances=self.instances, stack=tuple(self.stack), settled=tuple(self.settled))
        return (self.before if run == self.before else run), tuple(self.commands)

    def say(self, command: Command) -> None:
        self.commands.append(command)

    def set(self, **changes: Any) -> None:
        """Change the run itself."""
        self.run = replace(self.run, **changes)

    def put(self, instance: TaskInstance, **changes: Any) -> TaskInstance:
        """Change a task."""
        changed = replace(instance, **changes) if changes else instance
        known = self.instances.get(instance.id)
        if known is None or known.state is not changed.state:
            changed = self._timed(changed)
        self.instances[instance.id] = changed
        return changed

    def _timed(self, instance: TaskInstance) -> TaskInstance:
        """A task that has just entered its state."""
        if instance.state is InstanceState.WAITING:
            return replace(instance, began=0, finished=0)
        if instance.state in BEGUN:
            return replace(instance, began=instance.began or self.at, finished=0)
        return replace(instance, finished=self.at)

    def task(self, instance: TaskInstance) -> Task:
        return self.plan.tasks[instance.task].task

    def place(self, instance: TaskInstance) -> TaskPlan:
        return self.plan.tasks[instance.task]

    def producer(self, instance: TaskInstance) -> TaskInstance | None:
        """The task whose elements this one consumes one by one."""
        name = self.place(instance).producer if self.run.streams else ""
        return self.instances[f"{instance.block}/{name}" if instance.block else name] if name else None

    def report(self, kind: str, instance: TaskInstance | None = None, detail: str = "") -> None:
        where = instance.work if instance else f"run@{self.run.restarts}"
        self.say(Report(f"{where}:{kind}", kind, instance.id if instance else "", detail))

    def block(self, block: str) -> Iterator[TaskInstance]:
        """The tasks of a block."""
        return (instance for instance in list(self.instances.values()) if instance.block == block)

    def within(self, instance: TaskInstance) -> Iterator[TaskInstance]:
        """Every task inside a loop or choice, at any depth."""
        for block in instance.blocks:
            for inner in self.block(block):
                yield inner
                yield from self.within(inner)

    def open_block(self, block: str, tasks: Sequence[Task]) -> None:
        """Create the tasks of a block."""
        for task in tasks:
            name = f"{block}/{task.name}" if block else task.name
            self.instances[name] = TaskInstance(name, task.name, block)

    def close_blocks(self, instance: TaskInstance) -> None:
        """Drop the tasks inside a loop or choice."""
        for inner in list(self.within(instance)):
            if inner.timer:
                self.say(CancelTimer(inner.work))
            del self.instances[inner.id]

    def container(self, instance: TaskInstance) -> TaskInstance | None:
        """The loop or choice that encloses a task."""
        return self.instances.get(container_of(instance.block)) if instance.block else None

    def containers(self, instance: TaskInstance) -> Iterator[TaskInstance]:
        """The loops and choices that enclose a task, the innermost first."""
        outer = self.container(instance)
        while outer is not None:
            yield outer
            outer = self.container(outer)

    def holders(self, instance: TaskInstance) -> tuple[str, ...]:
        """All holders of a task: its own, those of the tasks that enclose it, and those of the run."""
        held = {scoped(instance.id, holder) for holder in instance.holders}
        for outer in self.containers(instance):
            held |= {scoped(outer.id, holder) for holder in outer.holders}
        held |= {scoped("", holder) for holder in self.run.holders}
        return tuple(sorted(held))

    def held(self, instance: TaskInstance) -> bool:
        return bool(self.run.holders or instance.holders or any(outer.holders for outer in self.containers(instance)))

    def hold_work(self, instance: TaskInstance, holder: str) -> None:
        if instance.fan_out is not None and not instance.fan_out.finished:
            self.say(HoldWork(instance.work, holder, instance.fan_out.own_count, len(instance.fan_out.shards)))

    def continue_work(self, instance: TaskInstance, holder: str) -> None:
        if instance.fan_out is not None and not instance.fan_out.finished:
            self.say(ContinueWork(instance.work, holder, instance.fan_out.own_count, len(instance.fan_out.shards)))

    def find(self, work: str) -> TaskInstance | None:
        """The task whose present round this is."""
        return instance_at(self.instances, work)

    def fan_out_of(self, work: str) -> FanOut | None:
        """The elements of a round of a task, or of the compensation that is being run."""
        return fan_out_of(self.instances, self.stack, work)

    def set_fan_out(self, work: str, fan_out: FanOut) -> None:
        entry = self.stack[-1] if self.stack else None
        if entry is not None and entry.fan_out is not None and entry.undo == work:
            self.stack[-1] = replace(entry, fan_out=fan_out)
            return
        instance = self.find(work)
        if instance is not None:
            self.put(instance, fan_out=fan_out)


def container_of(block: str) -> str:
    """The id of the task that encloses a block: ``a@1/2/b@3/yes`` is inside ``a@1/2/b``."""
    return block.rpartition("/")[0].rpartition("@")[0]


def scoped(instance: str, holder: str) -> str:
    """A holder's name on jobs: someone who holds both a task and its run holds its jobs twice, and releases them separately."""
    return f"{instance or 'run'}/{holder}"
