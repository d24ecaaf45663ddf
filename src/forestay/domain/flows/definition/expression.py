"""The small language of flows: references such as ``${tasks.align.result.reads}``, and conditions over them.

Rules are written in CEL. Flows are not: an expression of a flow is evaluated inside workflow code, which is replayed for as long as a
run lives. It must give the same answer in every version of every library, and workflow code imports the domain only. So the
language is tiny and total: no function, no arithmetic, no loop. A missing value is ``null``; values that cannot be compared are not equal, not
less and not greater. Length and depth are bounded.

A condition: ``tasks.count.result.reads >= 1000 and not (params.mode == 'quick' or params.mode in ['test', 'demo'])``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

MAX_LENGTH = 2000
MAX_DEPTH = 32
MAX_TEMPLATE = 131_072

Path = tuple[str, ...]
Values = Callable[[Path], object]
"""Returns the value of a reference; ``None`` if it is missing."""


class BadExpression(ValueError):
    """The text is not an expression; the message says where and what is allowed there."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal value."""

    value: object


@dataclass(frozen=True, slots=True)
class Reference:
    """The value of something in the run."""

    path: Path


@dataclass(frozen=True, slots=True)
class ListExpression:
    """A list of operands in brackets."""

    members: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class NotExpression:
    inner: Expression


@dataclass(frozen=True, slots=True)
class BinaryExpression:
    """Two expressions joined by a word or a sign."""

    sign: str
    left: Expression
    right: Expression


Expression = Literal | Reference | ListExpression | NotExpression | BinaryExpression

_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
_STEP = rf"\.(?:{_NAME}|[0-9]+)|\[[0-9]+\]"
_REFERENCE = re.compile(rf"{_NAME}(?:{_STEP})*")
_TOKEN = re.compile(
    rf"""\s*(?:
      (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
    | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | \$\{{\s*(?P<braced>{_NAME}(?:{_STEP})*)\s*\}}
    | (?P<name>{_NAME}(?:{_STEP})*)
    | (?P<sign>==|!=|<=|>=|<|>|\(|\)|\[|\]|,)
    )""",
    re.VERBOSE,
)
_PLACE = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_CONSTANTS: Mapping[str, object] = {"true": True, "false": False, "null": None}
_WORDS = frozenset({"and", "or", "not", "in"})
_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})


def split_path(text: str) -> Path:
    """``a.b[2].c`` as steps."""
    return tuple(part for part in re.split(r"[.\[\]]+", text) if part)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    place = 0
    while place < len(text.rstrip()):
        match = _TOKEN.match(text, place)
        if match is None:
            raise BadExpression(f"character {place + 1}: {text[place:].strip()[:12]!r} cannot be read")
        kind = match.lastgroup or ""
        word = match.group(kind)
        if kind == "name" and word in _WORDS:
            kind = "sign"
        tokens.append(_Token(kind, word, match.start(kind)))
        place = match.end()
    return tokens


