"""Reads a condition's text into parts in plain Python, as far as that is surely what the language says.

Whoever asks what was read takes true and false for answers and hands the rest to the language itself, which alone says what an error is.
Members of unknown type, patterns and the rarer functions are passed over: `&&` and `||` may be decided without them. A text with anything
else in it is not read at all.

Only a text that compiles may be read: its types are then known to fit.
"""

from __future__ import annotations

import re

from forestay.domain.rules import condition_part as parts
from forestay.domain.rules.condition_part import COMPARED, LARGEST, NULL, UNREAD, ConditionPart, written
from forestay.domain.rules.context import BY_NAME, FieldType

MOST_TOKENS = 1_500
DEEPEST = 32
MOST_MACROS = 8
"""So many that stand beside each other stay far below the language's budget of iterations; nested ones may not."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<number>\d{1,15}\.\d{1,15}(?![\w.]))|(?P<int>(?:0|[1-9]\d{0,18})(?![\w.]))
    |"(?P<double>[^"\\\n]*)"|'(?P<single>[^'\\\n]*)'|(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]]))""",
    re.VERBOSE | re.ASCII,
)
_MACROS = frozenset({"exists", "all", "exists_one", "existsOne", "map", "filter"})


class NotPlainConditionError(Exception):
    """The text has something in it that is not read here."""


