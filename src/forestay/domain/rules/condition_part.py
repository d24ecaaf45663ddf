"""Parts of a condition in plain Python, and how larger ones are made of smaller ones.

Texts, whole numbers, fractions and truths are compared, counted with and looked up alike in both languages. What is not alike, or not
known, is left open: asking it raises, and so does everything that would be an error of the conditions' own language. `&&` and `||` are then
as they are there: a false part makes a conjunction false, whatever else errs.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add, contains, eq, ge, gt, le, lt, mul, ne, sub, truediv
from typing import Any, NamedTuple

from forestay.domain.rules.context import Context, Field, FieldType

Ask = Callable[[Context, Any], Any]
"""What a part comes to, over a context and the member that a macro looks at. Raises one of `OPEN` where only the language can tell."""
OPEN = (ArithmeticError, LookupError, TypeError)

LARGEST = 2**63 - 1
NULL, _LIST, _UNREAD = "null", "list", ""

COMPARED: dict[str, Callable[[Any, Any], bool]] = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ORDERED = frozenset({FieldType.INT, FieldType.NUMBER, FieldType.TEXT})
_SIZED = frozenset({FieldType.TEXT, FieldType.TEXTS, FieldType.WORDS})
_KEYED = frozenset({FieldType.TEXTS, FieldType.WORDS, FieldType.DATA})


class FieldComparison(NamedTuple):
    """A field compared with a value."""

    field: str
    sign: str
    """Beside the language's own: `has`, a map has a key; `among`, the value is one of some."""
    value: str | int | float | bool | tuple[str | int, ...] | None


class ConditionPart(NamedTuple):
    """A part of a condition that was read."""

    kind: str
    """A `FieldType`, or one of the few that no field has."""
    ask: Ask
    field: str = ""
    """It is this field, and nothing else."""
    nullable: bool = False
    value: Any = None
    """What it is, where it is written in the text."""
    is_written: bool = False
    comparisons: tuple[FieldComparison, ...] = ()
    """If one of them is false, so is the part."""
    member: FieldComparison | None = None
    """It is a member of a map, which is there if this holds."""


def _open(_context: Context, _member: Any) -> Any:
    raise LookupError


UNREAD = ConditionPart(_UNREAD, _open)
MEMBER = ConditionPart(FieldType.TEXT, lambda _, member: member)
"""What a macro looks at: a line of a list of texts, or a key of a map."""


def of_field(field: Field) -> ConditionPart:
    name = field.name
    truth = (FieldComparison(name, "==", value=True),) if field.kind is FieldType.TRUTH else ()
    return ConditionPart(field.kind, lambda context, _: context[name], name, field.optional, comparisons=truth)


def written(kind: str, value: Any) -> ConditionPart:
    return ConditionPart(kind, lambda _c, _m: value, value=value, is_written=True, nullable=value is None)


def listed(members: list[ConditionPart]) -> ConditionPart:
    kinds = {part.kind for part in members}
    if len(kinds) != 1 or not all(part.is_written for part in members) or not kinds & _ORDERED:
        return UNREAD
    values = tuple(part.value for part in members)
    return ConditionPart(_LIST, _open, value=(kinds.pop(), values), is_written=True)


def joined(parts: list[ConditionPart], *, any_: bool) -> ConditionPart:
    """Parts joined by `||` (any of them) or `&&`."""
    if not any(part.kind == FieldType.TRUTH for part in parts):
        return UNREAD
    asks = tuple(part.ask for part in parts)

    def ask(context: Context, member: Any) -> Any:
        left_open = False
        for other_ask in asks:
            try:
                if other_ask(context, member) is any_:
                    return any_
            except OPEN:
                left_open = True
        if left_open:
            raise LookupError
        return not any_

    comparisons = () if any_ else tuple(comparison for part in parts for comparison in part.comparisons)
    return ConditionPart(FieldType.TRUTH, ask, comparisons=comparisons)


