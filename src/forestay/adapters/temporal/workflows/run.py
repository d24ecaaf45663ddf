"""A run as a workflow: a thin loop around `advance`.

Events wait in the inbox and are applied one after the other; the command executor carries out the commands. Commands not yet carried out are part of the state
with which a new run begins, since every command may be repeated. So a run may continue as new between any two events.
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
from forestay.domain.flows.commands import (
    AnswerVerb,
    CancelTimer,
    Command,
    FinishRun,
    RunOutcome,
    StartTimer,
)
from forestay.domain.flows.definition.flow_plan import FlowPlan
from forestay.domain.flows.definition.flow_version import flow_from_plain, planned
from forestay.domain.flows.events import (
    Event,
    JobsEnded,
    RoundHeld,
    RunEnded,
    ShardEnded,
    TimerFired,
    Verb,
    VerbKind,
    WorkRefused,
)
from forestay.domain.flows.execution.advance import advance, start_run, undo_run
from forestay.domain.flows.execution.flow_run import (
    EndCheck,
    FlowRun,
    InstanceState,
    RunPhase,
    asks,
    fan_out_of,
    instance_at,
    is_streamed,
)
from forestay.domain.flows.execution.messages import as_plain, command_from_plain, event_from_plain
from forestay.domain.flows.execution.resumption import resume_run
from forestay.domain.flows.execution.run_waits import is_held
from forestay.domain.flows.scatter.elements import every
from forestay.domain.playbooks.playbook_run import WorkletEnded, event_as_plain

CARRIED = ("resumed", "state", "outbox", "timers", "orders", "said", "watches", "inbox", "finish")


@workflow.defn(name=temporal_runtime.RUN)
class FlowRunWorkflow:
    """Its argument: ``run``, ``tenant``, ``owner``, ``flow`` (its plain form as text), ``params``, ``limits``, of a sub-flow ``parent``; continued, the state too."""

    @workflow.init
    def __init__(self, payload: Plain) -> None:
        self.given = payload
        plan = self._plan(payload)
        self.inbox: deque[Event] = deque(event_from_plain(event) for event in payload.get("inbox", ()))
        self.timers: dict[str, int] = dict(payload.get("timers", {}))
        self.answers: dict[str, AnswerVerb] = {}
        self.tasks = temporal_runtime.WorkflowTasks()
        self.sleepers: dict[str, asyncio.Task[None]] = {}
        self.finish: FinishRun | None = None
        """Set as soon as the run has finished; its remaining messages are sent first, perhaps in a later run."""
        if "finish" in payload:
            finish = command_from_plain(payload["finish"])
            assert isinstance(finish, FinishRun)  # noqa: S101 - nothing else is put there
            self.finish = finish
        self.checking: dict[str, Event] = {}
        """The last completions of rounds, until it is known whether the rounds may end; the run does not continue as new meanwhile."""
        self.looked_at: set[str] = set()
        self.news = 0
        self.status = ""
        self.woken = False
        """Something changed without an event: the loop must check."""
        self.flow_ref: Plain = {name: payload[name] for name in ("run", "tenant", "owner")} | {"flow": plan.version}
        if payload.get("above"):
            self.flow_ref["above"] = payload["above"]
        self.executor = CommandExecutor(payload, self.flow_ref, self.tasks, self.inbox)
        if "state" in payload:
            self.flow_run = FlowRun.from_plain(plan, payload["state"])
            self.status = payload["status"]
            self.first: tuple[Command, ...] = ()
        elif "resumed" in payload:
            self.flow_run, self.first = self._resume(plan, payload["resumed"])
        elif "undo" in payload:
            self.flow_run, self.first = undo_run(FlowRun.from_plain(plan, payload["undo"]), at=temporal_runtime.now())
        else:
            self.flow_run, self.first = self._start(plan, payload)
            for holder in payload.get("holders", ()):
                verb = Verb(temporal_runtime.now(), f"start:{holder}", VerbKind.SUSPEND, by=holder, holder=holder)
                self.inbox.append(verb)

    @workflow.run
    async def run(self, payload: Plain) -> Plain:
        return await self._loop(payload)

    def _plan(self, payload: Plain) -> FlowPlan:
        return planned(flow_from_plain(json.loads(payload["flow"])))

    def _start(self, plan: FlowPlan, payload: Plain) -> tuple[FlowRun, tuple[Command, ...]]:
        return start_run(
            plan,
            run=payload["run"],
            at=temporal_runtime.now(),
            params=payload.get("params", {}),
            streams=payload.get("streams", False),
            **self._checked(payload),
        )

    def _resume(self, plan: FlowPlan, given: Plain) -> tuple[FlowRun, tuple[Command, ...]]:
        ended = FlowRun.from_plain(plan, given["state"])
        resumption = resume_run(ended, at=temporal_runtime.now(), task=given["task"], changes=given["changes"])
        return resumption.run, resumption.commands

    def _checked(self, payload: Plain) -> Plain:
        """Whether the run's end is checked, the incidents that keep it from beginning, and whether the compensation library is used."""
        check = EndCheck.WANTED if payload.get("checks") else EndCheck.NONE
        return {
            "check": check,
            "held": tuple(payload.get("held", ())),
            "library": payload.get("library", False),
        }

    async def _loop(self, payload: Plain) -> Plain:
        self.executor.resume()
        for timer, at in list(self.timers.items()):
            self._sleep(timer, at)
        self._perform(self.first)
        limits = payload["limits"]
        self.tasks.spawn(self._look(limits["look"]))
        while True:
            self.tasks.check()
            while self.inbox:
                self._take(self.inbox.popleft())
            self.woken = False
            self._look_at_length(limits["history"])
            self._show_status()
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

    # Incoming messages

    @workflow.signal(name=temporal_runtime.MESSAGES)
    def messages(self, plain: list[Plain]) -> None:
        """Receives completions of jobs, shards and sub-runs, and verbs that a sub-run passes on."""
        self.news += 1
        self.inbox.extend(event_from_plain(event) for event in plain)

    @workflow.update(name=temporal_runtime.VERB)
    async def verb(self, plain: Plain) -> Plain:
        """Execute a verb, and return its outcome."""
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
        """Does nothing: a run that can continue as new at any time need not be stopped."""

    def _take(self, event: Event) -> None:
        if work := self._ended_round(event):
            self.checking[work] = event
            self.tasks.spawn(self._check_end(event, work))
            return
        self.flow_run, commands = advance(self.flow_run, event)
        self._perform(commands)
        if isinstance(event, JobsEnded | RunEnded | WorkRefused):
            self._forget_ended()

    def _ended_round(self, event: Event) -> str:
        """The round that completes by this event and has not been checked yet; empty: none. Where its own jobs are the last, the relay has checked it."""
        run = self.flow_run
        if not self.given.get("checks") or run.phase is not RunPhase.RUNNING:
            return ""
        if isinstance(event, ShardEnded | RunEnded):
            instance = instance_at(run.instances, event.work)
            rounds = [instance] if instance is not None else []
        else:
            # Elements that were given up, because their input never came, have no job whose completion the relay could see.
            rounds = [instance for instance in run.instances.values() if is_streamed(run, instance)]
        rounds = [instance for instance in rounds if instance.verdict is None and instance.work not in self.looked_at]
        after = advance(run, event)[0].instances if rounds else {}
        for instance in rounds:
            then = after.get(instance.id)
            if then is None or then.round != instance.round or then.state is not InstanceState.COMPLETED:
                continue
            if isinstance(event, ShardEnded | RunEnded) or then.well + then.bad < then.count:
                return instance.work
        return ""

    async def _check_end(self, event: Event, work: str) -> None:
        """Check whether a round finished by shards or sub-runs may end; its completion is applied when that is known."""
        instance = instance_at(self.flow_run.instances, work)
        if instance is not None:
            order = {"work": instance.work, "instance": instance.id, "task": instance.task}
            asked = self.flow_ref | {"kind": ExceptionType.TASK_POST.value, "task": instance.task, "order": order}
            if await temporal_runtime.ask("has_rules", asked):
                own = instance.fan_out.bad if instance.fan_out is not None else 0
                data: Plain = {"bad": event.bad if isinstance(event, ShardEnded) else own}
                if isinstance(event, RunEnded):
                    data = {"outputs": dict(event.outputs)}
                held = await temporal_runtime.do("check_round", asked | {"data": data})
                if held:
                    self.inbox.append(RoundHeld(temporal_runtime.now(), work, held))
        self.looked_at.add(work)
        del self.checking[work]
        self.inbox.append(event)

    def _forget_ended(self) -> None:
        for work in [work for work in self.executor.orders if not self._waits_for(work)]:
            del self.executor.orders[work]

    def _waits_for(self, work: str) -> bool:
        fan_out = fan_out_of(self.flow_run.instances, self.flow_run.stack, work)
        return fan_out is not None and not fan_out.finished

    def _carried(self) -> Plain:
        constant = {name: value for name, value in self.given.items() if name not in CARRIED}
        if self.finish is not None:
            constant["finish"] = as_plain(self.finish)
        return constant | {
            "state": self.flow_run.as_plain(),
            **self.executor.carried(),
            "timers": self.timers,
            "status": self.status,
            "inbox": [as_plain(event) for event in self.inbox],
        }

    # Outgoing messages

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
                case FinishRun():
                    self.finish = command
                case _:
                    self.executor.take(command)

    async def _tell_parent(self, finish: FinishRun) -> None:
        parent = self.given.get("parent")
        worklet = self.given.get("worklet")
        if parent is None and worklet is None:
            return
        well = finish.outcome in (RunOutcome.COMPLETED, RunOutcome.FORCED_COMPLETE, RunOutcome.UNDONE)
        reason = finish.reason or ("" if well else f"its run was {finish.outcome.value}")
        if worklet is not None:
            event = WorkletEnded(worklet["step"], worklet["place"], well, reason)
            await temporal_runtime.tell(worklet["playbook"], event_as_plain(event))
        if parent is None:
            return
        ended = RunEnded(
            temporal_runtime.now(), parent["work"], parent["index"], well, finish.outputs, reason, finish.left
        )
        await temporal_runtime.tell(parent["run"], as_plain(ended))

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
        """Anti-entropy, for the jobs that the run itself follows."""
        while True:
            news = self.news
            await asyncio.sleep(seconds)
            if self.news != news or self.executor.outbox:
                continue
            seconds = min(2 * seconds, temporal_runtime.LAST_LOOK)
            for work, known in list(self.executor.orders.items()):
                if known["runs"] or not self._waits_for(work):
                    continue
                batch = self.flow_ref | {"order": known["order"], "shard": -1, "base": 0} | self._own(work)
                states = await temporal_runtime.do("check_jobs", batch, seconds=600)
                if held := states.pop("incident", ""):
                    self.inbox.append(RoundHeld(temporal_runtime.now(), work, held))
                self.inbox.append(
                    event_from_plain({**states, "type": "JobsEnded", "at": temporal_runtime.now(), "work": work})
                )

    def _own(self, work: str) -> Plain:
        """The known state of a round's elements that the run itself follows."""
        fan_out = fan_out_of(self.flow_run.instances, self.flow_run.stack, work)
        own = fan_out.own if fan_out is not None else None
        if own is None:
            return {"first": 0, "count": 0, "ended": "0", "of": 0, "holders": [], "cancelled": False}
        waited_for = (every(own.count) & ~own.skipped).bit_count()
        out: Plain = {"first": 0, "count": own.submitted, "ended": f"{own.ended:x}", "of": waited_for}
        if own.waiting:
            out["waiting"] = f"{own.waiting:x}"
        return out | {"holders": list(own.holders), "cancelled": own.cancelled}

    def _show_status(self) -> None:
        """Keep the run's state searchable; one event each time it changes."""
        run = self.flow_run
        status = run.outcome.value if run.outcome else "suspended" if run.holders else run.phase.value
        if status == RunPhase.RUNNING.value and asks(run):
            status = temporal_runtime.ASKING
        elif run.outcome is None and not run.holders and is_held(run) and workflow.patched("held"):
            status = "held"
        if status != self.status:
            if self.status or status != RunPhase.RUNNING.value:
                workflow.upsert_search_attributes([temporal_runtime.STATUS.value_set(status)])
            self.status = status
