"""Runs a process. It is replayed by Temporal and tried without it: the order of everything follows from the process and from what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from forestay.domain.flows.bpel.process import (
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
from forestay.domain.flows.bpel.process import Sequence as Sequenced
from forestay.domain.flows.xml_tree import Element
from forestay.flows.bpel.assigning import Assigning
from forestay.flows.bpel.durations import moment_of, seconds_of
from forestay.flows.bpel.here import Exited, Here, Stopped
from forestay.flows.bpel.host import WHOLE, Fault, Host, Incoming, standard_fault
from forestay.flows.bpel.messages import Messages
from forestay.flows.bpel.post import Post
from forestay.flows.bpel.rounds import Tally
from forestay.flows.bpel.scopes import Held, Running, Values, copied
from forestay.flows.bpel.scoping import Scoping
from forestay.flows.bpel.together import Group

MAX_BUSY = 20_000
"""Activities that may be done without anything coming from outside: more is a loop that waits for nothing."""
MAX_ROUNDS = 10_000
"""Rounds of one forEach."""


@dataclass(frozen=True, slots=True)
class Ended:
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
        self.post = Post(self.values)
        self.messages = Messages(host, self.post, self.assigning)
        self.scoping = Scoping(self)
        self.isolation = asyncio.Lock()
        self.exiting = False
        self.closed = False
        """Whoever runs the process has no use for it any more: it is dropped as it is."""
        self.busy = 0

    @property
    def ending(self) -> bool:
        """The whole process ends: nothing in it is protected any more."""
        return self.exiting or self.closed

    def deliver(self, letter: Incoming) -> bool:
        """A message for the process; false: too many wait already."""
        self.busy = 0
        return self.post.deliver(letter)

    async def run(self) -> Ended:
        """To the end; `Stopped` if it must not go on."""
        nowhere = Running(self.process.scope)
        try:
            await self.scoping.run(self.process.scope, Here(nowhere, {}, []))
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
                await self.scoping.run(activity, here)
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
                await self.messages.invoke(activity, here.at)
                self.busy = 0
            case Receive():
                _, letter = await self.post.receive(here.at, [activity])
                self.busy = 0
                self.messages.take(activity, letter, here.at)
            case Reply():
                await self.messages.reply(activity, here.at)
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
                    await self.scoping.compensate(here.handled)
            case CompensateScope(target=target):
                if here.handled is not None:
                    await self.scoping.compensate(here.handled, target)
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
        tally = Tally(rounds, enough, activity.only_good)
        numbers = range(first, last + 1)
        if activity.parallel:
            await self.rounds_together(activity, here, numbers, tally)
            return
        for number in numbers:
            if tally.met():
                return
            tally.count(good=await self.round(activity, here, number))
            tally.check(activity.std.line)

    async def rounds_together(self, activity: ForEach, here: Here, numbers: range, tally: Tally) -> None:
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
        return await self.scoping.run(activity.inner, here, preset={activity.counter: held})

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
            self.messages.take(taken, letter, here.at)
        else:
            self.host.trace("onAlarm")
        await self.do(taken.inner, here)

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


def _simple(name: str, text: str) -> Element:
    return Element(name, {}, [text])


def _label(activity: Activity) -> str:
    kind = type(activity).__name__
    word = {"FlowActivity": "flow", "ForEach": "forEach", "RepeatUntil": "repeatUntil", "CompensateScope": "compensateScope"}.get(kind, kind.lower())  # fmt: skip
    if isinstance(activity, Invoke | Receive | Reply):
        return f"{word} {activity.std.name or activity.operation}"
    return f"{word} {activity.std.name}".strip()


def _links_out(activity: Activity) -> Iterator[str]:
    """The links that leave an activity or something inside it, but for those of flows inside it."""
    yield from (one.link for one in activity.std.sources)
    own = set(activity.links) if isinstance(activity, FlowActivity) else set()
    for one in inside(activity):
        yield from (link for link in _links_out(one) if link not in own)
