"""A WS-BPEL 2.0 process as values. Every activity knows its line; expressions are read already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from forestay_bpel.domain.bpel.xpath import XPath
from forestay_bpel.domain.xml_tree import XmlElement


@dataclass(frozen=True, slots=True)
class Expression:
    xpath: XPath
    line: int


@dataclass(frozen=True, slots=True)
class Source:
    """The end of a link at the activity that it leaves."""

    link: str
    condition: Expression | None = None


@dataclass(frozen=True, slots=True)
class Standard:
    """The standard attributes and elements of every activity."""

    name: str = ""
    line: int = 0
    sources: tuple[Source, ...] = ()
    targets: tuple[str, ...] = ()
    join: Expression | None = None
    suppress: bool = False
    """A failed join is skipped instead of being a fault."""


@dataclass(frozen=True, slots=True)
class Correlation:
    set: str
    initiate: str = "no"
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class MessagePart:
    """A part of a message, and its source or target variable."""

    part: str
    variable: str


@dataclass(frozen=True, slots=True)
class FromSpec:
    line: int
    variable: str = ""
    part: str = ""
    property: str = ""
    query: Expression | None = None
    expression: Expression | None = None
    literal: XmlElement | None = None
    """The ``literal`` element itself."""
    partner: str = ""
    empty: bool = False


@dataclass(frozen=True, slots=True)
class ToSpec:
    line: int
    variable: str = ""
    part: str = ""
    property: str = ""
    query: Expression | None = None
    expression: Expression | None = None
    partner: str = ""


@dataclass(frozen=True, slots=True)
class Copy:
    from_: FromSpec
    to: ToSpec
    keep_name: bool = False
    ignore_missing: bool = False


@dataclass(frozen=True, slots=True)
class VariableDeclaration:
    name: str
    line: int
    message: str = ""
    type: str = ""
    element: str = ""
    first: FromSpec | None = None


@dataclass(frozen=True, slots=True)
class PartnerLink:
    name: str
    line: int
    type: str = ""
    my_role: str = ""
    partner_role: str = ""


@dataclass(frozen=True, slots=True)
class CorrelationSet:
    name: str
    properties: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Empty:
    std: Standard


@dataclass(frozen=True, slots=True)
class Exit:
    std: Standard


@dataclass(frozen=True, slots=True)
class Validate:
    std: Standard
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Throw:
    std: Standard
    fault: str
    variable: str = ""


@dataclass(frozen=True, slots=True)
class Rethrow:
    std: Standard


@dataclass(frozen=True, slots=True)
class Wait:
    std: Standard
    for_: Expression | None = None
    until: Expression | None = None


@dataclass(frozen=True, slots=True)
class Assign:
    std: Standard
    copies: tuple[Copy, ...]


@dataclass(frozen=True, slots=True)
class Invoke:
    std: Standard
    partner: str
    operation: str
    input: str = ""
    output: str = ""
    to_parts: tuple[MessagePart, ...] = ()
    from_parts: tuple[MessagePart, ...] = ()
    correlations: tuple[Correlation, ...] = ()


@dataclass(frozen=True, slots=True)
class Receive:
    std: Standard
    partner: str
    operation: str
    variable: str = ""
    create: bool = False
    exchange: str = ""
    from_parts: tuple[MessagePart, ...] = ()
    correlations: tuple[Correlation, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    std: Standard
    partner: str
    operation: str
    variable: str = ""
    fault: str = ""
    exchange: str = ""
    to_parts: tuple[MessagePart, ...] = ()
    correlations: tuple[Correlation, ...] = ()


@dataclass(frozen=True, slots=True)
class Sequence:
    std: Standard
    inner: tuple[Activity, ...]


@dataclass(frozen=True, slots=True)
class FlowActivity:
    std: Standard
    links: tuple[str, ...]
    inner: tuple[Activity, ...]


@dataclass(frozen=True, slots=True)
class If:
    std: Standard
    branches: tuple[tuple[Expression, Activity], ...]
    otherwise: Activity | None = None


@dataclass(frozen=True, slots=True)
class While:
    std: Standard
    condition: Expression
    inner: Activity


@dataclass(frozen=True, slots=True)
class RepeatUntil:
    std: Standard
    condition: Expression
    inner: Activity


@dataclass(frozen=True, slots=True)
class ForEach:
    std: Standard
    counter: str
    first: Expression
    last: Expression
    inner: Scope
    parallel: bool = False
    branches: Expression | None = None
    """The number of rounds that suffices."""
    only_good: bool = False


@dataclass(frozen=True, slots=True)
class OnMessage:
    """A message that a pick or an event handler waits for."""

    line: int
    partner: str
    operation: str
    inner: Activity
    variable: str = ""
    message: str = ""
    element: str = ""
    exchange: str = ""
    from_parts: tuple[MessagePart, ...] = ()
    correlations: tuple[Correlation, ...] = ()


@dataclass(frozen=True, slots=True)
class OnAlarm:
    line: int
    inner: Activity
    for_: Expression | None = None
    until: Expression | None = None
    every: Expression | None = None


@dataclass(frozen=True, slots=True)
class Pick:
    std: Standard
    messages: tuple[OnMessage, ...]
    alarms: tuple[OnAlarm, ...] = ()
    create: bool = False


@dataclass(frozen=True, slots=True)
class Catch:
    line: int
    inner: Activity
    fault: str = ""
    variable: str = ""
    message: str = ""
    element: str = ""


@dataclass(frozen=True, slots=True)
class Compensate:
    std: Standard


@dataclass(frozen=True, slots=True)
class CompensateScope:
    std: Standard
    target: str


@dataclass(frozen=True, slots=True)
class Scope:
    """A scope; a process is one too, and so is an invoke with handlers of its own."""

    std: Standard
    inner: Activity
    variables: tuple[VariableDeclaration, ...] = ()
    partners: tuple[PartnerLink, ...] = ()
    sets: tuple[CorrelationSet, ...] = ()
    catches: tuple[Catch, ...] = ()
    catch_all: Activity | None = None
    compensation: Activity | None = None
    termination: Activity | None = None
    messages: tuple[OnMessage, ...] = ()
    alarms: tuple[OnAlarm, ...] = ()
    isolated: bool = False
    exit_on_standard: bool = False


Activity = (
    Empty | Exit | Validate | Throw | Rethrow | Wait | Assign | Invoke | Receive | Reply | Sequence | FlowActivity | If | While
    | RepeatUntil | ForEach | Pick | Compensate | CompensateScope | Scope
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Alias:
    """The location of a property in a message, or in an element."""

    property: str
    message: str = ""
    element: str = ""
    part: str = ""
    query: Expression | None = None


@dataclass(frozen=True, slots=True)
class Process:
    name: str
    scope: Scope
    aliases: tuple[Alias, ...] = field(default_factory=tuple)


def inside(activity: Activity) -> Iterator[Activity]:
    """The activities directly inside another, including those of its handlers."""
    match activity:
        case Sequence(inner=many) | FlowActivity(inner=many):
            yield from many
        case If(branches=branches, otherwise=otherwise):
            yield from (branch for _, branch in branches)
            if otherwise is not None:
                yield otherwise
        case While(inner=inner) | RepeatUntil(inner=inner) | ForEach(inner=inner):
            yield inner
        case Pick(messages=messages, alarms=alarms):
            yield from (message.inner for message in messages)
            yield from (alarm.inner for alarm in alarms)
        case Scope():
            yield activity.inner
            yield from handlers(activity)


def handlers(scope: Scope) -> Iterator[Activity]:
    yield from (catch.inner for catch in scope.catches)
    yield from (handler for handler in (scope.catch_all, scope.compensation, scope.termination) if handler is not None)
    yield from (message.inner for message in scope.messages)
    yield from (alarm.inner for alarm in scope.alarms)


def every(activity: Activity) -> Iterator[Activity]:
    """An activity and all inside it."""
    waiting = [activity]
    while waiting:
        returned_activity = waiting.pop()
        yield returned_activity
        waiting.extend(reversed(list(inside(returned_activity))))