def read_condition(text: str) -> ConditionPart:
    """The whole text. Raises `NotPlainConditionError` where not even its shape is known."""
    tokens: list[tuple[str, str]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None or len(tokens) == MOST_TOKENS:
            raise NotPlainConditionError
        tokens.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    reader = _ConditionReader(tokens)
    whole = reader.expression()
    if reader.at != len(tokens):
        raise NotPlainConditionError
    return whole


class _ConditionReader:
    """One method for each level of the language's grammar."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens = [*tokens, ("end", "")]
        self.at = self.depth = self.macros = 0
        self.member = ""
        """The name by which a macro calls the member that it looks at."""

    def sign(self, *wanted: str) -> str:
        """The next token if it is one of these signs; it is then passed."""
        kind, sign = self.tokens[self.at]
        if kind != "sign" or sign not in wanted:
            return ""
        self.at += 1
        return sign

    def want(self, sign: str) -> None:
        if not self.sign(sign):
            raise NotPlainConditionError

    def name(self) -> str:
        kind, name = self.tokens[self.at]
        if kind != "name" or name in {"true", "false", "null", "in"}:
            raise NotPlainConditionError
        self.at += 1
        return name

    def follows(self, sign: str, after: int = 0) -> bool:
        return self.tokens[min(self.at + after, len(self.tokens) - 1)] == ("sign", sign)

    def expression(self) -> ConditionPart:
        self.depth += 1
        if self.depth > DEEPEST:
            raise NotPlainConditionError
        condition = self.either()
        if self.sign("?"):
            yes = self.either()
            self.want(":")
            condition = parts.choice(condition, yes, self.expression())
        self.depth -= 1
        return condition

    def either(self) -> ConditionPart:
        found_parts = [self.both()]
        while self.sign("||"):
            found_parts.append(self.both())
        return found_parts[0] if len(found_parts) == 1 else parts.joined(found_parts, any_=True)

    def both(self) -> ConditionPart:
        relations = [self.relation()]
        while self.sign("&&"):
            relations.append(self.relation())
        return relations[0] if len(relations) == 1 else parts.joined(relations, any_=False)

    def relation(self) -> ConditionPart:
        left = self.sum()
        for _ in range(DEEPEST):
            if self.tokens[self.at] == ("name", "in"):
                self.at += 1
                left = parts.within(left, self.sum())
            elif sign := self.sign(*COMPARED):
                left = parts.compared(sign, left, self.sum())
            else:
                return left
        raise NotPlainConditionError

    def sum(self) -> ConditionPart:
        left = self.product()
        for _ in range(DEEPEST):
            sign = self.sign("+", "-")
            if not sign:
                return left
            left = parts.counted(sign, left, self.product())
        raise NotPlainConditionError

    def product(self) -> ConditionPart:
        left = self.single()
        for _ in range(DEEPEST):
            sign = self.sign("*", "/", "%")
            if not sign:
                return left
            left = parts.counted(sign, left, self.single())
        raise NotPlainConditionError

    def single(self) -> ConditionPart:
        nots = minuses = 0
        while self.sign("!"):
            nots += 1
        while not nots and self.sign("-"):
            minuses += 1
        if minuses > 1:
            raise NotPlainConditionError
        part = self.whole()
        if minuses:
            return parts.negative(part)
        return parts.denied(part) if nots % 2 else part if not nots or part.kind == FieldType.TRUTH else UNREAD

    def whole(self) -> ConditionPart:
        """A primary and what is asked of it: members, places, methods."""
        part = self.primary()
        for _ in range(DEEPEST):
            if self.sign("."):
                name = self.name()
                part = self.method(part, name) if self.sign("(") else parts.at_key(part, written(FieldType.TEXT, name))
            elif self.sign("["):
                place = self.expression()
                self.want("]")
                part = parts.at_key(part, place) if part.kind == FieldType.WORDS else parts.at_place(part, place)
            else:
                return part
        raise NotPlainConditionError

    def primary(self) -> ConditionPart:
        kind, value = self.tokens[self.at]
        if kind == "name" and value not in {"true", "false", "null"}:
            return self.function() if self.follows("(", 1) else self.named()
        self.at += 1
        if kind in {"double", "single"}:
            return written(FieldType.TEXT, value)
        if kind == "int" and int(value) <= LARGEST:
            return written(FieldType.INT, int(value))
        if kind == "number":
            return written(FieldType.NUMBER, float(value))
        if kind == "name":
            return written(NULL, None) if value == "null" else written(FieldType.TRUTH, value == "true")
        if (kind, value) == ("sign", "("):
            inner = self.expression()
            self.want(")")
            return inner
        if (kind, value) == ("sign", "["):
            return parts.listed(self.several("]"))
        raise NotPlainConditionError

    def named(self) -> ConditionPart:
        """A field by its longest name, or the member that a macro looks at."""
        names = [self.name()]
        while self.follows(".") and self.tokens[self.at + 1][0] == "name" and not self.follows("(", 2):
            self.at += 1
            names.append(self.name())
        if names[0] == self.member:
            return parts.MEMBER if len(names) == 1 else UNREAD
        for length in range(len(names), 0, -1):
            field = BY_NAME.get(".".join(names[:length]))
            if field is not None:
                part = parts.of_field(field)
                for key in names[length:]:
                    part = parts.at_key(part, written(FieldType.TEXT, key))
                return part
        return UNREAD

    def function(self) -> ConditionPart:
        name = self.name()
        self.at += 1
        given_parts = self.several(")")
        by = {"size": parts.sized, "double": parts.fraction, "has": parts.has}.get(name)
        return by(given_parts[0]) if by is not None and len(given_parts) == 1 else UNREAD

    def method(self, on: ConditionPart, name: str) -> ConditionPart:
        if name in _MACROS:
            return self.macro(on, name)
        given_parts = self.several(")")
        if name == "size" and not given_parts:
            return parts.sized(on)
        return parts.asked_of_text(name, on, given_parts[0]) if len(given_parts) == 1 else UNREAD

    def macro(self, over: ConditionPart, name: str) -> ConditionPart:
        self.macros += 1
        if self.member or self.macros > MOST_MACROS:
            raise NotPlainConditionError
        self.member = self.name()
        self.want(",")
        given_parts = self.several(")")
        self.member = ""
        if name not in {"exists", "all"} or len(given_parts) != 1:
            return UNREAD
        return parts.of_members(over, given_parts[0], any_=name == "exists")

    def several(self, end: str) -> list[ConditionPart]:
        expressions: list[ConditionPart] = []
        while not self.sign(end):
            if expressions:
                self.want(",")
            expressions.append(self.expression())
        return expressions
