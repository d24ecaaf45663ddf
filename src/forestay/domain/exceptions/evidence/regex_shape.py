"""The shape of a regular expression: whether it can be slow, and which text it cannot do without.

Python's matcher backtracks, and logs are written by strangers. So a pattern's expression may repeat without bound only single characters, never
groups, never two in a row, and not at its beginning. Lines are bounded too; together that bounds the work.

The text an expression cannot do without lets most patterns be passed over by one search for a fixed text.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from forestay.domain.exceptions.evidence.regex_texts import SHORTEST_FIXED, Way, bare, ways_of

LONGEST = 600
MANY = 64
"""A repeat that may go so far counts as one without bound."""
MOST_UNBOUNDED = 4
MOST_ANCHORED = 3
"""The same of an expression that must fit a whole text, which is tried at one place only but may be tried in every way."""

_parser: Any = importlib.import_module("re._parser")


@dataclass(frozen=True, slots=True)
class RegexShape:
    """What is known of an expression before it is ever run."""

    problem: str
    """What is wrong with it, as the end of a sentence; empty if nothing is."""
    ways: tuple[Way, ...] = ()
    """The ways to match: in each, one text of every set must be there. The first set of each is the most telling one."""


@cache
def shape_of(expression: str) -> RegexShape:
    """Look at an expression once; to compile it takes longer, and most are never needed."""
    if len(expression) > LONGEST:
        return RegexShape(f"it has more than {LONGEST} characters")
    try:
        tree = list(_parser.parse(expression))
    except (re.error, RecursionError, OverflowError) as error:
        return RegexShape(f"it is not a valid regular expression: {error}")
    problem = _slow(tree)
    if problem:
        return RegexShape(problem)
    ways = ways_of(tree)
    if any(not way or min(len(bare(text)) for text in way[0]) < SHORTEST_FIXED for way in ways):
        return RegexShape(f"it has no literal text of at least {SHORTEST_FIXED} characters")
    return RegexShape("", ways)


@cache
def slowness(expression: str) -> str:
    """Why an expression cannot be run on any short text in bounded time, or is none; empty if it can.

    Unlike a pattern's, one that must fit a whole text may begin with a repeat.
    """
    if len(expression) > LONGEST:
        return f"it has more than {LONGEST} characters"
    try:
        tree = list(_parser.parse(expression))
    except (re.error, RecursionError, OverflowError) as error:
        return f"it is not a valid regular expression: {error}"
    return _slow(tree, anchored=True)


def _name(node: Any) -> str:
    return str(node[0])


def _slow(tree: list[Any], *, anchored: bool = False) -> str:
    unbounded = 0
    before = "text" if anchored else "start"
    for name, value in _flat(tree):
        if name in ("GROUPREF", "GROUPREF_EXISTS"):
            return "it has a backreference"
        if name in ("ASSERT", "ASSERT_NOT") and value[0] < 0:
            return "it has a lookbehind"
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            _, most, body = value
            if most < MANY:
                if most > 1 and _variable(body, most):
                    return "it repeats a group that itself repeats (nested quantifiers)"
                continue
            if len(body) != 1 or _name(body[0]) not in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
                return "it repeats a group without a bound; only single characters may be repeated without a bound"
            unbounded += 1
            if before == "start":
                return "it begins with an unbounded repeat; remove it, since a match may begin anywhere"
            if before == "repeat":
                return "it has two adjacent unbounded repeats"
            before = "repeat"
        elif name not in ("AT", "SUBPATTERN", "BRANCH", "END"):
            before = "text"
        elif name in ("BRANCH", "END") and before == "repeat":
            before = "branch"
    most = MOST_ANCHORED if anchored else MOST_UNBOUNDED
    return f"it has more than {most} unbounded repeats" if unbounded > most else ""


def _flat(tree: Iterable[Any]) -> Iterable[tuple[str, Any]]:
    for node in tree:
        name, value = _name(node), node[1]
        yield name, value
        if name == "SUBPATTERN":
            yield from _flat(value[3])
        elif name == "BRANCH":
            for branch in value[1]:
                yield from _flat(branch)
                yield "END", None
        elif name in ("ASSERT", "ASSERT_NOT"):
            yield from _flat(value[1])
        elif name == "ATOMIC_GROUP":
            yield from _flat(value)
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and value[1] < MANY:
            yield from _flat(value[2])


def _variable(body: Iterable[Any], times: int) -> bool:
    for name, value in _flat(body):
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, most, _ = value
            if least != most and most * times > MANY:
                return True
    return False