def of_members(over: ConditionPart, body: ConditionPart, *, any_: bool) -> ConditionPart:
    """`exists` and `all`: `||` and `&&` over the members of a list, or the keys of a map."""
    if over.kind not in {FieldType.TEXTS, FieldType.WORDS} or body.kind != FieldType.TRUTH:
        return UNREAD
    members, asked = over.ask, body.ask

    def ask(context: Context, member: Any) -> Any:
        left_open = False
        for other_member in members(context, member):
            try:
                if asked(context, other_member) is any_:
                    return any_
            except OPEN:
                left_open = True
        if left_open:
            raise LookupError
        return not any_

    return ConditionPart(FieldType.TRUTH, ask)


def denied(part: ConditionPart) -> ConditionPart:
    if part.kind != FieldType.TRUTH:
        return UNREAD
    ask = part.ask
    comparisons = (FieldComparison(part.field, "==", value=False),) if part.field else ()
    return ConditionPart(FieldType.TRUTH, lambda context, member: not ask(context, member), comparisons=comparisons)


def choice(condition: ConditionPart, yes: ConditionPart, no: ConditionPart) -> ConditionPart:
    kind = yes.kind or no.kind
    if condition.kind != FieldType.TRUTH or (no.kind or kind) != kind or kind not in {*_ORDERED, FieldType.TRUTH}:
        return UNREAD
    asked, so, other = condition.ask, yes.ask, no.ask
    return ConditionPart(
        kind,
        lambda context, member: so(context, member) if asked(context, member) else other(context, member),
        nullable=yes.nullable or no.nullable,
    )


def compared(sign: str, left: ConditionPart, right: ConditionPart) -> ConditionPart:
    if left.is_written and not right.is_written:
        sign, left, right = _MIRRORED[sign], right, left
    orders = sign not in {"==", "!="}
    if right.kind == NULL:
        if not left.nullable or orders:
            return UNREAD
    elif left.kind != right.kind or (left.kind not in _ORDERED and (orders or left.kind != FieldType.TRUTH)):
        return UNREAD
    holds, ask = COMPARED[sign], left.ask
    if right.is_written:
        name, value = left.field, right.value
        if not name:
            return ConditionPart(FieldType.TRUTH, lambda context, member: holds(ask(context, member), value))
        comparisons = () if orders and left.kind == FieldType.TEXT else (FieldComparison(name, sign, value),)
        return ConditionPart(FieldType.TRUTH, lambda context, _: holds(context[name], value), comparisons=comparisons)
    other = right.ask
    return ConditionPart(FieldType.TRUTH, lambda context, member: holds(ask(context, member), other(context, member)))


def within(left: ConditionPart, right: ConditionPart) -> ConditionPart:
    ask, comparisons = left.ask, tuple[FieldComparison, ...]()
    if right.kind == _LIST:
        kind, values = right.value
        if left.kind != kind:
            return UNREAD
        if left.field and kind in {FieldType.TEXT, FieldType.INT}:
            comparisons = (FieldComparison(left.field, "among", values),)
        return ConditionPart(
            FieldType.TRUTH, lambda context, member: ask(context, member) in values, comparisons=comparisons
        )
    if left.kind != FieldType.TEXT or right.kind not in _KEYED:
        return UNREAD
    if left.is_written and right.field and right.kind != FieldType.TEXTS:
        comparisons = (FieldComparison(right.field, "has", left.value),)
    among = right.ask
    return ConditionPart(
        FieldType.TRUTH, lambda context, member: ask(context, member) in among(context, member), comparisons=comparisons
    )


def has(part: ConditionPart) -> ConditionPart:
    if part.member is None:
        return UNREAD
    name, _, key = part.member

    def ask(context: Context, _: Any) -> bool:
        keys: Any = context[name]
        return key in keys

    return ConditionPart(FieldType.TRUTH, ask, comparisons=(part.member,))


