"""The part of a run that its function uses: names of tasks, started tasks, and their results.

The executor of a run adds the rest: it carries out commands, receives events, and knows the time.
"""

from __future__ import annotations

import asyncio
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from forestay.domain.flows.commands import Command
from forestay.domain.flows.definition.flow import Task
from forestay.domain.flows.definition.flow_pattern import AskPattern, AwaitPattern, JobPattern
from forestay.domain.flows.execution.flow_run import FlowRun, TaskInstance
from forestay.domain.flows.execution.grown import WELL, add_task, forget_ended, take_end
from forestay.flows.flow_context import PendingWork
from forestay.flows.results import Ended, JobFailed, Outputs

MAX_STATE = 262_144
"""Bytes of JSON of a checkpoint's state."""
_REFERENCE = re.compile(r"\$\{tasks\.([A-Za-z_][A-Za-z0-9_-]*)\.outputs\.")


class FlowStopped(Exception):
    """The function requested something impossible; the message says what to do instead."""


class FlowContextBase(ABC):
    """Implements `FlowContext` except for the time and the handling of checkpoints."""

    flow_run: FlowRun

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.names: dict[str, int] = dict(arguments.get("names", {}))
        """How often each name was requested."""
        self.last: list[str] = list(arguments.get("last", ()))
        """The tasks that ended last: tasks begun now come after them."""
        self.after: dict[str, list[str]] = dict(arguments.get("after", {}))
        self.kept: Any = arguments.get("kept")
        """The state of the last checkpoint."""
        self.ends: dict[str, asyncio.Future[Ended]] = {}
        self.works: list[PendingWork] = []

    @abstractmethod
    def moment(self) -> int:
        """The time in milliseconds."""

    @abstractmethod
    def perform(self, commands: tuple[Command, ...]) -> None:
        """Have commands carried out."""

    def hear(self, instance: TaskInstance, ended: Ended, pattern: JobPattern, end: asyncio.Future[Ended]) -> None:
        """Report a successful end to the function."""
        end.set_result(ended)

    # What the function calls

    def name_for(self, wanted: str) -> str:
        while True:
            number = self.names[wanted] = self.names.get(wanted, 0) + 1
            name = wanted if number == 1 else f"{wanted}-{number}"
            if number == 1 or name not in self.names:
                self.names.setdefault(name, 1)
                return name

    def known(self, instance: str) -> bool:
        return instance in self.flow_run.instances

    def begin(self, task: Task) -> PendingWork:
        end: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        work = PendingWork(task.name, end)
        self.works.append(work)
        self.ends[task.name] = end
        self.after[task.name] = list(self.last)
        self.flow_run, commands = add_task(self.flow_run, task, self.moment())
        self.perform(commands)
        self.settle_ends()
        return work

    def restored(self) -> object:
        return json.loads(json.dumps(self.kept))

    # What the run calls

    def keep(self, state: object) -> None:
        """Remember the state of a checkpoint."""
        text = json_text(state, "the state of a checkpoint", MAX_STATE)
        if self.ends:
            raise FlowStopped(f"at a checkpoint all tasks must have finished; {', '.join(sorted(self.ends))} has not")
        self.kept = json.loads(text)
        self.works.clear()

    def carried_on(self) -> dict[str, Any]:
        """What a continued run needs besides its state; ended tasks are dropped, unless the checkpoint refers to them."""
        if self.flow_run.open:
            self.flow_run = forget_ended(self.flow_run, frozenset(_REFERENCE.findall(json.dumps(self.kept))))
        instances = self.flow_run.instances
        out: dict[str, Any] = {
            "names": self.names,
            "last": [instance for instance in self.last if instance in instances],
        }
        out["after"] = {name: after for name, after in self.after.items() if name in instances}
        return out if self.kept is None else out | {"kept": self.kept}

    def settle_ends(self) -> None:
        """Report every task that has ended since to the function."""
        for name in list(self.ends):
            instance = self.flow_run.instances.get(name)
            if instance is not None and instance.ended:
                self._settle(instance, self.ends.pop(name))

    def _settle(self, instance: TaskInstance, end: asyncio.Future[Ended]) -> None:
        self.flow_run = take_end(self.flow_run, instance.id)
        before = self.after.get(instance.id, [])
        self.last = [name for name in self.last if name not in before] + [instance.id]
        if end.done():
            return
        pattern = self.flow_run.plan.tasks[instance.task].task.pattern
        if instance.state not in WELL:
            reason = instance.reason or f"it was {instance.state.value}"
            refuse(
                end,
                JobFailed(instance.id, reason, exit_code=instance.exit_code, bad=instance.bad, count=instance.count),
            )
            return
        if isinstance(pattern, AskPattern | AwaitPattern):
            end.set_result(Ended(instance.id, instance.state.value, dict(instance.outputs)))
            return
        assert isinstance(pattern, JobPattern)  # noqa: S101 - a function asks for nothing else
        outputs = Outputs(instance.id, tuple(pattern.outputs))
        counts = instance.well, instance.bad, instance.count
        self.hear(
            instance,
            Ended(instance.id, instance.state.value, instance.result, (), instance.exit_code, outputs, *counts),
            pattern,
            end,
        )


def refuse(end: asyncio.Future[Ended], error: JobFailed) -> None:
    end.set_exception(error)
    end.exception()  # checked when it is awaited, or when the function returns


def json_text(value: object, what: str, most: int) -> str:
    """A value as JSON; `FlowStopped` if it is not JSON or too large."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise FlowStopped(f"{what} is not of JSON types: {error}") from None
    if len(text) > most:
        raise FlowStopped(f"{what} has {len(text)} bytes as JSON, at most {most} are possible; put it into a file")
    return text
