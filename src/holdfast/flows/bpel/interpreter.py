"""Runs a process. It is replayed by Temporal and tried without it: the order of everything follows from the process and from what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.domain.flows.bpel.process import (
    Activity,
    Assign,
    Catch,
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
    Part,
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
from holdfast.domain.flows.bpel.process import Sequence as Sequenced
from holdfast.domain.flows.xml_tree import Element
from holdfast.flows.bpel.assigning import Assigning
from holdfast.flows.bpel.durations import moment_of, seconds_of
from holdfast.flows.bpel.host import WHOLE, Call, Fault, Host, Incoming, Message, standard_fault
from holdfast.flows.bpel.post import Post
from holdfast.flows.bpel.scopes import Held, Running, Values, copied
from holdfast.flows.bpel.together import Group, Work

MAX_BUSY = 20_000
"""Activities that may be done without anything coming from outside: more is a loop that waits for nothing."""
MAX_ROUNDS = 10_000
"""Rounds of one forEach."""
Links = dict[str, "asyncio.Future[bool]"]


class Exited(Exception):
    """An exit activity, or a standard fault where the process says that it exits then."""


class Stopped(Exception):
    """A process that must not go on."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended."""

    how: str
    """``completed``, ``exited`` or ``faulted``."""
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Here:
    """Where an activity runs."""

    at: Running
    links: Links
    completed: list[Running]
    """Where scopes that complete are noted."""
    fault: Fault | None = None
    """Inside a fault handler: the fault that is handled."""
    handled: Running | None = None
    """Inside a handler of faults, compensation or termination: the scope that it belongs to."""


