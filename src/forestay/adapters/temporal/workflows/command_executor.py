"""Executes the commands of a run: those of one round in order, those of different rounds concurrently.

Commands not yet carried out are part of the state with which a new run begins, since every command may be repeated.
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
    AskPerson,
    AwaitEvent,
    BindWorklet,
    CancelTimer,
    CancelWork,
    CheckRun,
    CloseQuestion,
    CloseWait,
    Command,
    ContinueWork,
    FeedShard,
    FindCompensation,
    FinishRun,
    FollowShard,
    GrowShard,
    HoldWork,
    ListFiles,
    Report,
    RunOutcome,
    SignalAncestors,
    StartRun,
    StartShard,
    StartTimer,
    StopWatch,
    SubmitJobs,
    UndoRun,
    WatchFiles,
)
from forestay.domain.flows.events import (
    CompensationFound,
    Event,
    FilesAppeared,
    FilesListed,
    JobsAccepted,
    JobsEnded,
    RoundHeld,
    RunChecked,
    RunEnded,
    Verb,
    VerbKind,
    WorkletBound,
    WorkRefused,
)
from forestay.domain.flows.execution.flow_run import RunPhase
from forestay.domain.flows.execution.messages import as_plain, command_from_plain, event_from_plain
from forestay.domain.flows.execution.run_names import run_of, shard_of
from forestay.domain.flows.scatter.elements import every, from_text
from forestay.domain.flows.scatter.shard_run import (
    ElementsReady,
    ShardCancelled,
    ShardContinued,
    ShardFollowed,
    ShardGrew,
    ShardHeld,
)

TASK_PRE, RUN_POST = ExceptionType.TASK_PRE.value, ExceptionType.RUN_POST.value
REPORTS = "reports"
"""The queue of reports; no round has this name, since those have an @ in them."""


class CommandExecutor:
    """The commands that a run has yet to carry out; their results go into the run's inbox."""

    def __init__(
        self, payload: Plain, flow_ref: Plain, tasks: temporal_runtime.WorkflowTasks, inbox: deque[Event]
    ) -> None:
        self.given = payload
        self.run: str = payload["run"]
        self.flow_ref = flow_ref
        self.tasks = tasks
        self.inbox = inbox
        self.outbox: dict[str, list[Plain]] = {}
        self.orders: dict[str, Plain] = dict(payload.get("orders", {}))
        """The rounds in progress that the run itself follows: the order of each, and whether its elements are runs."""
        self.said = payload.get("said", 0)
        """Counts commands that need a name of their own."""
        self.carriers: set[str] = set()
        self.watches: dict[str, Plain] = dict(payload.get("watches", {}))
        """The files that a round waits for: the request, since when, and how many are known."""
        self.watchers: dict[str, asyncio.Task[None]] = {}

    def resume(self) -> None:
        """Queue again the commands that the last run had not carried out."""
        for work, commands in self.given.get("outbox", {}).items():
            for command in commands:
                self._queue(work, command)
        for work in self.watches:
            self.watchers[work] = self.tasks.spawn(self._watch(work))

    def take(self, command: Command) -> None:
        match command:
            case Report() | SignalAncestors() | CheckRun():
                self._queue(REPORTS, as_plain(command))
            case SubmitJobs(order) | StartRun(order):
                runs = isinstance(command, StartRun)
                self.orders[order.work] = {"order": as_plain(order), "runs": runs}
                self._queue(order.work, as_plain(command))
            case StartShard(order):
                self._queue(order.work, as_plain(command))
            case WatchFiles(work):
                self.watches[work] = {"command": as_plain(command), "begun": temporal_runtime.now(), "known": 0}
                self.watchers[work] = self.tasks.spawn(self._watch(work))
            case StopWatch(work):
                if self.watches.pop(work, None) is not None:
                    self.watchers.pop(work).cancel()
            case StartTimer() | CancelTimer() | AnswerVerb() | FinishRun():
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
                # Further commands of this round concern work that does not exist.
                del waiting[1:]
                self.orders.pop(work, None)
                self.inbox.append(RoundHeld(temporal_runtime.now(), work, held.incident, again=True))
            del waiting[0]
        del self.outbox[work]
        self.carriers.discard(work)

    async def _do(self, command: Command, times: int) -> None:
        match command:
            case SubmitJobs():
                await self._submit(command)
            case StartShard():
                await self._start_shard(command)
            case GrowShard(work, shard, count, open_):
                await temporal_runtime.tell(shard_of(self.run, work, shard), as_plain(ShardGrew(count, open_)))
            case FeedShard(work, shard, ready, closed, works):
                message = ElementsReady(ready, closed, works)
                await temporal_runtime.tell(shard_of(self.run, work, shard), as_plain(message))
            case FollowShard(work, shard, of, at):
                await workflow.wait_condition(lambda: not self._starts_shards(of))
                await temporal_runtime.tell(shard_of(self.run, of, at), as_plain(ShardFollowed(work, shard)))
            case StartRun():
                await self._start_run(command)
            case UndoRun():
                await self._undo_run(command)
            case CancelWork() | HoldWork() | ContinueWork():
                await self._steer(command, times)
            case BindWorklet(work, _, place, params):
                binding = await temporal_runtime.do(
                    "bind_worklet", self.flow_ref | {"late_bound": place, "params": dict(params)}
                )
                self.inbox.append(WorkletBound(temporal_runtime.now(), work, binding["flow"], binding["params"]))
            case FindCompensation(_, number, action):
                known = await temporal_runtime.ask("find_compensation", self.flow_ref | {"action": action})
                self.inbox.append(CompensationFound(temporal_runtime.now(), number, known["version"], known["tries"]))
            case AskPerson():
                await temporal_runtime.do("ask_person", self.flow_ref | {"question": as_plain(command)})
            case CloseQuestion():
                await temporal_runtime.do("close_question", self.flow_ref | {"closed": as_plain(command)})
            case AwaitEvent(work, name, key):
                asked = self.flow_ref | {"work": work, "event": name, "key": key}
                arrived = await temporal_runtime.do("await_event", asked)
                if arrived:
                    self.inbox.append(event_from_plain({**arrived, "at": temporal_runtime.now(), "work": work}))
            case CloseWait(work, name, key):
                asked = self.flow_ref | {"work": work, "event": name, "key": key}
                await temporal_runtime.do("close_wait", asked)
            case ListFiles(work, _, dimension, pattern, lines):
                asked = self.flow_ref | {"work": work, "dimension": dimension, "pattern": pattern, "lines": lines}
                listing = await temporal_runtime.do("list_files", asked, seconds=600)
                self.inbox.append(
                    FilesListed(temporal_runtime.now(), work, dimension, listing["listing"], listing["count"])
                )
            case SignalAncestors(verb):
                # Of a worklet: the run for whose exception it was started.
                above = self.given.get("parent", {}).get("run") or self.given.get("worklet", {}).get("ancestor")
                if above:
                    await temporal_runtime.tell(above, {"type": "Verb", **verb})
            case CheckRun(outputs):
                asked = self.flow_ref | {"kind": RUN_POST}
                held = ""
                if await temporal_runtime.ask("has_rules", asked):
                    held = await temporal_runtime.do("check_run", asked | {"outputs": dict(outputs), "times": times})
                self.inbox.append(RunChecked(temporal_runtime.now(), held))
            case Report(id_, kind, instance, detail):
                event = {"id": id_, "kind": kind, "task": instance, "detail": detail, "at": temporal_runtime.now()}
                await temporal_runtime.do("report", self.flow_ref | event)
            case _:
                raise TypeError(f"{type(command).__name__} is not supported here")

    async def _watch(self, work: str) -> None:
        """Watch for files as they appear, concurrently with the round's other commands, which it causes."""
        watch = self.watches[work]
        command = command_from_plain(watch["command"])
        assert isinstance(command, WatchFiles)  # noqa: S101 - nothing else is put there
        asked = self.flow_ref | {"work": work, "dimension": command.dimension, "pattern": command.pattern}
        asked |= {"until_file": command.until_file, "until_count": command.until_count}
        asked |= {"until_quiet": command.until_quiet, "begun": watch["begun"]}
        while True:
            try:
                listing = await temporal_runtime.wait_for("watch_files", asked | {"known": watch["known"]})
            except temporal_runtime.ActivityRefused as error:
                self.inbox.append(WorkRefused(temporal_runtime.now(), work, str(error)))
                break
            except ActivityError:
                if work in self.watches:
                    raise
                return
            if listing["count"] > watch["known"] or listing["ended"]:
                watch["known"] = listing["count"]
                self.inbox.append(FilesAppeared(temporal_runtime.now(), work, command.dimension, **listing))
            if listing["ended"]:
                break
        self.watches.pop(work, None)
        self.watchers.pop(work, None)

    async def _submit(self, command: SubmitJobs) -> None:
        batch = self.flow_ref | {"order": as_plain(command.order), "shard": -1, "base": 0}
        batch |= {"first": command.first, "count": command.count, "skip": f"{command.skip:x}"}
        waited_for = command.first + command.count - command.skip.bit_count() if command.wait else 0
        batch |= {"holders": list(command.holders), "of": command.of or waited_for}
        try:
            submission = await temporal_runtime.do("submit_jobs", batch)
        except temporal_runtime.ActivityRefused as error:
            if not command.of:
                raise
            submission = {"bad": f"{every(command.count) & ~command.skip:x}", "reason": str(error)}
        if submission and submission.get("incident"):
            raise temporal_runtime.HeldBack(submission["incident"])
        if submission and submission.get("bad"):
            # When elements become ready one by one, those that can never be created must not block the others.
            bad = from_text(submission["bad"]) << command.first
            work = command.order.work
            self.inbox.append(JobsEnded(temporal_runtime.now(), work, bad=bad, reason=submission["reason"]))
        if not command.wait:
            self.inbox.append(JobsAccepted(temporal_runtime.now(), command.order.work))

    async def _start_shard(self, command: StartShard) -> None:
        order = command.order
        if self.given.get("checks") and command.shard == 0 and not order.checked and not order.undo:
            asked = self.flow_ref | {"kind": TASK_PRE, "task": order.task, "order": as_plain(order)}
            if await temporal_runtime.ask("has_rules", asked) and (
                held := await temporal_runtime.do("check_round", asked)
            ):
                raise temporal_runtime.HeldBack(held)
        start: Plain = {"first": command.first, "count": command.count, "skip": f"{command.skip:x}"}
        start |= {"holders": list(command.holders), "wait": command.wait, "open": command.open}
        if command.streams:
            start["streams"] = True
        fields: Plain = {"flow_ref": self.flow_ref, "order": as_plain(command.order), "shard": command.shard}
        fields |= {"limits": self.given["limits"], "start": start}
        name = shard_of(self.run, command.order.work, command.shard)
        await self._start_child(temporal_runtime.SHARD, name, fields)

    def _starts_shards(self, work: str) -> bool:
        """Whether shards of a round have yet to be started."""
        return any(command["type"] == StartShard.__name__ for command in self.outbox.get(work, ()))

    async def _start_run(self, command: StartRun) -> None:
        work, index = command.order.work, command.index
        asked = self.flow_ref | {"command": as_plain(command)}
        try:
            # For a sub-flow that may run in other domains, an activity chooses the domain and starts it.
            prepared = await temporal_runtime.do("place_run" if command.domain else "prepare_run", asked)
        except temporal_runtime.ActivityRefused as error:
            self.inbox.append(RunEnded(temporal_runtime.now(), work, index, well=False, reason=str(error)))
            return
        if prepared.get("incident"):
            raise temporal_runtime.HeldBack(prepared["incident"])
        if command.domain:
            return
        fields: Plain = {name: self.given[name] for name in ("tenant", "owner", "limits")}
        fields |= {name: self.given[name] for name in ("checks", "streams", "library") if name in self.given}
        if prepared.get("held"):
            fields["held"] = prepared["held"]
        fields |= {"run": run_of(self.run, work, index), "flow": prepared["flow"], "params": prepared["params"]}
        fields |= {"parent": {"run": self.run, "work": work, "index": index}}
        fields |= {"holders": list(command.holders), "above": self._above()}
        await self._start_child(
            temporal_runtime.RUN, fields["run"], fields, flow=prepared["name"], version=command.flow
        )

    async def _undo_run(self, command: UndoRun) -> None:
        """Run a completed sub-flow again, from its last state, to undo its effects. Its jobs know it by its id."""
        run = run_of(self.run, command.of, command.index)
        try:
            state = await temporal_runtime.do("last_state", self.flow_ref | {"ended": run})
        except temporal_runtime.ActivityRefused as error:
            self.inbox.append(
                RunEnded(temporal_runtime.now(), command.work, command.index, well=False, reason=str(error))
            )
            return
        if state["state"]["outcome"] == RunOutcome.UNDONE.value:
            self.inbox.append(RunEnded(temporal_runtime.now(), command.work, command.index, well=True))
            return
        above: Plain = {name: self.given[name] for name in ("tenant", "owner", "limits")}
        above |= {"run": run, "flow": state["flow"], "undo": state["state"]}
        above |= {"parent": {"run": self.run, "work": command.work, "index": command.index}}
        above["above"] = self._above()
        version = state["state"]["version"]
        await self._start_child(temporal_runtime.RUN, run, above, again=True, flow=state["name"], version=version)

    def _above(self) -> list[str]:
        """The versions of the flows above a run that is started here."""
        return [self.flow_ref["flow"], *self.flow_ref.get("above", ())]

    async def _start_child(
        self, kind: str, name: str, payload: Plain, *, again: bool = False, **attributes: str
    ) -> None:
        """Start a child, which continues whatever happens to this run, and reports its end itself: no run waits for it."""
        pairs: list[Any] = [
            temporal_runtime.TENANT.value_set(self.given["tenant"]),
            temporal_runtime.OWNER.value_set(self.given["owner"]),
        ]
        if attributes:
            pairs += [
                temporal_runtime.FLOW.value_set(attributes["flow"]),
                temporal_runtime.VERSION.value_set(attributes["version"]),
            ]
            pairs += [temporal_runtime.STATUS.value_set(RunPhase.RUNNING.value)]
        try:
            await workflow.start_child_workflow(
                kind,
                payload,
                id=name,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE
                if again
                else WorkflowIDReusePolicy.REJECT_DUPLICATE,
                search_attributes=temporal_runtime.attributes(*pairs),
            )
        except WorkflowAlreadyStartedError:
            workflow.logger.info("%s had been started", name)

    async def _steer(self, command: CancelWork | HoldWork | ContinueWork, order_data: int) -> None:
        """Tell a round's jobs, sub-runs and shards."""
        verb = {CancelWork: "cancel", HoldWork: "hold", ContinueWork: "continue"}[type(command)]
        holder = "" if isinstance(command, CancelWork) else command.holder
        known = self.orders.get(command.work, {})
        if command.count and known.get("runs"):
            kind = {"cancel": VerbKind.FORCE_FAIL, "hold": VerbKind.SUSPEND, "continue": VerbKind.CONTINUE}[verb]
            if isinstance(command, CancelWork) and command.remove:
                kind = VerbKind.REMOVE
            name = f"{self.run}:{order_data}"
            order = Verb(
                temporal_runtime.now(), name, kind, by="parent", holder=holder, reason="by the run that started it"
            )
            targets = [run_of(self.run, command.work, index) for index in range(command.count)]
            await temporal_runtime.do("tell_many", {"targets": targets, "message": as_plain(order)}, seconds=600)
        elif command.count:
            batch = self.flow_ref | {"order": {"work": command.work}, "first": 0, "count": command.count}
            await temporal_runtime.do("steer_jobs", batch | {"verb": verb, "holder": holder}, seconds=600)
        if command.shards:
            message = _for_shard(verb, holder)
            targets = [shard_of(self.run, command.work, shard) for shard in range(command.shards)]
            await temporal_runtime.do("tell_many", {"targets": targets, "message": as_plain(message)}, seconds=600)


def _for_shard(verb: str, holder: str) -> ShardCancelled | ShardHeld | ShardContinued:
    if verb == "cancel":
        return ShardCancelled()
    return ShardHeld(holder) if verb == "hold" else ShardContinued(holder)
