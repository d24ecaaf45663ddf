"""Rules as nobody would write them: grown from the language's grammar, cut, joined and mangled."""

from __future__ import annotations

import random
from collections.abc import Callable

from forestay.domain.rules.context import FIELDS, FieldType

BY_KIND = {kind: [field.name for field in FIELDS if field.kind is kind] for kind in FieldType}
TEXTS = [
    "memory",
    "disk",
    "",
    "a",
    "running",
    "node-17",
    "(a+)+$",
    "[",
    "ü",
    "\\u0000",
    "2020-01-01T00:00:00Z",
    "%",
    "1e5",
]
NUMBERS = ["0", "1", "-1", "137", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "0x7f", "3u"]
DOUBLES = ["0.0", "0.75", "1e308", "-1.5", "1e400"]
SCRAPS = [
    "&&",
    "||",
    "!",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "?",
    ":",
    ".",
    ",",
    "==",
    "null",
    "in",
    "-",
    "%",
    "'",
    '"',
    "\\",
    "\n",
    "\t",
    "é",
    "\x00",
]


def condition(chance: random.Random) -> str:
    """One text: mostly of the right types, sometimes of none."""
    text = _truth(chance, chance.choice((1, 2, 3, 4, 6)))
    kind = chance.random()
    if kind < 0.08:
        text = _mangled(chance, text)
    elif kind < 0.10:
        text = chance.choice(("!", "(", "-", "[", "true ? ", "cause.")) * chance.randrange(1, 3000) + text
    elif kind < 0.12:
        text = _any(chance, 3)
    elif kind < 0.40:
        text = _plain(chance, chance.choice((1, 2, 3)))
    return text


def _plain(chance: random.Random, depth: int) -> str:
    """As most people write: fields beside values and each other, joined."""
    if depth > 0 and chance.random() < 0.7:
        return chance.choice(_JOINED)(chance, depth - 1)
    return chance.choice(_PLAIN)(chance)


def _field(chance: random.Random, *kinds: FieldType) -> str:
    return chance.choice([name for kind in kinds for name in BY_KIND[kind]])


def _value(chance: random.Random, kind: FieldType) -> str:
    if kind is FieldType.TEXT:
        return f'"{chance.choice(TEXTS[:8])}"'
    return chance.choice(
        ("0", "1", "2", "137", "-1", NUMBERS[4]) if kind is FieldType.INT else ("0.0", "0.5", "-1.0", "2.5")
    )


def _side(chance: random.Random, kind: FieldType) -> str:
    if kind is FieldType.TEXT:
        return chance.choice((_field(chance, kind), f"{_field(chance, FieldType.WORDS)}{chance.choice(_KEYS)}"))
    field, other = _field(chance, kind), chance.choice((_field(chance, kind), _value(chance, kind)))
    return chance.choice(
        (field, field, f"{field} {chance.choice('+-*/%' if kind is FieldType.INT else '+-*/')} {other}", f"-{field}")
    )


def _beside(chance: random.Random) -> str:
    kind = chance.choice((FieldType.INT, FieldType.NUMBER, FieldType.TEXT))
    sign = chance.choice(("==", "!=", "<", "<=", ">", ">="))
    sides = [_side(chance, kind), chance.choice((_side, lambda c, k: _value(c, k)))(chance, kind)]
    chance.shuffle(sides)
    return f" {sign} ".join(sides)


