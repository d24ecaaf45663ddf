"""A case while one event is taken in: the state that is being changed, and the commands that come of it."""

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
    Item,
    ItemState,
    SettledCompensation,
    fan_out_of,
    item_at,
)
from forestay.domain.flows.scatter.fan_out import FanOut


class RunUpdate:
    """The working copy. What is in it is replaced, never changed."""

    def __init__(self, run: FlowRun, at: int) -> None:
        self.before = run
        self.run = run
        self.at = at
        self.items: dict[str, Item] = dict(run.items)
        self.stack: list[CompensationEntry] = list(run.stack)
        self.settled: list[SettledCompensation] = list(run.settled)
        self.commands: list[Command] = []

    @property
    def plan(self) -> FlowPlan:
        return self.run.plan

    def frozen(self) -> tuple[FlowRun, tuple[Command, ...]]:
        """The new state and what is to be done."""
        run = replace(self.run, items=self.items, stack=tuple(self.stack), settled=tuple(self.settled))
        return (self.before if run == self.before else run), tuple(self.commands)

    def say(self, command: Command) -> None:
        self.commands.append(command)

    def set(self, **changes: Any) -> None:
        """Change the case itself."""
        self.run = replace(self.run, **changes)

    def put(self, item: Item, **changes: Any) -> Item:
        """Change an item."""
        changed = replace(item, **changes) if changes else item
        known = self.items.get(item.id)
        if known is None or known.state is not changed.state:
            changed = self._timed(changed)
        self.items[item.id] = changed
        return changed

    def _timed(self, item: Item) -> Item:
        """An item that has just come to its state."""
        if item.state is ItemState.WAITING:
            return replace(item, began=0, finished=0)
        if item.state in BEGUN:
            return replace(item, began=item.began or self.at, finished=0)
        return replace(item, finished=self.at)

    def task(self, item: Item) -> Task:
        return self.plan.tasks[item.task].task

    def place(self, item: Item) -> TaskPlan:
        return self.plan.tasks[item.task]

    def report(self, kind: str, item: Item | None = None, detail: str = "") -> None:
        where = item.work if item else f"case@{self.run.restarts}"
        self.say(Report(f"{where}:{kind}", kind, item.id if item else "", detail))

    def block(self, block: str) -> Iterator[Item]:
        """The items of a block."""
        return (item for item in list(self.items.values()) if item.block == block)

    def within(self, item: Item) -> Iterator[Item]:
        """Every item inside a loop or choice, at any depth."""
        for block in item.blocks:
            for inner in self.block(block):
                yield inner
                yield from self.within(inner)

    def open_block(self, block: str, tasks: Sequence[Task]) -> None:
        """Make the items of a block."""
        for task in tasks:
            name = f"{block}/{task.name}" if block else task.name
            self.items[name] = Item(name, task.name, block)

    def close_blocks(self, item: Item) -> None:
        """Forget the items inside a loop or choice."""
        for inner in list(self.within(item)):
            if inner.timer:
                self.say(CancelTimer(inner.work))
            del self.items[inner.id]

    def container(self, item: Item) -> Item | None:
        """The loop or choice that an item is inside of."""
        return self.items.get(container_of(item.block)) if item.block else None

    def containers(self, item: Item) -> Iterator[Item]:
        """The loops and choices that an item is inside of, the innermost first."""
        outer = self.container(item)
        while outer is not None:
            yield outer
            outer = self.container(outer)

    def holders(self, item: Item) -> tuple[str, ...]:
        """Everyone who holds an item: itself, what it is inside of, or the case."""
        held = {scoped(item.id, holder) for holder in item.holders}
        for outer in self.containers(item):
            held |= {scoped(outer.id, holder) for holder in outer.holders}
        held |= {scoped("", holder) for holder in self.run.holders}
        return tuple(sorted(held))

    def held(self, item: Item) -> bool:
        return bool(self.run.holders or item.holders or any(outer.holders for outer in self.containers(item)))

    def hold_work(self, item: Item, holder: str) -> None:
        if item.fan is not None and not item.fan.finished:
            self.say(HoldWork(item.work, holder, item.fan.own_count, len(item.fan.shards)))

    def continue_work(self, item: Item, holder: str) -> None:
        if item.fan is not None and not item.fan.finished:
            self.say(ContinueWork(item.work, holder, item.fan.own_count, len(item.fan.shards)))

    def find(self, work: str) -> Item | None:
        """The item whose present round this is."""
        return item_at(self.items, work)

    def fan_of(self, work: str) -> FanOut | None:
        """The elements of a round of an item, or of the compensation that is being run."""
        return fan_out_of(self.items, self.stack, work)

    def set_fan(self, work: str, fan: FanOut) -> None:
        entry = self.stack[-1] if self.stack else None
        if entry is not None and entry.fan is not None and entry.undo == work:
            self.stack[-1] = replace(entry, fan=fan)
            return
        item = self.find(work)
        if item is not None:
            self.put(item, fan=fan)


def container_of(block: str) -> str:
    """The id of the item that a block is inside of: ``a@1/2/b@3/yes`` is inside ``a@1/2/b``."""
    return block.rpartition("/")[0].rpartition("@")[0]


def scoped(item: str, holder: str) -> str:
    """A holder's name on jobs: who holds an item and its case holds its jobs twice, and lets go of them one by one."""
    return f"{item or 'case'}/{holder}"
