"""Parses XPath 1.0 expressions into trees. Length and nesting are bounded, so that parsing any text costs little."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

MAX_LENGTH = 4096
MAX_NESTING = 24

AXES = frozenset(
    {
        "child", "descendant", "parent", "ancestor", "following-sibling", "preceding-sibling", "following", "preceding",
        "attribute", "self", "descendant-or-self", "ancestor-or-self",
    }
)  # fmt: skip
# The wide range is separate: in one set with others it takes ten times as long to compile.
_NC = r"(?:[A-Za-z_]|[\u00c0-\uffff])(?:[A-Za-z0-9_.\-\u00b7]|[\u00c0-\uffff])*"
_BEFORE_OPERAND = frozenset({"@", "::", "(", "[", ",", "/", "//", "|", "+", "-", "=", "!=", "<", "<=", ">", ">="})
_WORDS = frozenset({"and", "or", "mod", "div"})
_LEVELS: tuple[frozenset[str], ...] = (
    frozenset({"or"}),
    frozenset({"and"}),
    frozenset({"=", "!="}),
    frozenset({"<", "<=", ">", ">="}),
    frozenset({"+", "-"}),
    frozenset({"*", "div", "mod"}),
)


@cache
def _token() -> re.Pattern[str]:
    """Compiled at the first expression: it takes as long as fifty other patterns, and few processes read XPath."""
    return re.compile(
        rf"""\s*(?:
        (?P<number>\d+(?:\.\d*)?|\.\d+)
        |(?P<literal>"[^"]*"|'[^']*')
        |(?P<variable>\$\s*{_NC}(?::{_NC})?)
        |(?P<sign>::|//|\.\.|!=|<=|>=|[.@()\[\],/|+=<>*-])
        |(?P<name>{_NC}(?::(?:{_NC}|\*))?)
        )""",
        re.VERBOSE,
    )


class XPathRefused(ValueError):
    """An expression that is not XPath 1.0, or uses an unsupported feature."""


@dataclass(frozen=True, slots=True)
class Number:
    value: float


@dataclass(frozen=True, slots=True)
class XPathLiteral:
    value: str


@dataclass(frozen=True, slots=True)
class XPathVariable:
    name: str


@dataclass(frozen=True, slots=True)
class XPathCall:
    space: str
    name: str
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    sign: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Negative:
    inner: Expr


@dataclass(frozen=True, slots=True)
class XPathStep:
    axis: str
    test: str
    """``*``, ``{namespace}*``, a name, or ``node()``, ``text()``, ``comment()``, ``processing-instruction()``."""
    predicates: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Path:
    """Steps from the root, from the context, or from the result of an expression."""

    absolute: bool
    start: Expr | None
    steps: tuple[XPathStep, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    inner: Expr
    predicates: tuple[Expr, ...]


Expr = Number | XPathLiteral | XPathVariable | XPathCall | Operation | Negative | Path | Filter


def parse_xpath(text: str, namespaces: Mapping[str, str]) -> Expr:
    """Read an expression; `XPathRefused`."""
    if len(text) > MAX_LENGTH:
        raise XPathRefused(f"an expression has at most {MAX_LENGTH} characters")
    reading = _XPathReading(_tokens(text), namespaces)
    expression = reading.expression(0)
    if reading.next() != ("end", ""):
        raise XPathRefused(f"{reading.next()[1]!r} was not expected")
    return expression


def _tokens(text: str) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    at, token = 0, _token()
    while at < len(text):
        if not text[at:].strip():
            break
        match = token.match(text, at)
        if match is None:
            raise XPathRefused(f"{text[at : at + 20]!r} is not XPath")
        kind = match.lastgroup or ""
        word = match[kind]
        operand_before = bool(out) and not (out[-1][0] == "operator" or out[-1][1] in _BEFORE_OPERAND)
        if operand_before and (word == "*" or word in _WORDS):
            kind = "operator"
        elif word == "*":
            kind = "name"
        out.append((kind, word.replace(" ", "") if kind == "variable" else word))
        at = match.end()
    return out


class _XPathReading:
    def __init__(self, tokens: list[tuple[str, str]], namespaces: Mapping[str, str]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.namespaces = namespaces

    def next(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def take(self) -> tuple[str, str]:
        found_next = self.next()
        self.at += 1
        return found_next

    def is_sign(self, *signs: str) -> bool:
        kind, word = self.next()
        return kind in ("sign", "operator") and word in signs

    def expect(self, sign: str) -> None:
        if not self.is_sign(sign):
            raise XPathRefused(f"{sign!r} was expected before {self.next()[1] or 'the end'!r}")
        self.at += 1

    def expression(self, level: int) -> Expr:
        self.depth += 1
        if self.depth > MAX_NESTING * (len(_LEVELS) + 3):
            raise XPathRefused(f"an expression is nested at most {MAX_NESTING} deep")
        if level == len(_LEVELS):
            unary = self.unary()
        else:
            unary = self.expression(level + 1)
            while self.is_sign(*_LEVELS[level]):
                sign = self.take()[1]
                unary = Operation(sign, unary, self.expression(level + 1))
        self.depth -= 1
        return unary

    def unary(self) -> Expr:
        negative = False
        seen = False
        while self.is_sign("-"):
            self.at += 1
            negative, seen = not negative, True
        unary = self.union()
        if not seen:
            return unary
        return Negative(unary) if negative else Negative(Negative(unary))

    def union(self) -> Expr:
        path = self.path()
        while self.is_sign("|"):
            self.at += 1
            path = Operation("|", path, self.path())
        return path

    def path(self) -> Expr:
        kind, _ = self.next()
        following = self.tokens[self.at + 1][1] if self.at + 1 < len(self.tokens) else ""
        primary = kind in ("number", "literal", "variable") or self.is_sign("(")
        primary = primary or (kind == "name" and following == "(" and self.next()[1] not in _NODE_TESTS)
        if not primary:
            return self.location()
        start = self.primary()
        predicates = self.predicates()
        if predicates:
            start = Filter(start, predicates)
        if self.is_sign("/", "//"):
            return Path(absolute=False, start=start, steps=tuple(self.steps()))
        return start

    def primary(self) -> Expr:
        kind, word = self.take()
        match kind:
            case "number":
                return Number(float(word))
            case "literal":
                return XPathLiteral(word[1:-1])
            case "variable":
                return XPathVariable(word[1:])
            case "sign":
                expression = self.expression(0)
                self.expect(")")
                return expression
        self.expect("(")
        arguments: list[Expr] = []
        while not self.is_sign(")"):
            arguments.append(self.expression(0))
            if not self.is_sign(","):
                break
            self.at += 1
        self.expect(")")
        prefix, sign, local = word.rpartition(":")
        return XPathCall(self.space(prefix) if sign else "", local, tuple(arguments))

    def space(self, prefix: str) -> str:
        if prefix not in self.namespaces:
            raise XPathRefused(f"the prefix {prefix!r} is not declared")
        return self.namespaces[prefix]

    def location(self) -> Path:
        if self.is_sign("/"):
            self.at += 1
            kind, word = self.next()
            if kind == "name" or (kind == "sign" and word in (".", "..", "@")):
                return Path(absolute=True, start=None, steps=(self.step(), *self.steps()))
            return Path(absolute=True, start=None, steps=())
        if self.is_sign("//"):
            return Path(absolute=True, start=None, steps=tuple(self.steps()))
        return Path(absolute=False, start=None, steps=(self.step(), *self.steps()))

    def steps(self) -> list[XPathStep]:
        out: list[XPathStep] = []
        while self.is_sign("/", "//"):
            if self.take()[1] == "//":
                out.append(XPathStep("descendant-or-self", "node()"))
            out.append(self.step())
        return out

    def step(self) -> XPathStep:
        kind, word = self.take()
        if kind == "sign" and word == ".":
            return XPathStep("self", "node()")
        if kind == "sign" and word == "..":
            return XPathStep("parent", "node()")
        axis = "child"
        if kind == "sign" and word == "@":
            axis = "attribute"
            kind, word = self.take()
        elif kind == "name" and self.is_sign("::"):
            if word not in AXES:
                raise XPathRefused(f"there is no axis {word!r} here")
            axis = word
            self.at += 1
            kind, word = self.take()
        if kind != "name":
            raise XPathRefused(f"a step was expected, not {word or 'the end'!r}")
        test = self.test(word)
        return XPathStep(axis, test, self.predicates())

    def test(self, word: str) -> str:
        if word in _NODE_TESTS and self.is_sign("("):
            self.at += 1
            if self.next()[0] == "literal":
                self.at += 1
            self.expect(")")
            return f"{word}()"
        prefix, sign, local = word.rpartition(":")
        return f"{{{self.space(prefix)}}}{local}" if sign else word

    def predicates(self) -> tuple[Expr, ...]:
        out: list[Expr] = []
        while self.is_sign("["):
            self.at += 1
            out.append(self.expression(0))
            self.expect("]")
        return tuple(out)


_NODE_TESTS = frozenset({"node", "text", "comment", "processing-instruction"})