class _ExpressionReader:
    """Reads tokens by precedence: or, and, not, comparison, operand."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.place = 0
        self.depth = 0

    def next_is(self, *signs: str) -> bool:
        if self.place >= len(self.tokens):
            return False
        token = self.tokens[self.place]
        return token.kind == "sign" and token.text in signs

    def take(self) -> _Token:
        if self.place >= len(self.tokens):
            raise BadExpression("it ends where a value is expected")
        self.place += 1
        return self.tokens[self.place - 1]

    def expect(self, sign: str) -> None:
        if not self.next_is(sign):
            raise BadExpression(f"{sign!r} is missing")
        self.place += 1

    def either(self) -> Expression:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise BadExpression(f"it is nested more than {MAX_DEPTH} deep")
        left = self.both()
        while self.next_is("or"):
            self.take()
            left = BinaryExpression("or", left, self.both())
        self.depth -= 1
        return left

    def both(self) -> Expression:
        left = self.negated()
        while self.next_is("and"):
            self.take()
            left = BinaryExpression("and", left, self.negated())
        return left

    def negated(self) -> Expression:
        times = 0
        while self.next_is("not"):
            self.take()
            times += 1
        inner = self.comparison()
        return inner if times == 0 else NotExpression(inner) if times % 2 else NotExpression(NotExpression(inner))

    def comparison(self) -> Expression:
        left = self.operand()
        if self.next_is(*_COMPARISONS):
            sign = self.take().text
            left = BinaryExpression(sign, left, self.operand())
            if self.next_is(*_COMPARISONS):
                raise BadExpression("comparisons are not chained; join two with 'and'")
        return left

    def operand(self) -> Expression:
        token = self.take()
        if token.kind == "number":
            return Literal(float(token.text) if re.search(r"[.eE]", token.text) else int(token.text))
        if token.kind == "text":
            return Literal(re.sub(r"\\(.)", r"\1", token.text[1:-1]))
        if token.kind == "braced":
            return Reference(split_path(token.text))
        if token.kind == "name":
            return Literal(_CONSTANTS[token.text]) if token.text in _CONSTANTS else Reference(split_path(token.text))
        if token.text == "(":
            inner = self.either()
            self.expect(")")
            return inner
        if token.text == "[":
            return self.listed()
        raise BadExpression(f"character {token.at + 1}: {token.text!r} is not allowed where a value is expected")

    def listed(self) -> Expression:
        members: list[Expression] = []
        while not self.next_is("]"):
            if members:
                self.expect(",")
            members.append(self.either())
        self.expect("]")
        return ListExpression(tuple(members))


@lru_cache(maxsize=1024)
def parse_condition(text: str) -> Expression:
    """Read a condition; raises `BadExpression`."""
    if len(text) > MAX_LENGTH:
        raise BadExpression(f"it is longer than {MAX_LENGTH} characters")
    reader = _ExpressionReader(text)
    if not reader.tokens:
        raise BadExpression("it is empty")
    either = reader.either()
    if reader.place < len(reader.tokens):
        token = reader.tokens[reader.place]
        raise BadExpression(f"character {token.at + 1}: {token.text!r} is unexpected")
    return either


def holds(condition: str, values: Values) -> bool:
    """Whether a condition is true; only ``true`` itself is. One that cannot be read does not hold."""
    try:
        return evaluate(parse_condition(condition), values) is True
    except BadExpression:
        return False


def evaluate(expression: Expression, values: Values) -> object:
    """The value of an expression. Total: it never fails."""
    match expression:
        case Literal(value):
            return value
        case Reference(path):
            return values(path)
        case ListExpression(members):
            return [evaluate(member, values) for member in members]
        case NotExpression(inner):
            return evaluate(inner, values) is not True
        case BinaryExpression("and", left, right):
            return evaluate(left, values) is True and evaluate(right, values) is True
        case BinaryExpression("or", left, right):
            return evaluate(left, values) is True or evaluate(right, values) is True
        case BinaryExpression(sign, left, right):
            return _compare(sign, evaluate(left, values), evaluate(right, values))


def _compare(sign: str, left: object, right: object) -> bool:
    if sign == "==":
        return same(left, right)
    if sign == "!=":
        return not same(left, right)
    if sign == "in":
        if isinstance(right, str):
            return isinstance(left, str) and left in right
        if isinstance(right, Mapping):
            return isinstance(left, str) and left in right
        return isinstance(right, Sequence) and any(same(left, member) for member in right)
    numbers = _number(left) and _number(right)
    if not numbers and not (isinstance(left, str) and isinstance(right, str)):
        return False
    less: bool = left < right  # type: ignore[operator]
    more: bool = left > right  # type: ignore[operator]
    return {"<": less, ">": more, "<=": not more, ">=": not less}[sign]


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(left: object, right: object) -> bool:
    """Equality of JSON values: a boolean is not a number."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


def references(expression: Expression) -> Iterator[Path]:
    """Every reference in an expression, from left to right."""
    match expression:
        case Reference(path):
            yield path
        case ListExpression(members):
            for member in members:
                yield from references(member)
        case NotExpression(inner):
            yield from references(inner)
        case BinaryExpression(_, left, right):
            yield from references(left)
            yield from references(right)
        case Literal():
            return


@lru_cache(maxsize=4096)
def parse_template(text: str) -> tuple[str | Reference, ...]:
    """A text with ``${reference}`` in it, as its parts; ``$${`` stands for ``${`` itself. Raises `BadExpression`."""
    if len(text) > MAX_TEMPLATE:
        raise BadExpression(f"it is longer than {MAX_TEMPLATE} characters")
    parts: list[str | Reference] = []
    end = 0
    for match in _PLACE.finditer(text):
        parts.append(text[end : match.start()])
        end = match.end()
        if match.group(1) is None:
            parts.append("${")
            continue
        inner = match.group(1).strip()
        if not _REFERENCE.fullmatch(inner):
            raise BadExpression(f"${{{inner}}} is not a reference; an example is ${{tasks.align.outputs.bam}}")
        parts.append(Reference(split_path(inner)))
    rest = text[end:]
    if "${" in rest:
        raise BadExpression("a '${' has no '}'; write '$${' for the characters themselves")
    parts.append(rest)
    return tuple(_joined(parts))


def _joined(parts: Sequence[str | Reference]) -> Iterator[str | Reference]:
    pending = ""
    for part in parts:
        if isinstance(part, str):
            pending += part
            continue
        if pending:
            yield pending
        pending = ""
        yield part
    if pending:
        yield pending


def template_references(text: str) -> Iterator[Path]:
    """Every reference in a text."""
    for part in parse_template(text):
        if isinstance(part, Reference):
            yield part.path


def fill(text: str, values: Values) -> object:
    """A text with its references filled in; a text that is one reference only gives the value itself, whatever it is."""
    try:
        parts = parse_template(text)
    except BadExpression:
        return text
    if len(parts) == 1 and isinstance(parts[0], Reference):
        return values(parts[0].path)
    return "".join(part if isinstance(part, str) else as_text(values(part.path)) for part in parts)


def as_text(value: object) -> str:
    """A value inside a text: a text unchanged, nothing for a missing value, anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, sort_keys=True, separators=(",", ":"))


def inside(value: object, steps: Path) -> object:
    """The value at a path inside a JSON value; ``None`` if the path leads nowhere."""
    for step in steps:
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            place = int(step) if step.isdecimal() else -1
            value = value[place] if 0 <= place < len(value) else None
        else:
            return None
    return value
