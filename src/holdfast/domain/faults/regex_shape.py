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

LONGEST = 600
MANY = 64
"""A repeat that may go so far counts as one without bound."""
MOST_UNBOUNDED = 4
SHORTEST_FIXED = 2
MOST_SETS = 3

_parser: Any = importlib.import_module("re._parser")


Way = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of an expression before it is ever run."""

    problem: str
    """What is wrong with it, as the end of a sentence; empty if nothing is."""
    ways: tuple[Way, ...] = ()
    """The ways to match: in each, one text of every set must be there. The first set of each is the most telling one."""

    @property
    def needed(self) -> tuple[str, ...]:
        """Texts in lower case of which one must stand in whatever matches; empty if there are none such."""
        return tuple(sorted({text for way in self.ways for text in way[0]}))


@cache
def shape_of(expression: str) -> Shape:
    """Look at an expression once; to compile it takes longer, and most are never needed."""
    if len(expression) > LONGEST:
        return Shape(f"it has more than {LONGEST} characters")
    try:
        tree = list(_parser.parse(expression))
    except (re.error, RecursionError, OverflowError) as error:
        return Shape(f"it is no regular expression: {error}")
    problem = _slow(tree)
    if problem:
        return Shape(problem)
    ways = _ways(tree)
    if any(not way or min(len(one) for one in way[0]) < SHORTEST_FIXED for way in ways):
        return Shape(f"it has no fixed text of {SHORTEST_FIXED} or more characters that must be there")
    return Shape("", ways)


def _name(node: Any) -> str:
    return str(node[0])


def _slow(tree: list[Any]) -> str:
    unbounded = 0
    before = "start"
    for name, value in _flat(tree):
        if name in ("GROUPREF", "GROUPREF_EXISTS"):
            return "it refers back to a group"
        if name in ("ASSERT", "ASSERT_NOT") and value[0] < 0:
            return "it looks behind"
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            _, most, body = value
            if most < MANY:
                if most > 1 and _variable(body, most):
                    return "it repeats a group that itself repeats (nested quantifiers)"
                continue
            if len(body) != 1 or _name(body[0]) not in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
                return "it repeats a group without bound; only single characters may be repeated so"
            unbounded += 1
            if before == "start":
                return "it begins with a repeat without bound; leave that out, since a match may begin anywhere"
            if before == "repeat":
                return "it has two repeats without bound side by side"
            before = "repeat"
        elif name not in ("AT", "SUBPATTERN", "BRANCH", "END"):
            before = "text"
        elif name in ("BRANCH", "END") and before == "repeat":
            before = "branch"
    return f"it has more than {MOST_UNBOUNDED} repeats without bound" if unbounded > MOST_UNBOUNDED else ""


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


def _ways(tree: Iterable[Any]) -> tuple[Way, ...]:
    nodes = [node for node in tree if _name(node) != "AT"]
    if len(nodes) == 1 and _name(nodes[0]) == "SUBPATTERN":
        return _ways(nodes[0][1][3])
    if len(nodes) == 1 and _name(nodes[0]) == "BRANCH":
        return tuple(way for branch in nodes[0][1][1] for way in _ways(branch))
    first, *rest = [tuple(sorted(one)) for one in _sets(nodes)] or [()]
    telling = [one for one in rest if len(min(one, key=len)) > SHORTEST_FIXED]
    return ((first, *telling[: MOST_SETS - 1]) if first else (),)


def _best(tree: Iterable[Any]) -> frozenset[str] | None:
    return next(iter(_sets(tree)), None)


def _sets(tree: Iterable[Any]) -> list[frozenset[str]]:
    """Sets of texts, of each of which one must be there; the most telling first."""
    found: list[frozenset[str]] = []
    run = ""
    for node in tree:
        name, value = _name(node), node[1]
        if name == "LITERAL" and value < 128:
            run += chr(value).lower()
            continue
        if name == "AT":
            continue
        if run:
            found.append(frozenset({run}))
            run = ""
        inner = _inside(name, value)
        if inner:
            found.append(inner)
    if run:
        found.append(frozenset({run}))
    # The longest is the rarest; of equals, the one with fewer ways.
    return sorted(found, key=lambda one: (-min(len(text) for text in one), len(one)))


def _inside(name: str, value: Any) -> frozenset[str] | None:
    if name == "SUBPATTERN":
        return _best(value[3])
    if name == "ATOMIC_GROUP":
        return _best(value)
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _best(value[2]) if value[0] >= 1 else None
    if name == "BRANCH":
        ways = [_best(branch) for branch in value[1]]
        return None if any(not way for way in ways) else frozenset(text for way in ways if way for text in way)
    return None
