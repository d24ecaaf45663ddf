"""Conditions evaluated by cel-expr-python. Control plane only: its wheels need a newer libc than old compute nodes have.

Three properties of the library that this file handles:

- An evaluation's error is returned as a text value, which looks true; some errors are raised instead. Only the values true
  and false are accepted.
- It has no nullable fields. So each text is checked against types that know which fields may be null, and evaluated against types
  that leave these open.
- `has()` of a field returns the field itself, not whether it exists. It is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from cel_expr_python import cel  # type: ignore[import-untyped]
from cel_expr_python.ext import ext_math, ext_strings  # type: ignore[import-untyped]

from forestay.domain.exceptions.causes.cause import Cause, RetryNeed
from forestay.domain.rules.condition import MAX_PATTERN_BYTES, Erred, Evaluate, check_bounds
from forestay.domain.rules.context import BY_NAME, FIELDS, UNFILLED, Context, FieldType
from forestay.domain.rules.plain_condition import fields_named
from forestay.ports.rules.conditions import ConditionProblem, Conditions

MOST_KEPT = 200_000
"""The most compiled texts that are cached, over all rule sets; the oldest are dropped first."""

_TYPES: Mapping[FieldType, Any] = {
    FieldType.INT: cel.Type.INT,
    FieldType.NUMBER: cel.Type.DOUBLE,
    FieldType.TEXT: cel.Type.STRING,
    FieldType.TRUTH: cel.Type.BOOL,
    FieldType.TEXTS: cel.Type.List(cel.Type.STRING),
    FieldType.WORDS: cel.Type.Map(cel.Type.STRING, cel.Type.STRING),
    FieldType.DATA: cel.Type.Map(cel.Type.STRING, cel.Type.DYN),
    FieldType.RECORDS: cel.Type.List(cel.Type.Map(cel.Type.STRING, cel.Type.DYN)),
}
_NULLABLE: Mapping[FieldType, Any] = {
    FieldType.INT: cel.Type("google.protobuf.Int64Value"),
    FieldType.NUMBER: cel.Type("google.protobuf.DoubleValue"),
}

_PLACE = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_HAS = re.compile(r"\bhas\s*\(\s*([A-Za-z_][\w.]*)\s*\)")
_MATCHES = re.compile(r"""\bmatches\s*\(\s*[rR]?("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")
_TEXTS = re.compile(r"""[rR]?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')""")
_SINGLE = re.compile(r"(?<![=!<>])=(?!=)")
_UNDECLARED = re.compile(r"undeclared reference to '([^']{1,200})'")
_FIELDS_LISTED = "forestay rules fields lists the fields"
_CODE = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")


def _environment(*, checking: bool) -> Any:
    types = {
        field.name: (_NULLABLE[field.kind] if checking else cel.Type.DYN) if field.optional else _TYPES[field.kind]
        for field in FIELDS
    }
    return cel.NewEnv(variables=types, extensions=[ext_strings.ExtStrings(), ext_math.ExtMath()])


class CelConditions(Conditions):
    """Implements the port `Conditions`."""

    def __init__(self) -> None:
        self._checking = _environment(checking=True)
        self._running = _environment(checking=False)
        self._compiled: dict[str, Any] = {}
        self._used: dict[str, None] = {}
        """The fields named in any compiled text: only these are passed, since passing fields takes most of a decision's time."""
        self._refused: dict[str, tuple[ConditionProblem, ...]] = {}

    def compile(self, text: str) -> tuple[ConditionProblem, ...]:
        if text in self._compiled:
            return ()
        known = self._refused.get(text)
        if known is not None:
            return known
        problems = tuple(self._problems(text))
        if problems:
            _keep(self._refused, text, problems)
        return problems

    def over(self, context: Context) -> Evaluate:
        compiled = self._compiled
        unfilled: Any = context.get(UNFILLED)
        activation: Any = None
        handed = -1

        def evaluate(text: str) -> bool | Erred:
            nonlocal activation, handed
            expression = compiled.get(text)
            if expression is None:
                problems = self.compile(text)
                if problems:
                    return Erred(f"the condition does not compile: {problems[0]}")
                expression = compiled[text]
            if unfilled and (missing := [name for name in fields_named(text) if name in unfilled]):
                return Erred(f"{missing[0]} could not be found out when the exception was detected")
            try:
                if handed != len(self._used):
                    handed = len(self._used)
                    activation = self._running.Activation({name: context[name] for name in self._used})
                answer = expression.eval(activation=activation)
                value = answer.value()
            except (RuntimeError, ValueError, TypeError, OverflowError, MemoryError, KeyError) as error:
                return Erred(_said(error))
            # Compared with the singletons: an error's text, a number or a list is neither.
            if value is True or value is False:
                return value
            if answer.type() == cel.Type.ERROR:
                return Erred(_CODE.sub("", str(value)))
            return Erred(f"it gave {answer.type().name()}, not a truth value")

        return evaluate

    def _problems(self, text: str) -> list[ConditionProblem]:
        wrong = [ConditionProblem(0, 0, message) for message in check_bounds(text)]
        if wrong:
            return wrong
        for match in _HAS.finditer(text):
            if match.group(1) in BY_NAME:
                line, column = _place(text, match.start())
                name = match.group(1)
                advice = f"compare it with null: {name} != null" if BY_NAME[name].optional else "it is never null"
                wrong.append(
                    ConditionProblem(line, column, f"has() tests members of maps; {name} is a field: {advice}")
                )
        for match in _MATCHES.finditer(text):
            if len(match.group(1).encode()) - 2 > MAX_PATTERN_BYTES:
                line, column = _place(text, match.start(1))
                wrong.append(ConditionProblem(line, column, f"the pattern is longer than {MAX_PATTERN_BYTES} bytes"))
        try:
            checked = self._checking.compile(text)
        except (RuntimeError, ValueError) as error:
            return wrong + (assignments(text) or told(error))
        if checked.return_type() != cel.Type.BOOL:
            wrong.append(
                ConditionProblem(1, 1, f"a condition must be bool; this is {checked.return_type().name().lower()}")
            )
        if not wrong:
            try:
                _keep(self._compiled, text, self._running.compile(text))
                self._used.update(dict.fromkeys(fields_named(text)))
            except (RuntimeError, ValueError) as error:
                return told(error)
        return wrong


def _keep(kept: dict[str, Any], text: str, value: Any) -> None:
    while len(kept) >= MOST_KEPT:
        kept.pop(next(iter(kept)))
    kept[text] = value


def _place(text: str, at: int) -> tuple[int, int]:
    return text.count("\n", 0, at) + 1, at - (text.rfind("\n", 0, at) + 1) + 1


def assignments(text: str) -> list[ConditionProblem]:
    """Problems for a single sign where two were meant. CEL would report each word after it."""
    # Of the same length, so that positions do not change.
    bare = _TEXTS.sub(lambda match: "_" * len(match[0]), text)
    return [
        ConditionProblem(*_place(text, match.start()), "use == to compare; a single = is not an operator")
        for match in _SINGLE.finditer(bare)
    ]


def _hint(message: str, names: Collection[str], advice: str) -> str:
    """A suggestion for an unknown name."""
    match = _UNDECLARED.match(message)
    if match is None:
        return message
    name = match[1]
    if names is BY_NAME and (name in list(Cause) or name in list(RetryNeed)):
        return f'{message}; put text in quotes: "{name}"'
    close = get_close_matches(name, names, n=1)
    return f"{message}; did you mean {close[0]}?" if close else f"{message}; {advice}"


def told(error: Exception, names: Collection[str] = BY_NAME, advice: str = _FIELDS_LISTED) -> list[ConditionProblem]:
    """The problems reported by the library, each with its position and a suggestion."""
    problems = [
        ConditionProblem(
            max(0, int(line)),
            max(0, int(column)),
            _hint(_CODE.sub("", message.removesuffix(" (in container '')")), names, advice),
        )
        for line, column, message in _PLACE.findall(str(error))
    ]
    return problems or [ConditionProblem(0, 0, _said(error))]


def _said(error: Exception) -> str:
    lines = str(error).splitlines()
    return _CODE.sub("", _CODE.sub("", lines[0])) if lines else type(error).__name__
