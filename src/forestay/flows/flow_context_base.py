"""The part of a run that its function uses: names of tasks, started tasks, and their results.

The executor of a run adds the rest: it carries out commands, receives events, and knows the time.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from forestay.domain.flows.commands import Command
from forestay.domain.flows.definition.flow import Task
from forestay.domain.flows.definition.flow_pattern import AskPattern, AwaitPattern, JobPattern
from forestay.domain.flows.execution.flow_run import FlowRun, TaskInstance
from forestay.domain.flows.execution.grown import WELL, add_task, forget_ended, grown_tasks, take_end
from forestay.domain.flows.execution.grown_resumption import (
    REFERENCE,
    FormerTask,
    RememberedCall,
    call_key,
    digest,
    is_external,
    refers_to,
)
from forestay.flows.flow_context import BRANCH, PendingWork
from forestay.flows.results import Ended, JobFailed, Outputs

MAX_STATE = 262_144
"""Bytes of JSON of a checkpoint's state."""
REPEATS = "its external effects may happen a second time"


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
        self.origin: dict[str, Any] = arguments.get("origin") or {"last": list(self.last), "kept": self.kept}
        """From where the function was last started: a resumed run starts it there."""
        self.calls: dict[str, RememberedCall] = {
            name: RememberedCall(*call) for name, *call in arguments.get("calls", ())
        }
        """The tasks begun since then."""
        self.blamed: list[str] = list(arguments.get("blamed", ()))
        """The tasks whose failures ended the function."""
        self.former: list[FormerTask] = [FormerTask.from_plain(plain) for plain in arguments.get("former", ())]
        """In a resumed run: the tasks of the run as it ended that the function has not called again."""
        self.forks = int(arguments.get("forks", 0))

    @abstractmethod
    def moment(self) -> int:
        """The time in milliseconds."""

    @abstractmethod
    def owner(self) -> str:
        """Who started the run."""

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

    def fork(self) -> int:
        self.forks += 1
        return self.forks

    def begin(self, task: Task, wanted: str = "") -> PendingWork:
        wanted = wanted or task.name
        former = self._former(wanted, task) if self.former else None
        instance = None
        if former is not None:
            self._give_back(wanted, task.name)
            task, instance = replace(task, name=former.name), former.instance
        elif self._repeats(wanted, task):
            instance = TaskInstance(task.name, task.name, holders=(self.owner(),), reason=REPEATS)
        end: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        work = PendingWork(task.name, end)
        self.works.append(work)
        self.ends[task.name] = end
        self.after[task.name] = list(self.last)
        self.calls[task.name] = RememberedCall(wanted, BRANCH.get())
        if former is not None and not former.again:
            self.after[task.name] = list(former.after)
            self.calls[task.name] = RememberedCall(wanted, BRANCH.get(), former.result)
        self.flow_run, commands = add_task(self.flow_run, task, self.moment(), instance)
        self.perform(commands)
        self.settle_ends()
        return work

    def _former(self, wanted: str, task: Task) -> FormerTask | None:
        """Take the task that this call was before the run ended."""
        key = call_key(wanted, task)
        found = next((each for each in self.former if each.key == key), None)
        if found is not None:
            self.former.remove(found)
        return found

    def _repeats(self, wanted: str, task: Task) -> bool:
        """Whether a call says something else than before where external effects have happened, of which nobody was told when the run was resumed."""
        return is_external(task) and any(
            each.wanted == wanted and each.external and not each.again and each.instance.round for each in self.former
        )

    def _give_back(self, wanted: str, name: str) -> None:
        """A name that was given is not used."""
        if name != wanted:
            del self.names[name]
        self.names[wanted] -= 1

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
            self.flow_run = forget_ended(self.flow_run, frozenset(REFERENCE.findall(json.dumps(self.kept))))
        instances = self.flow_run.instances
        out: dict[str, Any] = {
            "names": self.names,
            "last": [instance for instance in self.last if instance in instances],
        }
        out["after"] = {name: after for name, after in self.after.items() if name in instances}
        out |= {"forks": self.forks, "former": [former.as_plain() for former in self.former]}
        if not self.flow_run.open:
            calls = [[name, *call] for name, call in self.calls.items()]
            out |= {"origin": self.origin, "calls": calls, "blamed": self.unhandled()}
        return out if self.kept is None else out | {"kept": self.kept}

    def unhandled(self) -> list[str]:
        """The tasks whose failures ended the function, or reached it too late."""
        instances = self.flow_run.instances
        unheard = [work.name for work in self.works if not work.awaited and instances[work.name].state not in WELL]
        return sorted({*self.blamed, *unheard})

    def blame(self, error: BaseException) -> None:
        """The function ended with this: whatever it came from, and what `gather` put aside for it, was not handled."""
        waiting: list[BaseException | None] = [error]
        seen: list[BaseException] = []
        while waiting:
            one = waiting.pop()
            if one is not None and all(one is not other for other in seen):
                seen.append(one)
                inner = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
                waiting += [one.__cause__, one.__context__, *inner]
        self.blamed = sorted({each.task for each in seen if isinstance(each, JobFailed)})

    def resumption(self) -> dict[str, Any]:
        """What a resumed run needs besides the state."""
        former = [*self._begun(), *self.former]
        again = {each.name for each in former}
        earlier = {name: kept for name, kept in self.flow_run.instances.items() if name not in again}
        out = self.origin | {"names": self.names, "forks": self.forks}
        out["tasks"] = json.dumps(grown_tasks(replace(self.flow_run, instances=earlier)))
        return out | {"former": [each.as_plain() for each in former]}

    def _begun(self) -> Iterator[FormerTask]:
        """What the function began, as a resumed run may find it again."""
        unhandled = self.unhandled()
        for name, call in self.calls.items():
            if name in self.flow_run.instances:
                task = self.flow_run.plan.tasks[name].task
                yield FormerTask(
                    instance=self.flow_run.instances[name],
                    wanted=call.wanted,
                    key=call_key(call.wanted, task),
                    after=tuple(self.after.get(name, ())),
                    branch=call.branch,
                    refers=refers_to(task),
                    result=call.result,
                    external=is_external(task),
                    blamed=name in unhandled,
                )

    def note_result(self, name: str, result: object) -> None:
        """Remember which result the function is given."""
        self.calls[name] = self.calls[name]._replace(result=digest(result))

    def settle_ends(self) -> None:
        """Report every task that has ended since to the function."""
        for name in list(self.ends):
            instance = self.flow_run.instances.get(name)
            if instance is not None and instance.ended:
                self._settle(instance, self.ends.pop(name))

    def _settle(self, instance: TaskInstance, end: asyncio.Future[Ended]) -> None:
        if instance.result is not None:
            self.note_result(instance.id, instance.result)
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