class Interpreter:
    """One instance of a process."""

    def __init__(self, process: Process, host: Host) -> None:
        self.process = process
        self.host = host
        self.values = Values(process)
        self.assigning = Assigning(self.values)
        self.post = Post(self.values)
        self.isolation = asyncio.Lock()
        self.exiting = False
        self.closed = False
        """Whoever runs the process has no use for it any more: it is dropped as it is."""
        self.busy = 0

    def deliver(self, letter: Incoming) -> bool:
        """A message for the process; false: too many wait already."""
        self.busy = 0
        return self.post.deliver(letter)

    async def run(self) -> Ended:
        """To the end; `Stopped` if it must not go on."""
        nowhere = Running(self.process.scope)
        try:
            await self.scope(self.process.scope, Here(nowhere, {}, []))
        except Exited:
            return Ended("exited")
        except Fault as fault:
            return Ended("faulted", fault)
        return Ended("completed")

    # Every activity

    async def do(self, activity: Activity, here: Here) -> None:
        self.busy += 1
        if self.busy > MAX_BUSY:
            raise Stopped(
                f"line {activity.std.line}: {MAX_BUSY} activities without anything from outside; it runs in circles"
            )
        std = activity.std
        try:
            if std.targets and not await self.joined(activity, here):
                if not std.suppress:
                    raise standard_fault("joinFailure", std.name, std.line)  # noqa: TRY301 - it is the activity's own fault
                self.host.trace(f"skip {_label(activity)}")
                self.dead(activity, here)
                return
            await self.body(activity, here)
            for source in std.sources:
                condition = source.condition
                open_ = here.links[source.link]
                if not open_.done():
                    open_.set_result(condition is None or self.values.truth(here.at, condition))
        except Fault as fault:
            fault.line = fault.line or std.line
            self.dead(activity, here)
            raise
        except BaseException:
            self.dead(activity, here)
            raise

    async def joined(self, activity: Activity, here: Here) -> bool:
        known = {link: await here.links[link] for link in activity.std.targets}
        join = activity.std.join
        return any(known.values()) if join is None else self.values.truth(here.at, join, links=known)

    def dead(self, activity: Activity, here: Here) -> None:
        """Nothing of an activity will be done any more: whoever waits for a link from inside it need not wait."""
        for link in _links_out(activity):
            status = here.links.get(link)
            if status is not None and not status.done():
                status.set_result(False)

    async def body(self, activity: Activity, here: Here) -> None:
        match activity:
            case Sequenced(inner=many):
                for one in many:
                    await self.do(one, here)
            case Scope():
                await self.scope(activity, here)
            case FlowActivity():
                await self.flow(activity, here)
            case If():
                await self.if_(activity, here)
            case While():
                while self.values.truth(here.at, activity.condition):
                    await self.do(activity.inner, here)
            case RepeatUntil():
                await self.do(activity.inner, here)
                while not self.values.truth(here.at, activity.condition):
                    await self.do(activity.inner, here)
            case ForEach():
                await self.for_each(activity, here)
            case Pick():
                await self.pick(activity, here)
            case _:
                self.host.trace(_label(activity))
                await self.basic(activity, here)

    async def basic(self, activity: Activity, here: Here) -> None:
        match activity:
            case Empty():
                pass
            case Assign():
                self.assigning.assign(here.at, activity)
            case Invoke():
                await self.invoke(activity, here)
            case Receive():
                _, letter = await self.post.receive(here.at, [activity])
                self.busy = 0
                self.take(activity, letter, here.at)
            case Reply():
                await self.reply(activity, here)
            case Wait():
                await self.sleep(here.at, activity.for_, activity.until)
            case Throw(fault=fault, variable=variable):
                data = copied(here.at.find(variable).value) if variable else None
                raise Fault(fault, data, line=activity.std.line)
            case Rethrow():
                if here.fault is not None:
                    raise here.fault
            case Exit():
                self.exiting = True
                raise Exited
            case Compensate():
                if here.handled is not None:
                    await self.compensate(here.handled)
            case CompensateScope(target=target):
                if here.handled is not None:
                    await self.compensate(here.handled, target)
            case Validate(variables=variables):
                for name in variables:
                    if here.at.find(name).value is None:
                        raise standard_fault("uninitializedVariable", name, activity.std.line)
            case _:
                raise Stopped(f"line {activity.std.line}: {type(activity).__name__} is not run")

    # Structured activities

    async def flow(self, flow: FlowActivity, here: Here) -> None:
        loop = asyncio.get_running_loop()
        inner = replace(here, links={**here.links, **{one: loop.create_future() for one in flow.links}})
        group = Group()
        for one in flow.inner:
            group.spawn(self.do(one, inner))
        await group.wait()

    async def if_(self, activity: If, here: Here) -> None:
        taken: Activity | None = None
        for condition, branch in activity.branches:
            if self.values.truth(here.at, condition):
                taken = branch
                break
        else:
            taken = activity.otherwise
        for branch in inside(activity):
            if branch is not taken:
                self.dead(branch, here)
        if taken is not None:
            await self.do(taken, here)

    async def for_each(self, activity: ForEach, here: Here) -> None:
        first, last = self.values.whole(here.at, activity.first), self.values.whole(here.at, activity.last)
        rounds = max(0, last - first + 1)
        if rounds > MAX_ROUNDS:
            raise Stopped(f"line {activity.std.line}: a forEach has at most {MAX_ROUNDS} rounds")
        enough: int | None = None
        if activity.branches is not None:
            enough = self.values.whole(here.at, activity.branches)
            if enough > rounds:
                raise standard_fault("invalidBranchCondition", f"{enough} of {rounds} rounds", activity.std.line)
        tally = _Tally(rounds, enough, activity.only_good)
        numbers = range(first, last + 1)
        if activity.parallel:
            await self.rounds_together(activity, here, numbers, tally)
            return
        for number in numbers:
            if tally.met():
                return
            tally.count(good=await self.round(activity, here, number))
            tally.check(activity.std.line)

    async def rounds_together(self, activity: ForEach, here: Here, numbers: range, tally: _Tally) -> None:
        group = Group()

        async def one(number: int) -> None:
            tally.count(good=await self.round(activity, here, number))

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

    async def round(self, activity: ForEach, here: Here, number: int) -> bool:
        counter = VariableDeclaration(activity.counter, activity.std.line, type="unsignedInt")
        held = Held(counter, {WHOLE: _simple(activity.counter, str(number))})
        return await self.scope(activity.inner, here, preset={activity.counter: held})

    async def pick(self, activity: Pick, here: Here) -> None:
        self.host.trace(_label(activity))
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[tuple[int, Incoming]] = loop.create_future()
        group = Group()
        self.post.listen(here.at, activity.messages, arrived)

        async def ring(place: int, alarm: OnAlarm) -> None:
            await self.sleep(here.at, alarm.for_, alarm.until)
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
            self.post.withdraw(arrived)
            await group.end()
        if group.failed is not None:
            raise group.failed
        self.busy = 0
        place, letter = arrived.result()
        events: Sequence[OnMessage | OnAlarm] = (*activity.messages, *activity.alarms)
        taken = events[place]
        for event in events:
            if event is not taken:
                self.dead(event.inner, here)
        if isinstance(taken, OnMessage):
            self.host.trace(f"onMessage {taken.operation}")
            self.take(taken, letter, here.at)
        else:
            self.host.trace("onAlarm")
        await self.do(taken.inner, here)

    # Scopes and their handlers

    async def scope(self, scope: Scope, here: Here, *, preset: dict[str, Held] | None = None) -> bool:
        """Run a scope; false: a fault in it was handled."""
        running = Running(scope, here.at)
        running.sets = {one.name: None for one in scope.sets}
        for one in scope.variables:
            running.variables[one.name] = Held(one)
        running.variables |= preset or {}
        inner = replace(here, at=running, completed=running.completed)
        if scope.isolated:
            async with self.isolation:
                good = await self.guarded(scope, running, inner)
        else:
            good = await self.guarded(scope, running, inner)
        for handler in _handlers(scope):
            self.dead(handler, here)
        if good:
            here.completed.append(running)
        return good

    async def guarded(self, scope: Scope, running: Running, inner: Here) -> bool:
        for one in scope.variables:
            if one.first is not None:
                try:
                    self.assigning.first(running, running.variables[one.name], one.first)
                except Fault as fault:
                    raise standard_fault("scopeInitializationFailure", fault.why, one.line) from fault
        try:
            await self.main(scope, running, inner)
        except asyncio.CancelledError:
            if not self.exiting and not self.closed:
                await self.protected(self.terminate(scope, running, inner))
            raise
        except Fault as fault:
            if self.exiting or self.closed:
                raise
            if scope.exit_on_standard and fault.standard and not fault.name.endswith("}joinFailure"):
                self.exiting = True
                raise Exited from fault
            await self.protected(self.handle(scope, running, inner, fault))
            return False
        return True

    async def protected(self, work: Work) -> None:
        """A handler that has begun is not interrupted, unless the whole process ends."""
        task = asyncio.get_running_loop().create_task(work)
        interrupted = False
        while not task.done():
            if interrupted and (self.exiting or self.closed):
                task.cancel()
            interrupted |= await _heard(task)
        if interrupted:
            if not task.cancelled():
                task.exception()
            raise asyncio.CancelledError
        task.result()

    async def main(self, scope: Scope, running: Running, inner: Here) -> None:
        if not scope.messages and not scope.alarms:
            await self.do(scope.inner, inner)
            return
        group = Group()
        listeners: list[asyncio.Task[None]] = []

        async def main() -> None:
            await self.do(scope.inner, inner)
            for one in listeners:
                one.cancel()

        listeners += [group.spawn(self.listen(event, running, inner, group)) for event in scope.messages]
        listeners += [group.spawn(self.alarm(alarm, running, inner, group)) for alarm in scope.alarms]
        group.spawn(main())
        await group.wait()

    async def listen(self, event: OnMessage, running: Running, inner: Here, group: Group) -> None:
        while True:
            _, letter = await self.post.receive(running, [event])
            self.busy = 0
            self.host.trace(f"onEvent {event.operation}")
            own = Running(running.scope, running)
            for name in (event.variable, *(one.variable for one in event.from_parts)):
                if name and not (event.from_parts and running.has(name)):
                    own.variables[name] = Held(
                        VariableDeclaration(name, event.line, event.message, element=event.element)
                    )
            self.take(event, letter, own)
            group.spawn(self.do(event.inner, replace(inner, at=own, links={})))

    async def alarm(self, alarm: OnAlarm, running: Running, inner: Here, group: Group) -> None:
        every = None if alarm.every is None else self.seconds(running, alarm.every)
        if alarm.for_ is not None or alarm.until is not None:
            await self.sleep(running, alarm.for_, alarm.until)
        elif every is not None:
            await self.rest(every)
        while True:
            self.host.trace("onAlarm")
            group.spawn(self.do(alarm.inner, replace(inner, links={})))
            if every is None:
                return
            await self.rest(every)

    async def handle(self, scope: Scope, running: Running, inner: Here, fault: Fault) -> None:
        catch = _catch(scope, fault)
        handling = replace(inner, fault=fault, handled=running, completed=[])
        if catch is None and scope.catch_all is None:
            await self.compensate(running)
            raise fault
        self.host.trace(f"catch {fault.name.rpartition('}')[2]}")
        if catch is None:
            assert scope.catch_all is not None  # noqa: S101 - it was looked at above
            await self.do(scope.catch_all, handling)
            return
        own = Running(scope, running)
        if catch.variable:
            declared = VariableDeclaration(catch.variable, catch.line, catch.message, element=catch.element)
            own.variables[catch.variable] = Held(declared, copied(fault.data))
        await self.do(catch.inner, replace(handling, at=own))

    async def terminate(self, scope: Scope, running: Running, inner: Here) -> None:
        self.host.trace(f"terminate {scope.std.name}".strip())
        try:
            if scope.termination is None:
                await self.compensate(running)
            else:
                await self.do(scope.termination, replace(inner, handled=running, completed=[], links={}))
        except Fault:
            # A fault while a scope is terminated goes nowhere: what terminates it has a fault of its own.
            self.host.trace(f"termination of {scope.std.name} failed")

    async def compensate(self, running: Running, target: str | None = None) -> None:
        """Undo the scopes that completed inside one, the last first; each once."""
        for child in reversed(list(running.completed)):
            if (target is None or child.scope.std.name == target) and child in running.completed:
                running.completed.remove(child)
                await self.undo(child)

    async def undo(self, child: Running) -> None:
        self.host.trace(f"compensate {child.scope.std.name}".strip())
        if child.scope.compensation is None:
            await self.compensate(child)
            return
        here = Here(child, {}, [], handled=child)
        await self.do(child.scope.compensation, here)

    # Messages and time

    async def invoke(self, activity: Invoke, here: Here) -> None:
        message = self.outgoing(here.at, activity.input, activity.to_parts, activity.std.line)
        asking = [one for one in activity.correlations if one.pattern in ("", "request", "request-response")]
        self.post.correlate(here.at, asking, message, activity.std.line)
        answered = bool(activity.output or activity.from_parts)
        call = Call(activity.partner, activity.operation, message, activity.std.name, activity.std.line, answered)
        answer = await self.host.invoke(call)
        self.busy = 0
        if answered:
            self.store(here.at, activity.output, activity.from_parts, answer)
            answering = [one for one in activity.correlations if one.pattern in ("response", "request-response")]
            self.post.correlate(here.at, answering, answer, activity.std.line)

    async def reply(self, activity: Reply, here: Here) -> None:
        key = (activity.partner, activity.operation, activity.exchange)
        if not self.post.requests.get(key):
            raise standard_fault(
                "missingRequest", f"nobody waits for an answer to {activity.operation}", activity.std.line
            )
        message = self.outgoing(here.at, activity.variable, activity.to_parts, activity.std.line)
        self.post.correlate(here.at, activity.correlations, message, activity.std.line)
        self.post.requests[key] -= 1
        await self.host.reply(activity.partner, activity.operation, message, activity.fault)

    def take(self, given: Receive | OnMessage, letter: Incoming, at: Running) -> None:
        line = given.line if isinstance(given, OnMessage) else given.std.line
        self.post.correlate(at, given.correlations, letter.message, line)
        key = (given.partner, given.operation, given.exchange)
        self.post.requests[key] = self.post.requests.get(key, 0) + 1
        self.store(at, given.variable, given.from_parts, letter.message)

    @staticmethod
    def outgoing(at: Running, variable: str, parts: Sequence[Part], line: int) -> Message:
        if variable:
            found = copied(at.find(variable).value)
            if found is None:
                raise standard_fault("uninitializedVariable", variable, line)
            return found
        out: Message = {}
        for one in parts:
            value = at.find(one.variable).value
            if value is None:
                raise standard_fault("uninitializedVariable", one.variable, line)
            out[one.part] = next(iter(value.values())).copy()
        return out

    def store(self, at: Running, variable: str, parts: Sequence[Part], message: Message) -> None:
        if variable:
            held = at.find(variable)
            found = copied(message) or {}
            if not held.is_message and found and WHOLE not in found:
                found = {WHOLE: next(iter(found.values()))}
            held.value = found
        for one in parts:
            value = message.get(one.part)
            if value is not None:
                self.assigning.store(at.find(one.variable), "", value.copy(), keep_name=False)

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


