"""The texts that a regular expression cannot do without, read from its tree without ever running it.

A text is in lower case. `EDGE` at its beginning or end says that no letter, digit or underscore stands beside it there, so that "no" need not be looked for in "node".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product
from typing import Any

EDGE = "\x01"
SHORTEST_FIXED = 2
MOST_SETS = 3
MOST_TEXTS = 48
"""More texts than these are not worth telling apart."""

_WORD = re.compile(r"[a-z0-9_]+")

Texts = frozenset[str]
Way = tuple[tuple[str, ...], ...]
"""One way to match: sets of texts, and one of each set must be there. The first set is the most telling one."""


def ways_of(tree: Iterable[Any]) -> tuple[Way, ...]:
    """The ways to match, one for each branch at the top."""
    nodes = list(tree)
    inner = [node for node in nodes if _name(node) != "AT"]
    if len(inner) == 1 and _name(inner[0]) == "SUBPATTERN":
        return ways_of([*_at(nodes, before=True), *inner[0][1][3], *_at(nodes, before=False)])
    if len(inner) == 1 and _name(inner[0]) == "BRANCH":
        before, after = _at(nodes, before=True), _at(nodes, before=False)
        return tuple(way for branch in inner[0][1][1] for way in ways_of([*before, *branch, *after]))
    first, *rest = [tuple(sorted(set_)) for set_ in _sets(nodes)] or [()]
    telling = [texts for texts in rest if min(len(bare(text)) for text in texts) > SHORTEST_FIXED]
    return ((first, *telling[: MOST_SETS - 1]) if first else (),)


def bare(text: str) -> str:
    """A text without its edges."""
    return text.strip(EDGE)


def _at(nodes: list[Any], *, before: bool) -> list[Any]:
    """What stands before or after the one node that is no place."""
    middle = next(place for place, node in enumerate(nodes) if _name(node) != "AT")
    return nodes[:middle] if before else nodes[middle + 1 :]


def _name(node: Any) -> str:
    return str(node[0])


class _TextSets:
    """Sets of texts of each of which one must be there, gathered from left to right."""

    def __init__(self) -> None:
        self.found: list[Texts] = []
        self.run: Texts = frozenset({""})
        """All that may stand up to here without a gap."""

    def follow(self, texts: Texts) -> None:
        """These follow without a gap."""
        if len(self.run) * len(texts) > MOST_TEXTS:
            self.gap()
        self.run = frozenset(a + b for a, b in product(self.run, texts))

    def gap(self, edge: str = "") -> None:
        """Something follows that is not known; with an edge it is no letter."""
        self.keep(frozenset(text + edge for text in self.run))
        self.run = frozenset({edge})

    def keep(self, texts: Texts) -> None:
        cleaned = {_cleaned(text) for text in texts}
        if all(bare(text) for text in cleaned):
            self.found.append(frozenset(text for text in cleaned if not any(o != text and o in text for o in cleaned)))


def _sets(tree: Iterable[Any]) -> list[Texts]:
    sets = _TextSets()
    for node in tree:
        texts = _exact(node)
        if texts is not None:
            sets.follow(texts)
            continue
        sets.gap(EDGE if _beside(node) else "")
        inner = _inside(_name(node), node[1])
        if inner:
            sets.found.append(inner)
    sets.gap()
    # The longest is the rarest; of equals, the one with fewer ways.
    return sorted(sets.found, key=lambda texts: (-min(len(bare(text)) for text in texts), len(texts), sorted(texts)))


def _cleaned(text: str) -> str:
    """Edges only at the ends, and only beside a letter: elsewhere they say nothing."""
    inner = text.replace(EDGE, "")
    if not inner:
        return ""
    before = EDGE if text.startswith(EDGE) and _is_word(inner[0]) else ""
    after = EDGE if text.endswith(EDGE) and _is_word(inner[-1]) else ""
    words = _WORD.findall(inner)
    if len(words) == 1 and len(words[0]) > SHORTEST_FIXED:
        # One word and what stands around it: the word is found faster alone, and says nearly as much.
        before = before if _is_word(inner[0]) else EDGE
        after = after if _is_word(inner[-1]) else EDGE
        return before + str(words[0]) + after
    return before + inner + after


def _is_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


def _exact(node: Any) -> Texts | None:
    """All texts that a part can match, if they are few."""
    name, value = _name(node), node[1]
    if name == "LITERAL":
        return frozenset({chr(value).lower()}) if value < 128 else None
    if name == "AT":
        return frozenset({"" if "NON_BOUNDARY" in str(value) else EDGE})
    if name in ("ASSERT", "ASSERT_NOT"):
        # Looks ahead, and takes nothing.
        return frozenset({""})
    if name == "SUBPATTERN":
        return _exact_all(value[3])
    if name == "BRANCH":
        texts: Texts = frozenset()
        for branch in value[1]:
            returned_texts = _exact_all(branch)
            if returned_texts is None or len(texts | returned_texts) > MOST_TEXTS:
                return None
            texts |= returned_texts
        return texts
    if name in ("MAX_REPEAT", "MIN_REPEAT") and value[1] == 1:
        once = _exact_all(value[2])
        return None if once is None else once | {""} if value[0] == 0 else once
    if (
        name == "IN"
        and len(value) <= 4
        and all(_name(other_node) == "LITERAL" and other_node[1] < 128 for other_node in value)
    ):
        return frozenset(chr(entry[1]).lower() for entry in value)
    return None


def _exact_all(tree: Iterable[Any]) -> Texts | None:
    texts: Texts = frozenset({""})
    for node in tree:
        returned_texts = _exact(node)
        if returned_texts is None or len(texts) * len(returned_texts) > MOST_TEXTS:
            return None
        texts = frozenset(a + b for a, b in product(texts, returned_texts))
    return texts


def _beside(node: Any) -> bool:
    """Whether a part takes at least one character, and nothing but such as no word has."""
    name, value = _name(node), node[1]
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return value[0] >= 1 and len(value[2]) == 1 and _beside(value[2][0])
    if name == "LITERAL":
        return value < 128 and not _is_word(chr(value))
    if name == "IN":
        return all(_outside(entry) for entry in value)
    return False


def _outside(node: Any) -> bool:
    name, value = _name(node), node[1]
    if name == "LITERAL":
        return value < 128 and not _is_word(chr(value))
    return name == "CATEGORY" and str(value) in ("CATEGORY_SPACE", "CATEGORY_NOT_WORD")


def _inside(name: str, value: Any) -> Texts | None:
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


def _best(tree: Iterable[Any]) -> Texts | None:
    return next(iter(_sets(tree)), None)