_KEYS = (".a", '["a"]', "['memory']", '["(a+)+$"]')
_ASKED = ("contains", "startsWith", "endsWith")
_PLAIN: list[Callable[[random.Random], str]] = [
    _beside,
    _beside,
    lambda c: f"{_field(c, FieldType.INT, FieldType.NUMBER)} {c.choice(('==', '!='))} null",
    lambda c: f"null != {_field(c, FieldType.INT, FieldType.NUMBER)}",
    lambda c: f"{_field(c, FieldType.INT)} in [{_value(c, FieldType.INT)}, {_value(c, FieldType.INT)}]",
    lambda c: f"{_field(c, FieldType.TEXT)} in [{_value(c, FieldType.TEXT)}, {_value(c, FieldType.TEXT)}]",
    lambda c: f"{_value(c, FieldType.TEXT)} in {_field(c, FieldType.WORDS, FieldType.DATA, FieldType.TEXTS)}",
    lambda c: f"has({_field(c, FieldType.WORDS, FieldType.DATA)}.a)",
    lambda c: f"{c.choice('!  ')}{_field(c, FieldType.TRUTH)}",
    lambda c: f"{_side(c, FieldType.TEXT)}.{c.choice(_ASKED)}({_value(c, FieldType.TEXT)})",
    lambda c: f"size({_field(c, FieldType.TEXT, FieldType.TEXTS, FieldType.WORDS)}) > {_value(c, FieldType.INT)}",
    lambda c: f"double({_side(c, FieldType.INT)}) / {_side(c, FieldType.NUMBER)} < {_value(c, FieldType.NUMBER)}",
    lambda c: f"evidence.log_tail[{c.choice('012')}] == {_value(c, FieldType.TEXT)}",
    lambda c: (
        f"{_field(c, FieldType.TEXTS, FieldType.WORDS)}.{c.choice(('exists', 'all'))}(l, l.{c.choice(_ASKED)}({_value(c, FieldType.TEXT)}))"
    ),
    lambda c: (
        f"{_field(c, FieldType.TEXTS)}.{c.choice(('exists', 'all'))}({c.choice(('l', 'cause', 'job'))}, {_beside(c)})"
    ),
    lambda c: f"{_field(c, FieldType.DATA)}.a == 1",
]
_JOINED: list[Callable[[random.Random, int], str]] = [
    lambda c, d: f"{_plain(c, d)} && {_plain(c, d)}",
    lambda c, d: f"{_plain(c, d)} || {_plain(c, d)}",
    lambda c, d: f"({_plain(c, d)}) && {_plain(c, d)} && {_plain(c, d)}",
    lambda c, d: f"!({_plain(c, d)})",
    lambda c, d: f"({_plain(c, d)} ? {_plain(c, d)} : {_plain(c, d)})",
]


def _truth(chance: random.Random, depth: int) -> str:
    if depth <= 0:
        return chance.choice(("true", "false", "host.closed", "!host.closed", f"{_int(chance, 0)} > {_int(chance, 0)}"))
    below = depth - 1
    return chance.choice(_TRUTHS)(chance, below)


def _compare(chance: random.Random, depth: int) -> str:
    kind = chance.choice((_int, _double, _text))
    return f"{kind(chance, depth)} {chance.choice(('==', '!=', '<', '<=', '>', '>='))} {kind(chance, depth)}"


def _over_list(chance: random.Random, depth: int) -> str:
    name = chance.choice("xyz")
    macro = chance.choice(("all", "exists", "exists_one"))
    inner = chance.choice(
        (f"{name}.contains({_text(chance, 0)})", f"{name} == {_text(chance, depth)}", _truth(chance, depth))
    )
    return f"{_list(chance, depth)}.{macro}({name}, {inner})"


_TRUTHS: list[Callable[[random.Random, int], str]] = [
    _compare,
    _compare,
    _over_list,
    lambda c, d: f"{_truth(c, d)} && {_truth(c, d)}",
    lambda c, d: f"{_truth(c, d)} || {_truth(c, d)}",
    lambda c, d: f"!({_truth(c, d)})",
    lambda c, d: f"({_truth(c, d)} ? {_truth(c, d)} : {_truth(c, d)})",
    lambda c, d: f"{_text(c, d)}.{c.choice(('contains', 'startsWith', 'endsWith', 'matches'))}({_text(c, d)})",
    lambda c, d: f"{_text(c, d)} in {c.choice(BY_KIND[FieldType.WORDS] + BY_KIND[FieldType.DATA])}",
    lambda c, d: f"has({c.choice(BY_KIND[FieldType.DATA])}.{c.choice('abc')})",
    lambda c, d: f"{_dynamic(c, d)} {c.choice(('==', '>', '!='))} {c.choice((_int, _text, _double))(c, d)}",
    lambda c, d: f"{_int(c, d)} in [{_int(c, d)}, {_int(c, d)}]",
]


def _int(chance: random.Random, depth: int) -> str:
    if depth <= 0 or chance.random() < 0.4:
        return chance.choice(BY_KIND[FieldType.INT] if chance.random() < 0.5 else NUMBERS)
    return chance.choice(_INTS)(chance, depth - 1)


_INTS: list[Callable[[random.Random, int], str]] = [
    lambda c, d: f"{_int(c, d)} {c.choice('+-*/%')} {_int(c, d)}",
    lambda c, d: f"size({_list(c, d)})",
    lambda c, d: f"int({_text(c, d)})",
    lambda c, d: f"int({_double(c, d)})",
    lambda c, d: f"{_text(c, d)}.size()",
]