@dataclass(slots=True)
class _Tally:
    """How many rounds of a forEach are done, and whether they are enough."""

    left: int
    enough: int | None
    only_good: bool
    counted: int = 0

    def met(self) -> bool:
        return self.enough is not None and self.counted >= self.enough

    def count(self, *, good: bool) -> None:
        self.left -= 1
        if good or not self.only_good:
            self.counted += 1

    def check(self, line: int) -> None:
        if self.enough is not None and self.counted + self.left < self.enough:
            raise standard_fault("completionConditionFailure", f"{self.enough} rounds cannot be reached any more", line)


async def _heard(task: asyncio.Task[Any]) -> bool:
    """Wait for a task once; whether this was to be cancelled instead."""
    heard = asyncio.get_running_loop().create_future()

    def tell(_: object) -> None:
        if not heard.done():
            heard.set_result(None)

    task.add_done_callback(tell)
    try:
        await heard
    except asyncio.CancelledError:
        return True
    return False


def _simple(name: str, text: str) -> Element:
    return Element(name, {}, [text])


def _label(activity: Activity) -> str:
    kind = type(activity).__name__
    word = {"FlowActivity": "flow", "ForEach": "forEach", "RepeatUntil": "repeatUntil", "CompensateScope": "compensateScope"}.get(kind, kind.lower())  # fmt: skip
    if isinstance(activity, Invoke | Receive | Reply):
        return f"{word} {activity.std.name or activity.operation}"
    return f"{word} {activity.std.name}".strip()


def _handlers(scope: Scope) -> Iterator[Activity]:
    yield from (one.inner for one in scope.catches)
    if scope.catch_all is not None:
        yield scope.catch_all


def _links_out(activity: Activity) -> Iterator[str]:
    """The links that leave an activity or something inside it, but for those of flows inside it."""
    yield from (one.link for one in activity.std.sources)
    own = set(activity.links) if isinstance(activity, FlowActivity) else set()
    for one in inside(activity):
        yield from (link for link in _links_out(one) if link not in own)


def _catch(scope: Scope, fault: Fault) -> Catch | None:
    data = fault.data
    root = next(iter(data.values())) if data is not None and len(data) == 1 else None
    best: Catch | None = None
    rank = 0
    for one in scope.catches:
        if one.fault and one.fault != fault.name:
            continue
        if one.variable:
            if data is None or (one.element and (root is None or root.tag != one.element)):
                continue
            if one.message and not one.fault and WHOLE in data:
                continue
        worth = (2 if one.fault else 0) + (1 if one.variable else 0)
        if one.fault and not one.variable and data is None:
            worth = 4
        if worth > rank:
            best, rank = one, worth
    return best
