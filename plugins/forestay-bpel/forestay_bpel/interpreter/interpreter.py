"""Runs a process. It is replayed by Temporal and tested without it: the order of everything is determined by the process and its messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from forestay_bpel.domain.bpel.process import (
    Activity,
    Assign,
    Compensate,
    CompensateScope,
    Empty,
    Exit,
    Expression,
    FlowActivity,
    ForEach,
    If,
    Invoke,
    OnAlarm,
    OnMessage,
    Pick,
    Process,
    Receive,
    RepeatUntil,
    Reply,
    Rethrow,
    Scope,
    Throw,
    Validate,
    VariableDeclaration,
    Wait,
    While,
    inside,
)
from forestay_bpel.domain.bpel.process import Sequence as Sequenced
from forestay_bpel.domain.xml_tree import XmlElement
from forestay_bpel.interpreter.assigning import Assigning
from forestay_bpel.interpreter.durations import moment_of, seconds_of
from forestay_bpel.interpreter.execution_context import ExecutionContext, Exited, ProcessStopped
from forestay_bpel.interpreter.for_each_counter import ForEachCounter
from forestay_bpel.interpreter.host import WHOLE, Fault, Host, Incoming, standard_fault
from forestay_bpel.interpreter.message_correlation import MessageCorrelation
from forestay_bpel.interpreter.messages import Messages
from forestay_bpel.interpreter.parallel_scope import ParallelScope
from forestay_bpel.interpreter.scopes import Running, ScopeVariable, Values, copied
from forestay_bpel.interpreter.scoping import Scoping

MAX_BUSY = 20_000
"""The most activities in a row without an external event: more indicate an endless loop."""
MAX_ROUNDS = 10_000
"""Rounds of one forEach."""


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """How a process ended."""

    how: str
    """``completed``, ``exited`` or ``faulted``."""
    fault: Fault | None = None


class Interpreter:
    """One instance of a process."""

    def __init__(self, process: Process, host: Host) -> None:
        self.process = process
        self.host = host
        self.values = Values(process)
        self.assigning = Assigning(self.values)
        self.correlation = MessageCorrelation(self.values)
        self.messages = Messages(host, self.correlation, self.assigning)
        self.scoping = Scoping(self)
        self.isolation = asyncio.Lock()
        self.exiting = False
        self.closed = False
        """The process is no longer needed: it is dropped as it is."""
        self.busy = 0

    @property
    def ending(self) -> bool:
        """The whole process ends: nothing in it is protected any more."""
        return self.exiting or self.closed

    def deliver(self, incoming: Incoming) -> bool:
        """Deliver a message to the process; false: too many wait already."""
        self.busy = 0
        return self.correlation.deliver(incoming)

    async def run(self) -> ProcessResult:
        """Run to the end; `ProcessStopped` if it must not continue."""
        nowhere = Running(self.process.scope)
        try:
            await self.scoping.run(self.process.scope, ExecutionContext(nowhere, {}, []))
        except Exited:
            return ProcessResult("exited")
        except Fault as fault:
            return ProcessResult("faulted", fault)
        return ProcessResult("completed")

    # Every activity

    async def do(self, activity: Activity, context: ExecutionContext) -> None:
        self.busy += 1
        if self.busy > MAX_BUSY:
            raise ProcessStopped(f"line {activity.std.line}: {MAX_BUSY} activities without an external event; it loops")
        std = activity.std
        try:
            if std.targets and not await self.joined(activity, context):
                if not std.suppress:
                    raise standard_fault("joinFailure", std.name, std.line)  # noqa: TRY301 - it is the activity's own fault
                self.host.trace(f"skip {_label(activity)}")
                self.dead(activity, context)
                return
            await self.body(activity, context)
            for source in std.sources:
                condition = source.condition
                open_ = context.links[source.link]
                if not open_.done():
                    open_.set_result(condition is None or self.values.truth(context.at, condition))
        except Fault as fault:
            fault.line = fault.line or std.line
            self.dead(activity, context)
            raise
        except BaseException:
            self.dead(activity, context)
            raise

    async def joined(self, activity: Activity, context: ExecutionContext) -> bool:
        known = {link: await context.links[link] for link in activity.std.targets}
        join = activity.std.join
        return any(known.values()) if join is None else self.values.truth(context.at, join, links=known)

    def dead(self, activity: Activity, context: ExecutionContext) -> None:
        """An activity will not be executed any more: its outgoing links need not be waited for."""
        for link in _links_out(activity):
            status = context.links.get(link)
            if status is not None and not status.done():
                status.set_result(False)

    async def body(self, activity: Activity, context: ExecutionContext) -> None:
        match activity:
            case Sequenced(inner=many):
                for other_activity in many:
                    await self.do(other_activity, context)
            case Scope():
                await self.scoping.run(activity, context)
            case FlowActivity():
                await self.flow(activity, context)
            case If():
                await self.if_(activity, context)
            case While():
                while self.values.truth(context.at, activity.condition):
                    await self.do(activity.inner, context)
            case RepeatUntil():
                await self.do(activity.inner, context)
                while not self.values.truth(context.at, activity.condition):
                    await self.do(activity.inner, context)
            case ForEach():
                await self.for_each(activity, context)
            case Pick():
                await self.pick(activity, context)
            case _:
                self.host.trace(_label(activity))
                await self.basic(activity, context)

    async def basic(self, activity: Activity, context: ExecutionContext) -> None:
        match activity:
            case Empty():
                pass
            case Assign():
                self.assigning.assign(context.at, activity)
            case Invoke():
                await self.messages.invoke(activity, context.at)
                self.busy = 0
            case Receive():
                _, incoming = await self.correlation.receive(context.at, [activity])
                self.busy = 0
                self.messages.take(activity, incoming, context.at)
            case Reply():
                await self.messages.reply(activity, context.at)
            case Wait():
                await self.sleep(context.at, activity.for_, activity.until)
            case Throw(fault=fault, variable=variable):
                data = copied(context.at.find(variable).value) if variable else None
                raise Fault(fault, data, line=activity.std.line)
            case Rethrow():
                if context.fault is not None:
                    raise context.fault
            case Exit():
                self.exiting = True
                raise Exited
            case Compensate():
                if context.handled is not None:
                    await self.scoping.compensate(context.handled)
            case CompensateScope(target=target):
                if context.handled is not None:
                    await self.scoping.compensate(context.handled, target)
            case Validate(variables=variables):
                for name in variables:
                    if context.at.find(name).value is None:
                        raise standard_fault("uninitializedVariable", name, activity.std.line)
            case _:
                raise ProcessStopped(f"line {activity.std.line}: {type(activity).__name__} is not run")

    # Structured activities

    async def flow(self, flow: FlowActivity, context: ExecutionContext) -> None:
        loop = asyncio.get_running_loop()
        inner = replace(context, links={**context.links, **{link: loop.create_future() for link in flow.links}})
        group = ParallelScope()
        for activity in flow.inner:
            group.spawn(self.do(activity, inner))
        await group.wait()

    async def if_(self, activity: If, context: ExecutionContext) -> None:
        taken: Activity | None = None
        for condition, branch in activity.branches:
            if self.values.truth(context.at, condition):
                taken = branch
                break
        else:
            taken = activity.otherwise
        for branch in inside(activity):
            if branch is not taken:
                self.dead(branch, context)
        if taken is not None:
            await self.do(taken, context)

    async def for_each(self, activity: ForEach, context: ExecutionContext) -> None:
        first, last = self.values.whole(context.at, activity.first), self.values.whole(context.at, activity.last)
        rounds = max(0, last - first + 1)
        if rounds > MAX_ROUNDS:
            raise ProcessStopped(f"line {activity.std.line}: a forEach has at most {MAX_ROUNDS} rounds")
        enough: int | None = None
        if activity.branches is not None:
            enough = self.values.whole(context.at, activity.branches)
            if enough > rounds:
                raise standard_fault("invalidBranchCondition", f"{enough} of {rounds} rounds", activity.std.line)
        tally = ForEachCounter(rounds, enough, activity.only_good)
        numbers = range(first, last + 1)
        if activity.parallel:
            await self.rounds_together(activity, context, numbers, tally)
            return
        for number in numbers:
            if tally.met():
                return
            tally.count(good=await self.round(activity, context, number))
            tally.check(activity.std.line)

    async def rounds_together(
        self, activity: ForEach, context: ExecutionContext, numbers: range, tally: ForEachCounter
    ) -> None:
        group = ParallelScope()

        async def one(number: int) -> None:
            tally.count(good=await self.round(activity, context, number))

        if tally.met():
            return
        for number in numbers:
            group.spawn(one(number))
        try:
            while group.open and group.failed is None and not tally.met():
                await group.change()
                tally.check(activity.std.line)
        except BaseException:
            await group.end()
            raise
        if tally.met() and group.failed is None:
            await group.end()
        else:
            await group.wait()

    async def round(self, activity: ForEach, context: ExecutionContext, number: int) -> bool:
        counter = VariableDeclaration(activity.counter, activity.std.line, type="unsignedInt")
        held = ScopeVariable(counter, {WHOLE: _simple(activity.counter, str(number))})
        return await self.scoping.run(activity.inner, context, preset={activity.counter: held})

    async def pick(self, activity: Pick, context: ExecutionContext) -> None:
        self.host.trace(_label(activity))
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[tuple[int, Incoming]] = loop.create_future()
        group = ParallelScope()
        self.correlation.listen(context.at, activity.messages, arrived)

        async def ring(place: int, alarm: OnAlarm) -> None:
            await self.sleep(context.at, alarm.for_, alarm.until)
            if not arrived.done():
                arrived.set_result((place, Incoming("", "")))

        try:
            for place, alarm in enumerate(activity.alarms):
                group.spawn(ring(len(activity.messages) + place, alarm))

            async def wait() -> None:
                await arrived

            waiting = group.spawn(wait())
            while not waiting.done() and group.failed is None:
                await group.change()
        finally:
            self.correlation.withdraw(arrived)
            await group.end()
        if group.failed is not None:
            raise group.failed
        self.busy = 0
        place, incoming = arrived.result()
        events: Sequence[OnMessage | OnAlarm] = (*activity.messages, *activity.alarms)
        taken = events[place]
        for event in events:
            if event is not taken:
                self.dead(event.inner, context)
        if isinstance(taken, OnMessage):
            self.host.trace(f"onMessage {taken.operation}")
            self.messages.take(taken, incoming, context.at)
        else:
            self.host.trace("onAlarm")
        await self.do(taken.inner, context)

    # Messages and time

    def seconds(self, at: Running, expression: Expression) -> float:
        try:
            return seconds_of(self.values.text(at, expression))
        except ValueError as why:
            raise standard_fault("invalidExpressionValue", str(why), expression.line) from why

    async def sleep(self, at: Running, for_: Expression | None, until: Expression | None) -> None:
        if for_ is not None:
            await self.rest(self.seconds(at, for_))
        elif until is not None:
            try:
                moment = moment_of(self.values.text(at, until))
            except ValueError as why:
                raise standard_fault("invalidExpressionValue", str(why), until.line) from why
            await self.rest(moment - self.host.now())

    async def rest(self, seconds: float) -> None:
        if seconds > 0:
            await self.host.sleep(seconds)
            self.busy = 0


def _simple(name: str, text: str) -> XmlElement:
    return XmlElement(name, {}, [text])


def _label(activity: Activity) -> str:
    kind = type(activity).__name__
    word = {"FlowActivity": "flow", "ForEach": "forEach", "RepeatUntil": "repeatUntil", "CompensateScope": "compensateScope"}.get(kind, kind.lower())  # fmt: skip
    if isinstance(activity, Invoke | Receive | Reply):
        return f"{word} {activity.std.name or activity.operation}"
    return f"{word} {activity.std.name}".strip()


def _links_out(activity: Activity) -> Iterator[str]:
    """The links that leave an activity or anything inside it, except those of flows inside it."""
    yield from (source.link for source in activity.std.sources)
    own = set(activity.links) if isinstance(activity, FlowActivity) else set()
    for other_activity in inside(activity):
        yield from (link for link in _links_out(other_activity) if link not in own)
