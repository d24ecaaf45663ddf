"""A case as a workflow: a thin loop around `advance`.

Events wait in the inbox and are taken in one after the other; the carrier carries out the commands. What is not yet carried out is part of the state
that a new run begins with, since every command may be repeated. So a run may continue as new between any two events.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque

from temporalio import workflow

from forestay.adapters.temporal.workflows import temporal_runtime
from forestay.adapters.temporal.workflows.command_executor import CommandExecutor
from forestay.adapters.temporal.workflows.temporal_runtime import Plain
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exlets.exlet_run import WorkletEnded, event_as_plain
from forestay.domain.flows.commands import (
    AnswerVerb,
    CancelTimer,
    Command,
    FinishCase,
    RunOutcome,
    StartTimer,
)
from forestay.domain.flows.definition.flow_plan import FlowPlan
from forestay.domain.flows.definition.flow_version import flow_from_plain, planned
from forestay.domain.flows.events import (
    CaseEnded,
    Event,
    JobsEnded,
    RoundHeld,
    ShardEnded,
    TimerFired,
    Verb,
    VerbKind,
    WorkRefused,
)
from forestay.domain.flows.execution.advance import advance, start_run, undo_run
from forestay.domain.flows.execution.flow_run import EndCheck, FlowRun, ItemState, RunPhase, fan_out_of, item_at
from forestay.domain.flows.execution.messages import as_plain, command_from_plain, event_from_plain
from forestay.domain.flows.scatter.elements import every

CARRIED = ("run", "outbox", "timers", "orders", "said", "watches", "inbox", "finish")


@workflow.defn(name=temporal_runtime.CASE)
class CaseWorkflow:
    """Its argument: ``case``, ``tenant``, ``owner``, ``flow`` (its plain form as text), ``params``, ``limits``, of a sub-flow ``parent``; continued, the state too."""

    @workflow.init
    def __init__(self, given: Plain) -> None:
        self.given = given
        plan = self._plan(given)
        self.inbox: deque[Event] = deque(event_from_plain(one) for one in given.get("inbox", ()))
        self.timers: dict[str, int] = dict(given.get("timers", {}))
        self.answers: dict[str, AnswerVerb] = {}
        self.tasks = temporal_runtime.WorkflowTasks()
        self.sleepers: dict[str, asyncio.Task[None]] = {}
        self.finish: FinishCase | None = None
        """Known as soon as the case has finished; what it still has to say goes out first, perhaps in a later run."""
        if "finish" in given:
            finish = command_from_plain(given["finish"])
            assert isinstance(finish, FinishCase)  # noqa: S101 - nothing else is put there
            self.finish = finish
        self.checking: dict[str, Event] = {}
        """The last ends of rounds, until it is known whether they may end; no run gives way to a new one meanwhile."""
        self.looked_at: set[str] = set()
        self.news = 0
        self.standing = ""
        self.woken = False
        """Something changed without an event: the loop has to look."""
        self.tie: Plain = {name: given[name] for name in ("case", "tenant", "owner")} | {"flow": plan.version}
        if given.get("above"):
            self.tie["above"] = given["above"]
        self.executor = CommandExecutor(given, self.tie, self.tasks, self.inbox)
        if "run" in given:
            self.flow_run = FlowRun.from_plain(plan, given["run"])
            self.standing = given["standing"]
            self.first: tuple[Command, ...] = ()
        elif "undo" in given:
            self.flow_run, self.first = undo_run(FlowRun.from_plain(plan, given["undo"]), at=temporal_runtime.now())
        else:
            self.flow_run, self.first = self._start(plan, given)
            for holder in given.get("holders", ()):
                verb = Verb(temporal_runtime.now(), f"start:{holder}", VerbKind.SUSPEND, by=holder, holder=holder)
                self.inbox.append(verb)

    @workflow.run
    async def run(self, given: Plain) -> Plain:
        return await self._loop(given)

    def _plan(self, given: Plain) -> FlowPlan:
        return planned(flow_from_plain(json.loads(given["flow"])))

    def _start(self, plan: FlowPlan, given: Plain) -> tuple[FlowRun, tuple[Command, ...]]:
        return start_run(
            plan, case=given["case"], at=temporal_runtime.now(), params=given.get("params", {}), **self._checked(given)
        )

    def _checked(self, given: Plain) -> Plain:
        """Whether the case's end is looked at, and the incidents for which it may not begin yet."""
        check = EndCheck.WANTED if given.get("checks") else EndCheck.NONE
        return {"check": check, "held": tuple(given.get("held", ()))}

    async def _loop(self, given: Plain) -> Plain:
        self.executor.resume()
        for timer, at in list(self.timers.items()):
            self._sleep(timer, at)
        self._perform(self.first)
        limits = given["limits"]
        self.tasks.spawn(self._look(limits["look"]))
        while True:
            self.tasks.check()
            while self.inbox:
                self._take(self.inbox.popleft())
            self.woken = False
            self._look_at_length(limits["history"])
            self._show_standing()
            if self.finish is not None and not self.executor.outbox and workflow.all_handlers_finished():
                break
            if self._may_continue(limits["history"]):
                workflow.continue_as_new(self._carried(), memo=temporal_runtime.begun())
            await workflow.wait_condition(lambda: self._something_to_do(limits["history"]))
        self.tasks.stop()
        await self._tell_parent(self.finish)
        return {
            "outcome": self.finish.outcome.value,
            "outputs": dict(self.finish.outputs),
            "reason": self.finish.reason,
        }

    # What comes in

    @workflow.signal(name=temporal_runtime.MESSAGES)
    def messages(self, plain: list[Plain]) -> None:
        """Ends of jobs, shards and sub-cases; verbs that a sub-case hands on."""
        self.news += 1
        self.inbox.extend(event_from_plain(one) for one in plain)

    @workflow.update(name=temporal_runtime.VERB)
    async def verb(self, plain: Plain) -> Plain:
        """Obey a verb, and say what became of it."""
        verb = event_from_plain(plain)
        assert isinstance(verb, Verb)  # noqa: S101 - the port sends nothing else
        self.answers.pop(verb.id, None)
        self.inbox.append(verb)
        await workflow.wait_condition(lambda: verb.id in self.answers)
        return as_plain(self.answers[verb.id])

    @workflow.query(name=temporal_runtime.STATE)
    def state(self) -> Plain:
        return self.flow_run.as_plain()

    def _something_to_do(self, limit: int) -> bool:
        if self.inbox or self.woken or self.tasks.error is not None:
            return True
        done = self.finish is not None and not self.executor.outbox
        return (done and workflow.all_handlers_finished()) or self._may_continue(limit)

    def _may_continue(self, limit: int) -> bool:
        return not self.checking and temporal_runtime.too_long(limit) and workflow.all_handlers_finished()

    def _look_at_length(self, limit: int) -> None:
        """A case that can continue at any time need not be looked after."""

    def _take(self, event: Event) -> None:
        if isinstance(event, ShardEnded | CaseEnded) and self._ends_round(event):
            self.checking[event.work] = event
            self.tasks.spawn(self._check_end(event))
            return
        self.flow_run, commands = advance(self.flow_run, event)
        self._perform(commands)
        if isinstance(event, JobsEnded | CaseEnded | WorkRefused):
            self._forget_ended()

    def _ends_round(self, event: ShardEnded | CaseEnded) -> bool:
        """Whether this is the last end of a round that completes, at which nobody has looked yet."""
        if not self.given.get("checks") or event.work in self.looked_at:
            return False
        item = item_at(self.flow_run.items, event.work)
        if item is None or item.verdict is not None or self.flow_run.phase is not RunPhase.RUNNING:
            return False
        after = advance(self.flow_run, event)[0].items.get(item.id)
        return after is not None and after.round == item.round and after.state is ItemState.COMPLETED

    async def _check_end(self, event: ShardEnded | CaseEnded) -> None:
        """Ask whether a round that shards or sub-cases have done may end; the end is taken in when that is known."""
        item = item_at(self.flow_run.items, event.work)
        if item is not None:
            order = {"work": item.work, "item": item.id, "task": item.task}
            asked = self.tie | {"kind": ExceptionType.ITEM_POST.value, "task": item.task, "order": order}
            if await temporal_runtime.ask("has_rules", asked):
                data = {"outputs": dict(event.outputs)} if isinstance(event, CaseEnded) else {"bad": event.bad}
                held = await temporal_runtime.do("check_round", asked | {"data": data})
                if held:
                    self.inbox.append(RoundHeld(temporal_runtime.now(), event.work, held))
        self.looked_at.add(event.work)
        del self.checking[event.work]
        self.inbox.append(event)

    def _forget_ended(self) -> None:
        for work in [work for work in self.executor.orders if not self._waits_for(work)]:
            del self.executor.orders[work]

    def _waits_for(self, work: str) -> bool:
        fan = fan_out_of(self.flow_run.items, self.flow_run.stack, work)
        return fan is not None and not fan.finished

    def _carried(self) -> Plain:
        constant = {name: value for name, value in self.given.items() if name not in CARRIED}
        if self.finish is not None:
            constant["finish"] = as_plain(self.finish)
        return constant | {
            "run": self.flow_run.as_plain(),
            **self.executor.carried(),
            "timers": self.timers,
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
                case _:
                    self.executor.take(command)

    async def _tell_parent(self, finish: FinishCase) -> None:
        parent = self.given.get("parent")
        worklet = self.given.get("worklet")
        if parent is None and worklet is None:
            return
        well = finish.outcome in (RunOutcome.COMPLETED, RunOutcome.FORCED_COMPLETE, RunOutcome.UNDONE)
        reason = finish.reason or ("" if well else f"its run was {finish.outcome.value}")
        if worklet is not None:
            told = WorkletEnded(worklet["step"], worklet["place"], well, reason)
            await temporal_runtime.tell(worklet["exlet"], event_as_plain(told))
        if parent is None:
            return
        ended = CaseEnded(
            temporal_runtime.now(), parent["work"], parent["index"], well, finish.outputs, reason, finish.left
        )
        await temporal_runtime.tell(parent["case"], as_plain(ended))

    # Time

    def _sleep(self, timer: str, at: int) -> None:
        self.timers[timer] = at
        if timer in self.sleepers:
            self.sleepers.pop(timer).cancel()
        self.sleepers[timer] = self.tasks.spawn(self._ring(timer, at))

    async def _ring(self, timer: str, at: int) -> None:
        await asyncio.sleep(max(0.0, (at - temporal_runtime.now()) / 1000))
        self.timers.pop(timer, None)
        self.sleepers.pop(timer, None)
        self.inbox.append(TimerFired(temporal_runtime.now(), timer))

    async def _look(self, seconds: float) -> None:
        """Anti-entropy, for the jobs that the case looks after itself."""
        while True:
            news = self.news
            await asyncio.sleep(seconds)
            if self.news != news or self.executor.outbox:
                continue
            seconds = min(2 * seconds, temporal_runtime.LAST_LOOK)
            for work, known in list(self.executor.orders.items()):
                if known["cases"] or not self._waits_for(work):
                    continue
                batch = self.tie | {"order": known["order"], "shard": -1, "base": 0} | self._own(work)
                found = await temporal_runtime.do("check_jobs", batch, seconds=600)
                if held := found.pop("incident", ""):
                    self.inbox.append(RoundHeld(temporal_runtime.now(), work, held))
                self.inbox.append(
                    event_from_plain({**found, "type": "JobsEnded", "at": temporal_runtime.now(), "work": work})
                )

    def _own(self, work: str) -> Plain:
        """The elements of a round that the case looks after, as they are known here."""
        fan = fan_out_of(self.flow_run.items, self.flow_run.stack, work)
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
            if self.standing or standing != RunPhase.RUNNING.value:
                workflow.upsert_search_attributes([temporal_runtime.STANDING.value_set(standing)])
            self.standing = standing
