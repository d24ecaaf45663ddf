"""The rule sets that are evaluated one after another, and which of them can match an exception.

Most sets do not apply to most exceptions: none of their rules requires the values that this one has. The index knows the
values for which the first rules of all its sets are found, and one lookup tells which sets need a walk. The others give the result of a
walk without any satisfied rule, which is the same each time. It never leaves out a set in which a walk would have found something.

An index belongs to one thread, and must be informed of every change of its sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.rules.condition import ConditionVerdict, Evaluate
from forestay.domain.rules.context import UNFILLED, Context
from forestay.domain.rules.plain_condition import FieldComparison
from forestay.domain.rules.rule_set import RuleSetId, Ruling, SetWalk, TreeKey, keys_for
from forestay.domain.rules.tree_index import FINDS, IndexedSet, TreeIndex

AT_ONCE = 1_000
"""The number of rules learned between two turns of the event loop."""
MOST_ROUNDS = 1_000
"""The most tasks whose tree sequences are cached."""


class _TreeFilter:
    """A filter for the trees of one key: the values by which any of their first rules is found, as bits, one bit per rule set.

    Removing a rule does not clear its bits: a surplus bit only costs a walk.
    """

    __slots__ = ("always", "bounded", "found_by", "found_in", "learned", "looks")

    def __init__(self) -> None:
        self.found_by: dict[str, dict[object, int]] = {}
        self.found_in: dict[str, dict[object, int]] = {}
        self.looks: tuple[tuple[str, Callable[[object, int], int]], ...] = ()
        """The lookups of `found_by`, prepared, since every decision needs them."""
        self.bounded: dict[tuple[str, bool], tuple[float, int]] = {}
        """By field, and whether more or less is required: the bound that is reached first."""
        self.always = 0
        self.learned: dict[int, tuple[TreeIndex, int]] = {}
        """For each bit the tree index, and how many of its first rules are known here."""

    def learn(self, bit: int, finder: FieldComparison | None) -> None:
        if finder is None:
            self.always |= bit
            return
        field, sign, value = finder
        if sign in FINDS:
            by_value = (self.found_in if sign == "has" else self.found_by).setdefault(field, {})
            for entry in value if isinstance(value, tuple) else (value,):
                by_value[entry] = by_value.get(entry, 0) | bit
            if len(self.looks) < len(self.found_by):
                self.looks = tuple((name, known.get) for name, known in self.found_by.items())
            return
        more = sign[0] == ">"
        new: Any = value
        bound, bits = self.bounded.get((field, more), (new, 0))
        self.bounded[field, more] = (min(bound, new) if more else max(bound, new), bits | bit)

    def asked(self, context: Context) -> int:
        """The sets in which a first rule may be true, or fail with an error."""
        if context.get(UNFILLED):
            return -1  # every bit: a condition on an unfilled field fails with an error, whatever its value
        bits = self.always
        for field, look in self.looks:
            bits |= look(context[field], 0)
        for field, by_key in self.found_in.items():
            keys: Any = context[field]
            for key in keys:
                bits |= by_key.get(key, 0)
        for (field, more), (bound, those) in self.bounded.items():
            value: Any = context[field]
            if value is None or (value >= bound if more else value <= bound):
                bits |= those
        return bits


class _AskedTree(NamedTuple):
    bit: int
    """The position of its set among the bits of a filter."""
    indexed_set: IndexedSet
    key: TreeKey
    tree: TreeIndex


class _TreeSequence(NamedTuple):
    """The trees that are evaluated for one type and task, in order."""

    trees: tuple[_AskedTree, ...]
    gates: tuple[_TreeFilter, ...]
    nothing: tuple[SetWalk, ...]
    """The result of each if none of its rules is satisfied."""


class RuleSetIndex:
    """The sets, and what is known of them."""

    __slots__ = ("_bits", "_gates", "_rounds", "sets", "shadowed")

    def __init__(self, sets: Iterable[IndexedSet] = ()) -> None:
        self.sets: tuple[IndexedSet, ...] = ()
        self.shadowed = False
        self._bits: dict[RuleSetId, int] = {}
        self._gates: dict[TreeKey, _TreeFilter] = {}
        self._rounds: dict[tuple[ExceptionType, str, bool], _TreeSequence] = {}
        sets = tuple(sets)
        for indexed_set in sets:
            for key, index in indexed_set.indexes.items():
                for _ in self.learn(indexed_set.rule_set.id, key, index):
                    pass
        self.seat(sets)

    def learn(self, rule_set: RuleSetId, key: TreeKey, index: TreeIndex) -> Iterator[None]:
        """Add the first rules of a tree that are not known yet, in small steps. Called before `seat`."""
        bit = self._bits.setdefault(rule_set, 1 << len(self._bits))
        gate = self._gates.setdefault(key, _TreeFilter())
        known, done = gate.learned.get(bit, (index, 0))
        finders = index.first_finders()
        for place in range(done if known is index else 0, len(finders)):
            gate.learn(bit, finders[place])
            if place % AT_ONCE == AT_ONCE - 1:
                yield
        gate.learned[bit] = (index, len(finders))

    def seat(self, sets: Iterable[IndexedSet]) -> None:
        """Use these sets from now on, in this order; they have been learned. Called after every change of one of them."""
        self.sets = tuple(sets)
        self.shadowed = any(indexed_set.shadowed for indexed_set in self.sets)
        self._rounds.clear()

    def ask(
        self, type_: ExceptionType, task: str, context: Context, evaluate: Evaluate, *, shadow: bool
    ) -> tuple[SetWalk, ...]:
        """The walks up to the first one with a result."""
        asked = self._rounds.get((type_, task, shadow)) or self._round(type_, task, shadow=shadow)
        bits = 0
        for gate in asked.gates:
            bits |= gate.asked(context)
        if not bits:
            return asked.nothing
        walks: list[SetWalk] = []
        for asked_tree, nothing in zip(asked.trees, asked.nothing, strict=True):
            if not bits & asked_tree.bit:
                walks.append(nothing)
                continue
            tree: TreeIndex = asked_tree.tree
            done = tree.walk(context, evaluate, shadow=shadow)
            rule_set = asked_tree.indexed_set.rule_set
            walks.append(SetWalk(rule_set.id, rule_set.version, asked_tree.key, done))
            if done.verdict is not ConditionVerdict.FALSE:
                break
        return tuple(walks)

    def _round(self, type_: ExceptionType, task: str, *, shadow: bool) -> _TreeSequence:
        keys = keys_for(type_, task)
        trees = tuple(
            _AskedTree(self._bits[indexed_set.rule_set.id], indexed_set, key, indexed_set.indexes[key])
            for indexed_set in self.sets
            for key in keys
            if key in indexed_set.indexes
        )
        nothing = tuple(
            SetWalk(indexed_set.rule_set.id, indexed_set.rule_set.version, key, index.nothing(shadow=shadow))
            for _, indexed_set, key, index in trees
        )
        made = _TreeSequence(trees, tuple(self._gates[key] for key in keys if key in self._gates), nothing)
        if len(self._rounds) >= MOST_ROUNDS:
            self._rounds.clear()
        self._rounds[type_, task, shadow] = made
        return made


def decide_quickly(
    set_indexes: Sequence[RuleSetIndex],
    type_: ExceptionType,
    task: str,
    context: Context,
    evaluate: Evaluate,
    *,
    shadow: bool = False,
) -> Ruling:
    """The same as `decide` for the sets of these indexes, in their order."""
    walks: tuple[SetWalk, ...] = ()
    for set_index in set_indexes:
        walks += set_index.ask(type_, task, context, evaluate, shadow=shadow)
        if walks and walks[-1].walk.verdict is not ConditionVerdict.FALSE:
            break
    return Ruling(walks)