def at_key(part: ConditionPart, key: ConditionPart) -> ConditionPart:
    """A member of a map; asking for one that is not there is an error."""
    comparison = (
        FieldComparison(part.field, "has", key.value)
        if part.field and key.is_written and key.kind == FieldType.TEXT
        else None
    )
    if part.kind == FieldType.DATA:
        return ConditionPart(_UNREAD, _open, member=comparison)
    if part.kind != FieldType.WORDS or key.kind != FieldType.TEXT:
        return UNREAD
    ask, name = part.ask, key.ask
    return ConditionPart(
        FieldType.TEXT, lambda context, member: ask(context, member)[name(context, member)], member=comparison
    )


def at_place(part: ConditionPart, place: ConditionPart) -> ConditionPart:
    # A place counted from the end is Python's habit, and an error of the language.
    if part.kind != FieldType.TEXTS or place.kind != FieldType.INT or not place.is_written or place.value < 0:
        return UNREAD
    ask, number = part.ask, place.value
    return ConditionPart(FieldType.TEXT, lambda context, member: ask(context, member)[number])


def sized(part: ConditionPart) -> ConditionPart:
    if part.kind not in _SIZED:
        return UNREAD
    ask = part.ask
    return ConditionPart(FieldType.INT, lambda context, member: len(ask(context, member)))


def fraction(part: ConditionPart) -> ConditionPart:
    if part.kind != FieldType.INT:
        return UNREAD
    ask = part.ask
    return ConditionPart(FieldType.NUMBER, lambda context, member: float(ask(context, member)))


def asked_of_text(name: str, on: ConditionPart, part: ConditionPart) -> ConditionPart:
    if (on.kind, part.kind) != (FieldType.TEXT, FieldType.TEXT) or name not in _OF_TEXTS:
        return UNREAD
    by, ask, other = _OF_TEXTS[name], on.ask, part.ask
    return ConditionPart(FieldType.TRUTH, lambda context, member: by(ask(context, member), other(context, member)))


def negative(part: ConditionPart) -> ConditionPart:
    if part.kind not in {FieldType.INT, FieldType.NUMBER}:
        return UNREAD
    if part.is_written:
        return written(part.kind, -part.value)
    ask = part.ask
    # The smallest whole number is the one whose negative does not fit.
    return ConditionPart(
        part.kind, _fitting(lambda c, m: -ask(c, m)) if part.kind == FieldType.INT else lambda c, m: -ask(c, m)
    )


def counted(sign: str, left: ConditionPart, right: ConditionPart) -> ConditionPart:
    if (
        left.kind != right.kind
        or left.kind not in {FieldType.INT, FieldType.NUMBER}
        or (left.kind, sign) == (FieldType.NUMBER, "%")
    ):
        return UNREAD
    ask, other = left.ask, right.ask
    if left.kind == FieldType.NUMBER:
        by = _OF_FRACTIONS[sign]
        return ConditionPart(FieldType.NUMBER, lambda context, member: by(ask(context, member), other(context, member)))
    by = _OF_WHOLE[sign]
    return ConditionPart(
        FieldType.INT, _fitting(lambda context, member: by(ask(context, member), other(context, member)))
    )


def _fitting(ask: Ask) -> Ask:
    def fits(context: Context, member: Any) -> int:
        fitting: int = ask(context, member)
        if not -LARGEST <= fitting <= LARGEST:
            raise OverflowError
        return fitting

    return fits


def _whole_times(dividend: int, other: int) -> int:
    """The language rounds towards nought, Python downwards."""
    times = abs(dividend) // abs(other)
    return times if (dividend < 0) == (other < 0) else -times


def _left_over(dividend: int, other: int) -> int:
    return dividend - other * _whole_times(dividend, other)


_OF_TEXTS: dict[str, Callable[[str, str], bool]] = {
    "contains": contains, "startsWith": str.startswith, "endsWith": str.endswith,
}  # fmt: skip
_OF_FRACTIONS: dict[str, Callable[[Any, Any], Any]] = {"+": add, "-": sub, "*": mul, "/": truediv}
_OF_WHOLE: dict[str, Callable[[Any, Any], Any]] = {"+": add, "-": sub, "*": mul, "/": _whole_times, "%": _left_over}
