"""The checks of a whole process before it is run: names exist, links are complete, handlers are where they belong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from forestay_bpel.domain.bpel.process import (
    Activity,
    Assign,
    Compensate,
    CompensateScope,
    Correlation,
    FlowActivity,
    ForEach,
    Invoke,
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
    While,
    every,
    inside,
)
from forestay_bpel.domain.bpel.report import ImportEntry, ImportStatus


def check_process(process: Process) -> Iterator[ImportEntry]:
    """All errors, as entries of the report."""
    yield from _start(process)
    yield from _Walk().look(process.scope, _KnownNames())


def _wrong(line: int, construct: str, note: str) -> ImportEntry:
    return ImportEntry(line, construct, ImportStatus.REFUSED, note)


def _start(process: Process) -> Iterator[ImportEntry]:
    begins = [
        activity for activity in every(process.scope) if (isinstance(activity, Receive) and activity.create) or (isinstance(activity, Pick) and activity.create)
    ]  # fmt: skip
    if not begins:
        yield _wrong(
            process.scope.std.line, "process", "nothing creates an instance: no receive or pick has createInstance"
        )
    sets = [{correlation.set for correlation in _joined(begin)} for begin in begins]
    if len(begins) > 1 and any(not set_ or set_ != sets[0] for set_ in sets):
        yield _wrong(begins[1].std.line, "process", "activities that create one instance share a correlation set with initiate=\"join\"")  # fmt: skip


def _joined(activity: Activity) -> Iterator[Correlation]:
    if isinstance(activity, Receive):
        yield from activity.correlations
    elif isinstance(activity, Pick):
        for message in activity.messages:
            yield from message.correlations


@dataclass(frozen=True, slots=True)
class _KnownNames:
    variables: frozenset[str] = frozenset()
    partners: frozenset[str] = frozenset()
    sets: frozenset[str] = frozenset()
    links: frozenset[str] = frozenset()
    """The links of the enclosing flows; a loop hides them."""
    faulted: bool = False
    """Inside a fault handler."""
    compensable: frozenset[str] | None = None
    """Inside a fault, compensation or termination handler: the scopes that the handler may compensate."""


class _Walk:
    def look(self, activity: Activity, known: _KnownNames) -> Iterator[ImportEntry]:
        for link in (*(source.link for source in activity.std.sources), *activity.std.targets):
            if link not in known.links:
                yield _wrong(
                    activity.std.line,
                    "link",
                    f"{link}: no enclosing flow has it, or it would cross the boundary of a loop or handler",
                )
        if isinstance(activity, Scope):
            yield from self.scope(activity, known)
            return
        yield from self.names(activity, known)
        inner = known
        match activity:
            case FlowActivity():
                yield from self.flow(activity)
                inner = replace(known, links=known.links | set(activity.links))
            case While() | RepeatUntil():
                inner = replace(known, links=frozenset())
            case ForEach():
                inner = replace(known, links=frozenset(), variables=known.variables | {activity.counter})
            case Rethrow() if not known.faulted:
                yield _wrong(activity.std.line, "rethrow", "it is allowed in a fault handler only")
            case Compensate() if known.compensable is None:
                yield _wrong(
                    activity.std.line,
                    "compensate",
                    "it is allowed in a fault, compensation or termination handler only",
                )
            case CompensateScope():
                if known.compensable is None:
                    yield _wrong(activity.std.line, "compensateScope", "it is allowed in a fault, compensation or termination handler only")  # fmt: skip
                elif activity.target not in known.compensable:
                    yield _wrong(activity.std.line, "compensateScope", f"there is no scope {activity.target} directly inside the handled scope")  # fmt: skip
            case _:
                pass
        for other_activity in inside(activity):
            yield from self.look(other_activity, inner)

    def scope(self, scope: Scope, known: _KnownNames) -> Iterator[ImportEntry]:
        own = replace(
            known,
            variables=known.variables | {variable.name for variable in scope.variables},
            partners=known.partners | {partner.name for partner in scope.partners},
            sets=known.sets | {correlation_set.name for correlation_set in scope.sets},
        )
        yield from self.look(scope.inner, own)
        named = frozenset(_named(scope))
        handling = replace(own, compensable=named)
        for catch in scope.catches:
            seen = handling.variables | ({catch.variable} if catch.variable else set())
            yield from self.look(catch.inner, replace(handling, faulted=True, variables=seen))
        if scope.catch_all is not None:
            yield from self.look(scope.catch_all, replace(handling, faulted=True))
        for handler in (scope.compensation, scope.termination):
            if handler is not None:
                yield from self.look(handler, replace(handling, links=frozenset(), faulted=False))
        events = replace(own, links=frozenset())
        for event in scope.messages:
            seen = events.variables | ({event.variable} if event.variable else set())
            seen |= {from_part.variable for from_part in event.from_parts}
            sets = (
                events.sets | {correlation_set.name for correlation_set in event.inner.sets}
                if isinstance(event.inner, Scope)
                else events.sets
            )
            yield from self.message(event, replace(events, variables=seen, sets=sets), "onEvent")
            yield from self.look(event.inner, replace(events, variables=seen))
        for alarm in scope.alarms:
            yield from self.look(alarm.inner, events)

    def flow(self, flow: FlowActivity) -> Iterator[ImportEntry]:
        leaving: dict[str, list[Activity]] = {link: [] for link in flow.links}
        arriving: dict[str, list[Activity]] = {link: [] for link in flow.links}
        for activity in every(flow):
            for source in activity.std.sources:
                leaving.get(source.link, []).append(activity)
            for target in activity.std.targets:
                arriving.get(target, []).append(activity)
        for link in flow.links:
            if len(leaving[link]) != 1 or len(arriving[link]) != 1:
                yield _wrong(flow.std.line, "link", f"{link} leaves one activity and arrives at one")
        yield from self.circles(flow, leaving, arriving)

    @staticmethod
    def circles(
        flow: FlowActivity, leaving: dict[str, list[Activity]], arriving: dict[str, list[Activity]]
    ) -> Iterator[ImportEntry]:
        after: dict[int, set[int]] = {}
        above: dict[int, int] = {}
        for activity in every(flow):
            for inner in inside(activity):
                above[id(inner)] = id(activity)
        for link in flow.links:
            for activity in leaving[link]:
                for other in arriving[link]:
                    after.setdefault(id(activity), set()).add(id(other))
        for start in list(after):
            seen: set[int] = set()
            waiting = list(after[start])
            while waiting:
                one_id = waiting.pop()
                if one_id in seen:
                    continue
                seen.add(one_id)
                waiting += after.get(one_id, set())
            if start in seen:
                yield _wrong(flow.std.line, "link", "the links form a cycle")
                return

    def names(self, activity: Activity, known: _KnownNames) -> Iterator[ImportEntry]:
        line = activity.std.line
        match activity:
            case Receive() | Reply():
                yield from self.message(activity, known, type(activity).__name__.lower())
            case Invoke():
                yield from self.message(activity, known, "invoke")
            case Pick():
                for message in activity.messages:
                    yield from self.message(message, known, "onMessage")
            case Throw(variable=variable) if variable:
                yield from self.variable(variable, known, line, "throw")
            case Validate(variables=variables):
                for name in variables:
                    yield from self.variable(name, known, line, "validate")
            case Assign(copies=copies):
                for copy in copies:
                    for name in (copy.from_.variable, copy.to.variable):
                        if name:
                            yield from self.variable(name, known, copy.to.line, "copy")
            case _:
                pass

    def message(
        self, activity: Receive | Reply | Invoke | OnMessage, known: _KnownNames, construct: str
    ) -> Iterator[ImportEntry]:
        line = activity.line if isinstance(activity, OnMessage) else activity.std.line
        if activity.partner not in known.partners:
            yield _wrong(line, construct, f"there is no partner link {activity.partner}")
        names = [activity.input, activity.output] if isinstance(activity, Invoke) else [activity.variable]
        parts = [*getattr(activity, "to_parts", ()), *getattr(activity, "from_parts", ())]
        for name in (*names, *(part.variable for part in parts)):
            if name:
                yield from self.variable(name, known, line, construct)
        for correlation in activity.correlations:
            if correlation.set not in known.sets:
                yield _wrong(line, construct, f"there is no correlation set {correlation.set}")

    @staticmethod
    def variable(name: str, known: _KnownNames, line: int, construct: str) -> Iterator[ImportEntry]:
        if name not in known.variables:
            yield _wrong(line, construct, f"there is no variable {name}")


def _named(scope: Scope) -> Iterator[str]:
    """The names of the scopes directly inside a scope."""
    waiting: list[Activity] = [scope.inner]
    while waiting:
        activity = waiting.pop()
        if isinstance(activity, Scope):
            yield activity.std.name
        else:
            waiting += inside(activity)