def _double(chance: random.Random, depth: int) -> str:
    if depth <= 0 or chance.random() < 0.5:
        return chance.choice(BY_KIND[FieldType.NUMBER] if chance.random() < 0.5 else DOUBLES)
    if chance.random() < 0.5:
        return f"double({_int(chance, depth - 1)})"
    return f"{_double(chance, depth - 1)} {chance.choice('+-*/')} {_double(chance, depth - 1)}"


def _text(chance: random.Random, depth: int) -> str:
    if depth <= 0 or chance.random() < 0.5:
        return chance.choice(BY_KIND[FieldType.TEXT]) if chance.random() < 0.5 else f'"{chance.choice(TEXTS)}"'
    return chance.choice(_TEXTS)(chance, depth - 1)


_TEXTS: list[Callable[[random.Random, int], str]] = [
    lambda c, d: f"{_text(c, d)} + {_text(c, d)}",
    lambda c, d: f"string({_int(c, d)})",
    lambda c, d: f"{c.choice(BY_KIND[FieldType.WORDS])}[{_text(c, d)}]",
    lambda c, d: f"{_list(c, d)}[{_int(c, d)}]",
    lambda c, d: f"{_text(c, d)}.substring({_int(c, 0)})",
    lambda c, d: f"{_list(c, d)}.join({_text(c, 0)})",
    lambda c, d: f"{_text(c, d)}.replace({_text(c, 0)}, {_text(c, 0)})",
]


def _list(chance: random.Random, depth: int) -> str:
    if depth <= 0 or chance.random() < 0.5:
        return chance.choice(
            (*BY_KIND[FieldType.TEXTS], f"[{_text(chance, 0)}, {_text(chance, 0)}]", "['a'] + evidence.log_tail")
        )
    return chance.choice(_LISTS)(chance, depth - 1, chance.choice("xyz"))


_LISTS: list[Callable[[random.Random, int, str], str]] = [
    lambda c, d, name: f"{_list(c, d)}.map({name}, {name} + {_text(c, d)})",
    lambda c, d, name: f"{_list(c, d)}.filter({name}, {_truth(c, d)})",
    lambda c, d, _: f"{_text(c, d)}.split({_text(c, 0)})",
    lambda c, d, _: f"{_list(c, d)} + {_list(c, d)}",
]


def _dynamic(chance: random.Random, depth: int) -> str:
    data = chance.choice(BY_KIND[FieldType.DATA])
    return chance.choice(
        (f"{data}.a", f"{data}['b']", f"{data}.c.d", f"dyn({_int(chance, depth)})", "attempts[0].host")
    )


def _any(chance: random.Random, depth: int) -> str:
    return chance.choice((_int, _double, _text, _list, _dynamic))(chance, depth)


def _mangled(chance: random.Random, text: str) -> str:
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(text) + 1)
        text = chance.choice(
            (
                text[:at] + chance.choice(SCRAPS) + text[at:],
                text[:at] + text[at + chance.randrange(1, 6) :],
                text + text[:at],
            )
        )
    return text


def told(chance: random.Random) -> dict[str, object]:
    """Something told of an exception, often little of it."""
    values: dict[str, object] = {}
    for field in chance.sample(FIELDS, chance.randrange(0, len(FIELDS))):
        values[field.name] = _VALUES[field.kind](chance)
    return values


_VALUES: dict[FieldType, Callable[[random.Random], object]] = {
    FieldType.INT: lambda c: c.choice((0, 1, 2, 137, -1, 2**62, c.randrange(10**6))),
    FieldType.NUMBER: lambda c: c.choice((0.0, 0.5, -1.0, 1e299)),
    FieldType.TEXT: lambda c: c.choice(TEXTS),
    FieldType.TRUTH: lambda c: c.random() < 0.5,
    FieldType.TEXTS: lambda c: [c.choice(TEXTS) for _ in range(c.choice((0, 1, 5, 60)))],
    FieldType.WORDS: lambda c: {c.choice(TEXTS): c.choice(TEXTS) for _ in range(c.randrange(4))},
    FieldType.DATA: lambda c: {
        name: c.choice((None, 1, 1.5, "x", [1, "y"], {"d": 3}, True)) for name in c.sample("abc", c.randrange(4))
    },
    FieldType.RECORDS: lambda c: [{"host": "a", "attempt": n} for n in range(c.randrange(3))],
}
