"""Groups of incidents that the rules cannot distinguish, so that a replay evaluates the rules once for each group.

Two incidents are in one group if they have the same values in all fields that any of the rules names. Where every rule only compares a field with literal texts or numbers, all values that occur in no rule
are equivalent: of 300 hosts of which rules name two, three are distinguished.

A field that a rule uses in any other way counts with its whole value. If that is the log, nearly every incident is a group of its own; then groups are no longer kept, and each incident is
evaluated separately.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from forestay.domain.rules.context import BY_NAME, UNFILLED, FieldType
from forestay.domain.rules.plain_condition import fields_named, whole_condition
from forestay.domain.rules.rule_tree import RuleState, RuleTree

Found = TypeVar("Found")
_LONGEST = 200
"""Longer texts are never merged with others: conditions may see only a part of them."""
_LARGEST = 2**63 - 1
_SPELT = frozenset({"==", "!=", "among"})
_OTHER = ("other",)
"""Represents all values that occur in no rule. No value of a field is equal to it."""
LEARNING = 2_000
"""The number of incidents after which it is decided whether groups are worthwhile."""
DISTINCT = 0.8
"""If a larger share of incidents are groups of their own, each is evaluated separately."""
MOST_GROUPS = 100_000
"""The most groups whose answer is kept; incidents of further groups are evaluated separately."""


class FieldsRead(NamedTuple):
    """The fields that some rules read, each with the values that they distinguish; None: all."""

    values: Mapping[str, frozenset[Hashable] | None]

    def key(self, facts: Mapping[str, object]) -> Hashable:
        """The key of an incident's group: equal for two incidents only if the rules cannot distinguish them."""
        return (
            tuple(_told_apart(name, facts.get(name), known) for name, known in self.values.items()),
            _frozen(facts.get(UNFILLED)),
        )


def fields_read(trees: Iterable[RuleTree]) -> FieldsRead:
    """The fields that the active rules of some trees read. Their texts compile."""
    found: dict[str, set[Hashable] | None] = {}
    texts = {rule.condition for tree in trees for rule in tree.rules.values() if rule.state is RuleState.ACTIVE}
    for text in texts:
        spelt = _spelt_in(text)
        for name in fields_named(text):
            known = found.setdefault(name, set())
            if name not in spelt:
                found[name] = None
            elif known is not None:
                known |= spelt[name]
    return FieldsRead({name: None if known is None else frozenset(known) for name, known in sorted(found.items())})


def _spelt_in(text: str) -> Mapping[str, frozenset[Hashable]]:
    """The literals of a condition, for the fields that it uses only in comparisons with literals."""
    spelt: dict[str, set[Hashable]] = {}
    others: set[str] = set()
    for name, sign, value in whole_condition(text) or ():
        if sign in _SPELT and BY_NAME[name].kind in {FieldType.TEXT, FieldType.INT}:
            spelt.setdefault(name, set()).update(value if isinstance(value, tuple) else (value,))
        else:
            others.add(name)
    return {name: frozenset(values) for name, values in spelt.items() if name not in others}


def _told_apart(name: str, value: object, known: frozenset[Hashable] | None) -> Hashable:
    if known is not None:
        kind, of = BY_NAME[name].kind, type(value)
        # A value of another type, or a too large one, is not what the condition sees.
        seen_whole = (kind is FieldType.TEXT and of is str and _short(value)) or (
            kind is FieldType.INT and of is int and _fits(value)
        )
        if seen_whole and value not in known:
            return _OTHER
    return _frozen(value)


def _short(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST and value.isascii()


def _fits(value: object) -> bool:
    return isinstance(value, int) and -_LARGEST <= value <= _LARGEST


def _frozen(value: object) -> Hashable:
    """The value, or a text that no other value has: 1, 1.0 and true are equal in Python and not in a condition."""
    if value is None or type(value) is str or type(value) is int:
        return value
    if type(value) is list and all(type(entry) is str for entry in value):
        return ("texts", *value)
    return (type(value).__name__, json.dumps(value, sort_keys=False, default=repr))


@dataclass(slots=True)
class DecisionGroups(Generic[Found]):
    """The results of the rules, by group."""

    alone: bool = False
    """Each incident is evaluated separately, since nearly all differ in the fields that the rules read."""
    seen: int = 0
    evaluated: int = 0
    """The number of incidents on which the rules were evaluated: one of each group, or each one."""
    _found: dict[Hashable, Found] = field(default_factory=dict)

    def find(self, group: Hashable) -> Found | None:
        """The result of the rules for an incident of the group; None: unknown so far."""
        self.seen += 1
        return self._found.get(group)

    def keep(self, group: Hashable, found: Found) -> None:
        """Keep the result of the rules for a new group."""
        self.evaluated += 1
        if not self.alone and len(self._found) < MOST_GROUPS:
            self._found[group] = found
        if self.seen >= LEARNING and self.evaluated > self.seen * DISTINCT:
            self.alone = True
            self._found.clear()
