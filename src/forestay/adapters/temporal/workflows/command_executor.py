"""Carries out the commands of a case: those of one round in their order, those of different rounds side by side.

What is not yet carried out is part of the state that a new run begins with, since every command may be repeated.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, WorkflowAlreadyStartedError

from forestay.adapters.temporal.workflows import temporal_runtime
from forestay.adapters.temporal.workflows.temporal_runtime import Plain
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.flows.commands import (
    AnswerVerb,
    BindWorklet,
    CancelTimer,
    CancelWork,
    CheckCase,
    Command,
    ContinueWork,
    FinishCase,
    GrowShard,
    HoldWork,
    ListFiles,
    Report,
    RunOutcome,
    SignalAncestors,
    StartCase,
    StartShard,
    StartTimer,
    StopWatch,
    SubmitJobs,
    UndoCase,
    WatchFiles,
)
from forestay.domain.flows.events import (
    CaseChecked,
    CaseEnded,
    Event,
    FilesAppeared,
    FilesListed,
    JobsAccepted,
    RoundHeld,
    Verb,
    VerbKind,
    WorkletBound,
    WorkRefused,
)
from forestay.domain.flows.execution.case_names import case_of, shard_of
from forestay.domain.flows.execution.flow_run import RunPhase
from forestay.domain.flows.execution.messages import as_plain, command_from_plain
from forestay.domain.flows.scatter.shard_run import ShardCancelled, ShardContinued, ShardGrew, ShardHeld

ITEM_PRE, CASE_POST = ExceptionType.ITEM_PRE.value, ExceptionType.CASE_POST.value
REPORTS = "reports"
"""The queue of reports; no round has this name, since those have an @ in them."""


class CommandExecutor:
    """What a case has still to carry out; what comes of it goes into the case's inbox."""

    def __init__(self, given: Plain, tie: Plain, tasks: temporal_runtime.WorkflowTasks, inbox: deque[Event]) -> None:
        self.given = given
        self.case: str = given["case"]
        self.tie = tie
        self.tasks = tasks
        self.inbox = inbox
        self.outbox: dict[str, list[Plain]] = {}
        self.orders: dict[str, Plain] = dict(given.get("orders", {}))
        """What is under way and looked after by the case itself: the order of each round, and whether its elements are cases."""
        self.said = given.get("said", 0)
        """Counts commands that need a name of their own."""
        self.carriers: set[str] = set()
        self.watches: dict[str, Plain] = dict(given.get("watches", {}))
        """The files that a round waits for: what was asked, since when, and how many are known."""
        self.watchers: dict[str, asyncio.Task[None]] = {}

    def resume(self) -> None:
        """Queue again what the last run had not carried out."""
        for work, commands in self.given.get("outbox", {}).items():
            for command in commands:
                self._queue(work, command)
        for work in self.watches:
            self.watchers[work] = self.tasks.spawn(self._watch(work))

    def take(self, command: Command) -> None:
        match command:
            case Report() | SignalAncestors() | CheckCase():
                self._queue(REPORTS, as_plain(command))
            case SubmitJobs(order) | StartCase(order):
                cases = isinstance(command, StartCase)
                self.orders[order.work] = {"order": as_plain(order), "cases": cases}
                self._queue(order.work, as_plain(command))
            case StartShard(order):
                self._queue(order.work, as_plain(command))
            case WatchFiles(work):
                self.watches[work] = {"command": as_plain(command), "begun": temporal_runtime.now(), "known": 0}
                self.watchers[work] = self.tasks.spawn(self._watch(work))
            case StopWatch(work):
                if self.watches.pop(work, None) is not None:
                    self.watchers.pop(work).cancel()
            case StartTimer() | CancelTimer() | AnswerVerb() | FinishCase():
                raise TypeError(f"{type(command).__name__} is not supported here")
            case _:
                self._queue(command.work, as_plain(command))

    def carried(self) -> Plain:
        watches = {"watches": self.watches} if self.watches else {}
        return {"outbox": self.outbox, "orders": self.orders, "said": self.said} | watches

    def _queue(self, work: str, command: Plain) -> None:
        if "said" not in command:
            self.said += 1
            command["said"] = self.said
        self.outbox.setdefault(work, []).append(command)
        if work not in self.carriers:
            self.carriers.add(work)
            self.tasks.spawn(self._carry_out(work))

    async def _carry_out(self, work: str) -> None:
        waiting = self.outbox[work]
        while waiting:
            plain = waiting[0]
            try:
                await self._do(command_from_plain(plain), plain["said"])
            except temporal_runtime.ActivityRefused as error:
                self.inbox.append(WorkRefused(temporal_runtime.now(), work, str(error)))
            except temporal_runtime.HeldBack as held:
                # What else was said of this round was about work that there is none of.
                del waiting[1:]
                self.orders.pop(work, None)
                self.inbox.append(RoundHeld(temporal_runtime.now(), work, held.incident, again=True))
            del waiting[0]
        del self.outbox[work]
        self.carriers.discard(work)

    async def _do(self, command: Command, said: int) -> None:
        match command:
            case SubmitJobs():
                await self._submit(command)
            case StartShard():
                await self._start_shard(command)
            case GrowShard(work, shard, count, open_):
                await temporal_runtime.tell(shard_of(self.case, work, shard), as_plain(ShardGrew(count, open_)))
            case StartCase():
                await self._start_case(command)
            case UndoCase():
                await self._undo_case(command)
            case CancelWork() | HoldWork() | ContinueWork():
                await self._steer(command, said)
            case BindWorklet(work, _, place, params):
                found = await temporal_runtime.do("bind_worklet", self.tie | {"place": place, "params": dict(params)})
                self.inbox.append(WorkletBound(temporal_runtime.now(), work, found["flow"], found["params"]))
            case ListFiles(work, _, dimension, pattern, lines):
                asked = self.tie | {"work": work, "dimension": dimension, "pattern": pattern, "lines": lines}
                found = await temporal_runtime.do("list_files", asked, seconds=600)
                self.inbox.append(
                    FilesListed(temporal_runtime.now(), work, dimension, found["listing"], found["count"])
                )
            case SignalAncestors(verb):
                # Of a worklet: the case for whose exception it was started.
                above = self.given.get("parent", {}).get("case") or self.given.get("worklet", {}).get("ancestor")
                if above:
                    await temporal_runtime.tell(above, {"type": "Verb", **verb})
            case CheckCase(outputs):
                asked = self.tie | {"kind": CASE_POST}
                held = ""
                if await temporal_runtime.ask("has_rules", asked):
                    held = await temporal_runtime.do("check_case", asked | {"outputs": dict(outputs), "times": said})
                self.inbox.append(CaseChecked(temporal_runtime.now(), held))
            case Report(id_, kind, item, detail):
                event = {"id": id_, "kind": kind, "item": item, "detail": detail, "at": temporal_runtime.now()}
                await temporal_runtime.do("report", self.tie | event)
            case _:
                raise TypeError(f"{type(command).__name__} is not supported here")

    async def _watch(self, work: str) -> None:
        """Hear of files as they appear. It goes on beside the round's other commands, which it brings about."""
        watch = self.watches[work]
        command = command_from_plain(watch["command"])
        assert isinstance(command, WatchFiles)  # noqa: S101 - nothing else is put there
        asked = self.tie | {"work": work, "dimension": command.dimension, "pattern": command.pattern}
        asked |= {"until_file": command.until_file, "until_count": command.until_count}
        asked |= {"until_quiet": command.until_quiet, "begun": watch["begun"]}
        while True:
            try:
                found = await temporal_runtime.wait_for("watch_files", asked | {"known": watch["known"]})
            except temporal_runtime.ActivityRefused as error:
                self.inbox.append(WorkRefused(temporal_runtime.now(), work, str(error)))
                break
            except ActivityError:
                if work in self.watches:
                    raise
                return
            if found["count"] > watch["known"] or found["ended"]:
                watch["known"] = found["count"]
                self.inbox.append(FilesAppeared(temporal_runtime.now(), work, command.dimension, **found))
            if found["ended"]:
                break
        self.watches.pop(work, None)
        self.watchers.pop(work, None)

    async def _submit(self, command: SubmitJobs) -> None:
        batch = self.tie | {"order": as_plain(command.order), "shard": -1, "base": 0}
        batch |= {"first": command.first, "count": command.count, "skip": f"{command.skip:x}"}
        waited_for = command.first + command.count - command.skip.bit_count() if command.wait else 0
        found = await temporal_runtime.do("submit_jobs", batch | {"holders": list(command.holders), "of": waited_for})
        if found and found.get("incident"):
            raise temporal_runtime.HeldBack(found["incident"])
        if not command.wait:
            self.inbox.append(JobsAccepted(temporal_runtime.now(), command.order.work))

    async def _start_shard(self, command: StartShard) -> None:
        order = command.order
        if self.given.get("checks") and command.shard == 0 and not order.checked and not order.undo:
            asked = self.tie | {"kind": ITEM_PRE, "task": order.task, "order": as_plain(order)}
            if await temporal_runtime.ask("has_rules", asked) and (
                held := await temporal_runtime.do("check_round", asked)
            ):
                raise temporal_runtime.HeldBack(held)
        start: Plain = {"first": command.first, "count": command.count, "skip": f"{command.skip:x}"}
        start |= {"holders": list(command.holders), "wait": command.wait, "open": command.open}
        given: Plain = {"tie": self.tie, "order": as_plain(command.order), "shard": command.shard}
        given |= {"limits": self.given["limits"], "start": start}
        name = shard_of(self.case, command.order.work, command.shard)
        await self._start_child(temporal_runtime.SHARD, name, given)

    async def _start_case(self, command: StartCase) -> None:
        work, index = command.order.work, command.index
        asked = self.tie | {"command": as_plain(command)}
        try:
            # Where a sub-flow that may go to other domains is started is chosen, and done, outside.
            found = await temporal_runtime.do("place_case" if command.domain else "prepare_case", asked)
        except temporal_runtime.ActivityRefused as error:
            self.inbox.append(CaseEnded(temporal_runtime.now(), work, index, well=False, reason=str(error)))
            return
        if found.get("incident"):
            raise temporal_runtime.HeldBack(found["incident"])
        if command.domain:
            return
        given: Plain = {name: self.given[name] for name in ("tenant", "owner", "limits")}
        given |= {name: self.given[name] for name in ("checks",) if name in self.given}
        if found.get("held"):
            given["held"] = found["held"]
        given |= {"case": case_of(self.case, work, index), "flow": found["flow"], "params": found["params"]}
        given |= {"parent": {"case": self.case, "work": work, "index": index}}
        given |= {"holders": list(command.holders), "above": self._above()}
        await self._start_child(temporal_runtime.CASE, given["case"], given, flow=found["name"], version=command.flow)

    async def _undo_case(self, command: UndoCase) -> None:
        """Run a sub-flow's case that completed once more, from its last state, to undo what it did. Its jobs know it by its id."""
        case = case_of(self.case, command.of, command.index)
        try:
            found = await temporal_runtime.do("last_state", self.tie | {"ended": case})
        except temporal_runtime.ActivityRefused as error:
            self.inbox.append(
                CaseEnded(temporal_runtime.now(), command.work, command.index, well=False, reason=str(error))
            )
            return
        if found["state"]["outcome"] == RunOutcome.UNDONE.value:
            self.inbox.append(CaseEnded(temporal_runtime.now(), command.work, command.index, well=True))
            return
        given: Plain = {name: self.given[name] for name in ("tenant", "owner", "limits")}
        given |= {"case": case, "flow": found["flow"], "undo": found["state"]}
        given |= {"parent": {"case": self.case, "work": command.work, "index": command.index}}
        given["above"] = self._above()
        version = found["state"]["version"]
        await self._start_child(temporal_runtime.CASE, case, given, again=True, flow=found["name"], version=version)

    def _above(self) -> list[str]:
        """The versions of the flows above a case that is started here."""
        return [self.tie["flow"], *self.tie.get("above", ())]

    async def _start_child(self, kind: str, name: str, given: Plain, *, again: bool = False, **attributes: str) -> None:
        """A child lives on whatever becomes of this run, and tells its end itself: no run of ours waits for it."""
        pairs: list[Any] = [
            temporal_runtime.TENANT.value_set(self.given["tenant"]),
            temporal_runtime.OWNER.value_set(self.given["owner"]),
        ]
        if attributes:
            pairs += [
                temporal_runtime.FLOW.value_set(attributes["flow"]),
                temporal_runtime.VERSION.value_set(attributes["version"]),
            ]
            pairs += [temporal_runtime.STANDING.value_set(RunPhase.RUNNING.value)]
        try:
            await workflow.start_child_workflow(
                kind,
                given,
                id=name,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE
                if again
                else WorkflowIDReusePolicy.REJECT_DUPLICATE,
                search_attributes=temporal_runtime.attributes(*pairs),
            )
        except WorkflowAlreadyStartedError:
            workflow.logger.info("%s had been started", name)

    async def _steer(self, command: CancelWork | HoldWork | ContinueWork, said: int) -> None:
        """Tell a round's jobs, sub-cases and shards."""
        verb = {CancelWork: "cancel", HoldWork: "hold", ContinueWork: "continue"}[type(command)]
        holder = "" if isinstance(command, CancelWork) else command.holder
        known = self.orders.get(command.work, {})
        if command.count and known.get("cases"):
            kind = {"cancel": VerbKind.FORCE_FAIL, "hold": VerbKind.SUSPEND, "continue": VerbKind.CONTINUE}[verb]
            if isinstance(command, CancelWork) and command.remove:
                kind = VerbKind.REMOVE
            name = f"{self.case}:{said}"
            order = Verb(
                temporal_runtime.now(), name, kind, by="parent", holder=holder, reason="by the case that started it"
            )
            targets = [case_of(self.case, command.work, index) for index in range(command.count)]
            await temporal_runtime.do("tell_many", {"targets": targets, "message": as_plain(order)}, seconds=600)
        elif command.count:
            batch = self.tie | {"order": {"work": command.work}, "first": 0, "count": command.count}
            await temporal_runtime.do("steer_jobs", batch | {"verb": verb, "holder": holder}, seconds=600)
        if command.shards:
            message = _for_shard(verb, holder)
            targets = [shard_of(self.case, command.work, shard) for shard in range(command.shards)]
            await temporal_runtime.do("tell_many", {"targets": targets, "message": as_plain(message)}, seconds=600)


def _for_shard(verb: str, holder: str) -> ShardCancelled | ShardHeld | ShardContinued:
    if verb == "cancel":
        return ShardCancelled()
    return ShardHeld(holder) if verb == "hold" else ShardContinued(holder)
