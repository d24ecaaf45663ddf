"""A case as a workflow: a thin loop around `advance`.

Events wait in the inbox and are taken in one after the other. Commands of one round are carried out in their order, those of different rounds side by
side; what is not yet carried out is part of the state that a new run begins with, since every command may be repeated. So a run may continue as new
between any two events.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from holdfast.adapters.temporal.workflows import outside
from holdfast.adapters.temporal.workflows.outside import Plain
from holdfast.domain.flows.advance import advance, start_run, undo_run
from holdfast.domain.flows.case_names import case_of, shard_of
from holdfast.domain.flows.commands import (
    AnswerVerb,
    BindWorklet,
    CancelTimer,
    CancelWork,
    Command,
    ContinueWork,
    FinishCase,
    GrowShard,
    HoldWork,
    ListFiles,
    Outcome,
    Report,
    SignalAncestors,
    StartCase,
    StartShard,
    StartTimer,
    StopWatch,
    SubmitJobs,
    UndoCase,
    WatchFiles,
)
from holdfast.domain.flows.elements import every
from holdfast.domain.flows.events import (
    CaseEnded,
    Event,
    FilesListed,
    JobsAccepted,
    JobsEnded,
    TimerFired,
    Verb,
    VerbKind,
    WorkletBound,
    WorkRefused,
)
from holdfast.domain.flows.flow_run import FlowRun, Phase, fan_of
from holdfast.domain.flows.flow_version import flow_from_plain, planned
from holdfast.domain.flows.messages import as_plain, command_from_plain, event_from_plain
from holdfast.domain.flows.shard_run import ShardCancelled, ShardContinued, ShardGrew, ShardHeld

REPORTS = "reports"
"""The queue of reports; no round has this name, since those have an @ in them."""
CARRIED = ("run", "outbox", "timers", "orders", "said", "inbox", "finish")


@workflow.defn(name=outside.CASE)
class CaseWorkflow:
    """Its argument: ``case``, ``tenant``, ``owner``, ``flow`` (its plain form as text), ``params``, ``limits``, of a sub-flow ``parent``; continued, the state too."""

    @workflow.init
    def __init__(self, given: Plain) -> None:
        self.given = given
        plan = planned(flow_from_plain(json.loads(given["flow"])))
        self.inbox: deque[Event] = deque(event_from_plain(one) for one in given.get("inbox", ()))
        self.outbox: dict[str, list[Plain]] = {}
        self.timers: dict[str, int] = dict(given.get("timers", {}))
        self.orders: dict[str, Plain] = dict(given.get("orders", {}))
        """What is under way and looked after by the case itself: the order of each round, and whether its elements are cases."""
        self.said = given.get("said", 0)
        """Counts commands that need a name of their own."""
        self.answers: dict[str, AnswerVerb] = {}
        self.tasks = outside.Tasks()
        self.carriers: set[str] = set()
        self.sleepers: dict[str, asyncio.Task[None]] = {}
        self.finish: FinishCase | None = None
        """Known as soon as the case has finished; what it still has to say goes out first, perhaps in a later run."""
        if "finish" in given:
            finish = command_from_plain(given["finish"])
            assert isinstance(finish, FinishCase)  # noqa: S101 - nothing else is put there
            self.finish = finish
        self.news = 0
        self.standing = ""
        self.tie: Plain = {name: given[name] for name in ("case", "tenant", "owner")} | {"flow": plan.version}
        if "run" in given:
            self.flow_run = FlowRun.from_plain(plan, given["run"])
            self.standing = given["standing"]
            self.first: tuple[Command, ...] = ()
        elif "undo" in given:
            self.flow_run, self.first = undo_run(FlowRun.from_plain(plan, given["undo"]), at=outside.now())
        else:
            self.flow_run, self.first = start_run(
                plan, case=given["case"], at=outside.now(), params=given.get("params", {})
            )
            for holder in given.get("holders", ()):
                verb = Verb(outside.now(), f"start:{holder}", VerbKind.SUSPEND, by=holder, holder=holder)
                self.inbox.append(verb)

    @workflow.run
    async def run(self, given: Plain) -> Plain:
        for work, commands in given.get("outbox", {}).items():
            for command in commands:
                self._queue(work, command)
        for timer, at in list(self.timers.items()):
            self._sleep(timer, at)
        self._perform(self.first)
        limits = given["limits"]
        self.tasks.spawn(self._look(limits["look"]))
        while True:
            self.tasks.check()
            while self.inbox:
                self._take(self.inbox.popleft())
            self._show_standing()
            if self.finish is not None and not self.outbox and workflow.all_handlers_finished():
                break
            if outside.too_long(limits["history"]) and workflow.all_handlers_finished():
                workflow.continue_as_new(self._carried())
            await workflow.wait_condition(lambda: self._something_to_do(limits["history"]))
        self.tasks.stop()
        await self._tell_parent(self.finish)
        return {
            "outcome": self.finish.outcome.value,
            "outputs": dict(self.finish.outputs),
            "reason": self.finish.reason,
        }

    # What comes in

    @workflow.signal(name=outside.MESSAGES)
    def messages(self, plain: list[Plain]) -> None:
        """Ends of jobs, shards and sub-cases; verbs that a sub-case hands on."""
        self.news += 1
        self.inbox.extend(event_from_plain(one) for one in plain)

    @workflow.update(name=outside.VERB)
    async def verb(self, plain: Plain) -> Plain:
        """Obey a verb, and say what became of it."""
        verb = event_from_plain(plain)
        assert isinstance(verb, Verb)  # noqa: S101 - the port sends nothing else
        self.answers.pop(verb.id, None)
        self.inbox.append(verb)
        await workflow.wait_condition(lambda: verb.id in self.answers)
        return as_plain(self.answers[verb.id])

    @workflow.query(name=outside.STATE)
    def state(self) -> Plain:
        return self.flow_run.as_plain()

    def _something_to_do(self, limit: int) -> bool:
        if self.inbox or self.tasks.error is not None:
            return True
        done = self.finish is not None and not self.outbox
        return (done or outside.too_long(limit)) and workflow.all_handlers_finished()

    def _take(self, event: Event) -> None:
        self.flow_run, commands = advance(self.flow_run, event)
        self._perform(commands)
        if isinstance(event, JobsEnded | CaseEnded | WorkRefused):
            self._forget_ended()

    def _forget_ended(self) -> None:
        for work in [work for work in self.orders if not self._waits_for(work)]:
            del self.orders[work]

    def _waits_for(self, work: str) -> bool:
        fan = fan_of(self.flow_run.items, self.flow_run.stack, work)
        return fan is not None and not fan.finished

    def _carried(self) -> Plain:
        constant = {name: value for name, value in self.given.items() if name not in CARRIED}
        if self.finish is not None:
            constant["finish"] = as_plain(self.finish)
        return constant | {
            "run": self.flow_run.as_plain(),
            "outbox": self.outbox,
            "timers": self.timers,
            "orders": self.orders,
            "said": self.said,
            "standing": self.standing,
            "inbox": [as_plain(event) for event in self.inbox],
        }

    # What goes out

    def _perform(self, commands: tuple[Command, ...]) -> None:
        for command in commands:
            match command:
                case StartTimer(timer, at):
                    self._sleep(timer, at)
                case CancelTimer(timer):
                    self.timers.pop(timer, None)
                    if timer in self.sleepers:
                        self.sleepers.pop(timer).cancel()
                case AnswerVerb(verb):
                    self.answers[verb] = command
                case FinishCase():
                    self.finish = command
                case Report() | SignalAncestors():
                    self._queue(REPORTS, as_plain(command))
                case SubmitJobs(order) | StartCase(order):
                    cases = isinstance(command, StartCase)
                    self.orders[order.work] = {"order": as_plain(order), "cases": cases}
                    self._queue(order.work, as_plain(command))
                case StartShard(order):
                    self._queue(order.work, as_plain(command))
                case _:
                    self._queue(command.work, as_plain(command))

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
            except outside.Refused as error:
                self.inbox.append(WorkRefused(outside.now(), work, str(error)))
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
                await outside.tell(shard_of(self.flow_run.case, work, shard), as_plain(ShardGrew(count, open_)))
            case StartCase():
                await self._start_case(command)
            case UndoCase():
                await self._undo_case(command)
            case CancelWork() | HoldWork() | ContinueWork():
                await self._steer(command, said)
            case BindWorklet(work, _, place, params):
                found = await outside.do("bind_worklet", self.tie | {"place": place, "params": dict(params)})
                self.inbox.append(WorkletBound(outside.now(), work, found["flow"], found["params"]))
            case ListFiles(work, _, dimension, pattern, lines):
                asked = self.tie | {"work": work, "dimension": dimension, "pattern": pattern, "lines": lines}
                found = await outside.do("list_files", asked, seconds=600)
                self.inbox.append(FilesListed(outside.now(), work, dimension, found["listing"], found["count"]))
            case WatchFiles():
                raise outside.Refused("files are not watched yet")
            case StopWatch():
                pass
            case SignalAncestors(verb):
                parent = self.given.get("parent")
                if parent is not None:
                    await outside.tell(parent["case"], {"type": "Verb", **verb})
            case Report(id_, kind, item, detail):
                event = {"id": id_, "kind": kind, "item": item, "detail": detail, "at": outside.now()}
                await outside.do("report", self.tie | event)
            case _:
                raise TypeError(f"{type(command).__name__} is not carried out here")

    async def _submit(self, command: SubmitJobs) -> None:
        batch = self.tie | {"order": as_plain(command.order), "shard": -1, "base": 0}
        batch |= {"first": command.first, "count": command.count, "skip": f"{command.skip:x}"}
        waited_for = command.first + command.count - command.skip.bit_count() if command.wait else 0
        await outside.do("submit_jobs", batch | {"holders": list(command.holders), "of": waited_for})
        if not command.wait:
            self.inbox.append(JobsAccepted(outside.now(), command.order.work))

    async def _start_shard(self, command: StartShard) -> None:
        start: Plain = {"first": command.first, "count": command.count, "skip": f"{command.skip:x}"}
        start |= {"holders": list(command.holders), "wait": command.wait, "open": command.open}
        given: Plain = {"tie": self.tie, "order": as_plain(command.order), "shard": command.shard}
        given |= {"limits": self.given["limits"], "start": start}
        name = shard_of(self.flow_run.case, command.order.work, command.shard)
        await self._start_child(outside.SHARD, name, given)

    async def _start_case(self, command: StartCase) -> None:
        work, index = command.order.work, command.index
        asked = self.tie | {"command": as_plain(command)}
        try:
            found = await outside.do("prepare_case", asked)
        except outside.Refused as error:
            self.inbox.append(CaseEnded(outside.now(), work, index, well=False, reason=str(error)))
            return
        given: Plain = {name: self.given[name] for name in ("tenant", "owner", "limits")}
        given |= {"case": case_of(self.flow_run.case, work, index), "flow": found["flow"], "params": found["params"]}
        given |= {"parent": {"case": self.flow_run.case, "work": work, "index": index}}
        given |= {"holders": list(command.holders)}
        await self._start_child(outside.CASE, given["case"], given, flow=found["name"], version=command.flow)

    async def _undo_case(self, command: UndoCase) -> None:
        """Run a sub-flow's case that completed once more, from its last state, to undo what it did. Its jobs know it by its id."""
        case = case_of(self.flow_run.case, command.of, command.index)
        try:
            found = await outside.do("last_state", self.tie | {"ended": case})
        except outside.Refused as error:
            self.inbox.append(CaseEnded(outside.now(), command.work, command.index, well=False, reason=str(error)))
            return
        if found["state"]["outcome"] == Outcome.UNDONE.value:
            self.inbox.append(CaseEnded(outside.now(), command.work, command.index, well=True))
            return
        given: Plain = {name: self.given[name] for name in ("tenant", "owner", "limits")}
        given |= {"case": case, "flow": found["flow"], "undo": found["state"]}
        given |= {"parent": {"case": self.flow_run.case, "work": command.work, "index": command.index}}
        version = found["state"]["version"]
        await self._start_child(outside.CASE, case, given, again=True, flow=found["name"], version=version)

    async def _start_child(self, kind: str, name: str, given: Plain, *, again: bool = False, **attributes: str) -> None:
        """A child lives on whatever becomes of this run, and tells its end itself: no run of ours waits for it."""
        pairs: list[Any] = [
            outside.TENANT.value_set(self.given["tenant"]),
            outside.OWNER.value_set(self.given["owner"]),
        ]
        if attributes:
            pairs += [outside.FLOW.value_set(attributes["flow"]), outside.VERSION.value_set(attributes["version"])]
            pairs += [outside.STANDING.value_set(Phase.RUNNING.value)]
        try:
            await workflow.start_child_workflow(
                kind,
                given,
                id=name,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE
                if again
                else WorkflowIDReusePolicy.REJECT_DUPLICATE,
                search_attributes=outside.attributes(*pairs),
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
            name = f"{self.flow_run.case}:{said}"
            order = Verb(outside.now(), name, kind, by="parent", holder=holder, reason="by the case that started it")
            targets = [case_of(self.flow_run.case, command.work, index) for index in range(command.count)]
            await outside.do("tell_many", {"targets": targets, "message": as_plain(order)}, seconds=600)
        elif command.count:
            batch = self.tie | {"order": {"work": command.work}, "first": 0, "count": command.count}
            await outside.do("steer_jobs", batch | {"verb": verb, "holder": holder}, seconds=600)
        if command.shards:
            message = _for_shard(verb, holder)
            targets = [shard_of(self.flow_run.case, command.work, shard) for shard in range(command.shards)]
            await outside.do("tell_many", {"targets": targets, "message": as_plain(message)}, seconds=600)

    async def _tell_parent(self, finish: FinishCase) -> None:
        parent = self.given.get("parent")
        if parent is None:
            return
        well = finish.outcome in (Outcome.COMPLETED, Outcome.FORCED_COMPLETE, Outcome.UNDONE)
        reason = finish.reason or ("" if well else f"its case was {finish.outcome.value}")
        ended = CaseEnded(outside.now(), parent["work"], parent["index"], well, finish.outputs, reason, finish.left)
        await outside.tell(parent["case"], as_plain(ended))

    # Time

    def _sleep(self, timer: str, at: int) -> None:
        self.timers[timer] = at
        if timer in self.sleepers:
            self.sleepers.pop(timer).cancel()
        self.sleepers[timer] = self.tasks.spawn(self._ring(timer, at))

    async def _ring(self, timer: str, at: int) -> None:
        await asyncio.sleep(max(0.0, (at - outside.now()) / 1000))
        self.timers.pop(timer, None)
        self.sleepers.pop(timer, None)
        self.inbox.append(TimerFired(outside.now(), timer))

    async def _look(self, seconds: float) -> None:
        """Anti-entropy, for the jobs that the case looks after itself."""
        while True:
            news = self.news
            await asyncio.sleep(seconds)
            if self.news != news or self.outbox:
                continue
            seconds = min(2 * seconds, outside.LAST_LOOK)
            for work, known in list(self.orders.items()):
                if known["cases"] or not self._waits_for(work):
                    continue
                batch = self.tie | {"order": known["order"], "shard": -1, "base": 0} | self._own(work)
                found = await outside.do("check_jobs", batch, seconds=600)
                self.inbox.append(event_from_plain({**found, "type": "JobsEnded", "at": outside.now(), "work": work}))

    def _own(self, work: str) -> Plain:
        """The elements of a round that the case looks after, as they are known here."""
        fan = fan_of(self.flow_run.items, self.flow_run.stack, work)
        own = fan.own if fan is not None else None
        if own is None:
            return {"first": 0, "count": 0, "ended": "0", "of": 0, "holders": [], "cancelled": False}
        waited_for = (every(own.count) & ~own.skipped).bit_count()
        out: Plain = {"first": 0, "count": own.submitted, "ended": f"{own.ended:x}", "of": waited_for}
        return out | {"holders": list(own.holders), "cancelled": own.cancelled}

    def _show_standing(self) -> None:
        """Keep the case's state searchable; one event each time it changes."""
        run = self.flow_run
        standing = run.outcome.value if run.outcome else "suspended" if run.holders else run.phase.value
        if standing != self.standing:
            if self.standing or standing != Phase.RUNNING.value:
                workflow.upsert_search_attributes([outside.STANDING.value_set(standing)])
            self.standing = standing


def _for_shard(verb: str, holder: str) -> ShardCancelled | ShardHeld | ShardContinued:
    if verb == "cancel":
        return ShardCancelled()
    return ShardHeld(holder) if verb == "hold" else ShardContinued(holder)
