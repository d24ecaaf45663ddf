"""Rule sets prepared for fast evaluation: trees, and rules in them, that cannot match an exception are skipped.

The rules that are each other's alternatives form a chain. A rule with the condition `cause == "memory" && …` is false, without an
error, for every other cause; so a walk jumps along the chain from one rule that may be true to the next. The result is that of
the plain walk in every case, errors included; a test verifies this.

Most sets do not apply to most exceptions: none of their rules requires the values that this one has. The index of a sequence of sets knows
the values for which the first rules of all of them are found, and one lookup tells which sets need a walk. The others give the result of a
walk without any satisfied rule, which is the same each time. It never leaves out a set in which a walk would have found something.

An index belongs to one thread and must be informed of every change of its sets: a rule that is added costs the same however many there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.rules.condition import ConditionVerdict, Erred, Evaluate
from forestay.domain.rules.context import FIELDS, UNFILLED, Context, FieldType
from forestay.domain.rules.plain_condition import NOTHING, Conjunction, FieldComparison, conjunction_of
from forestay.domain.rules.rule_set import RuleChange, RuleSet, RuleSetId, Ruling, SetWalk, TreeKey, keys_for
from forestay.domain.rules.rule_tree import ROOT, Rule, RuleState, RuleTree, Walk

Compiles = Callable[[str], bool]
"""Whether a text compiles; one that does not is not analysed."""

FEW = 8
"""Up to this many changes an index applies one by one; after more it is rebuilt."""
AT_ONCE = 250
"""The number of rules added between two turns of the event loop, while an index is built in steps."""
FINDS = frozenset({"==", "among", "has"})
"""Comparisons that are true for few of the values that a field can have."""
_FEW_VALUES = frozenset(
    {"cause", "retry", "exception.type", "evidence.scheduler", "evidence.stage", "task.status"}
    | {field.name for field in FIELDS if field.kind in {FieldType.INT, FieldType.NUMBER, FieldType.TRUTH}}
)
"""Fields whose values many exceptions share: a rule is found by another field if possible."""
_WORSE = 64
"""A rule is found by such a field only if this many others have the same value in the other field."""

_read = lru_cache(maxsize=200_000)(conjunction_of)


class _Bounds:
    """The positions of rules that require more, or less, than a bound; by the bound."""

    __slots__ = ("bounds", "more", "places")

    def __init__(self, *, more: bool) -> None:
        self.more = more
        self.bounds: list[float] = []
        self.places: list[int] = []

    def add(self, bound: float, place: int) -> None:
        at = bisect_right(self.bounds, bound)
        self.bounds.insert(at, bound)
        self.places.insert(at, place)

    def within(self, value: float) -> list[int]:
        """The positions whose bound the value reaches; whether it exceeds the bound is left to the condition itself."""
        if self.more:
            return self.places[: bisect_right(self.bounds, value)] if value >= self.bounds[0] else []
        return self.places[bisect_left(self.bounds, value) :] if value <= self.bounds[-1] else []


class _Chain:
    """Rules that are each other's alternatives, in their order; and the comparison by which each is found."""

    __slots__ = ("bounded", "finders", "found_by", "found_in", "last_active", "looks", "others", "rules")

    def __init__(self) -> None:
        self.rules: list[str] = []
        self.finders: list[FieldComparison | None] = []
        """The comparison by which each rule is found; None: it must always be evaluated."""
        self.found_by: dict[str, dict[object, list[int]]] = {}
        """The positions of rules by a field and its required value."""
        self.looks: tuple[tuple[str, Callable[[object], list[int] | None]], ...] = ()
        """The lookups of `found_by`, prepared, since every walk needs them."""
        self.found_in: dict[str, dict[object, list[int]]] = {}
        """The positions of rules by a map and its required key."""
        self.bounded: dict[tuple[str, bool], _Bounds] = {}
        """The positions of rules by a field and its lower, or upper, bound."""
        self.others: list[int] = []
        """The positions of rules that must be evaluated in every context."""
        self.last_active: str | None = None

    def append(self, rule: Rule, known: Conjunction) -> None:
        place = len(self.rules)
        self.rules.append(rule.id)
        if rule.state is RuleState.ACTIVE:
            self.last_active = rule.id
        rarest: list[list[int]] = []
        finder: FieldComparison | None = None
        fewest = 0
        for comparison in known.comparisons:
            field, sign, value = comparison
            if sign not in FINDS:
                continue
            by_value = (self.found_in if sign == "has" else self.found_by).setdefault(field, {})
            values = dict.fromkeys(value) if isinstance(value, tuple) else (value,)
            lists = [by_value.setdefault(each, []) for each in values]
            if len(self.looks) < len(self.found_by):
                self.looks = tuple((name, known.get) for name, known in self.found_by.items())
            most = max(map(len, lists)) + (_WORSE if field in _FEW_VALUES else 0)
            if finder is None or most < fewest:
                rarest, finder, fewest = lists, comparison, most
        self.finders.append(finder or self._bound(known, place))
        for places in rarest:
            places.append(place)

    def _bound(self, known: Conjunction, place: int) -> FieldComparison | None:
        # Counters are mostly low: a rule that requires a high one is rarely evaluated.
        ordered = sorted(
            (comparison for comparison in known.comparisons if comparison.sign[0] in "<>"),
            key=lambda comparison: comparison.sign[0] == "<",
        )
        if not ordered or not isinstance(ordered[0].value, int | float):
            self.others.append(place)
            return None
        field, sign, bound = ordered[0].field, ordered[0].sign, ordered[0].value
        more = sign[0] == ">"
        if (field, more) not in self.bounded:
            self.bounded[field, more] = _Bounds(more=more)
        self.bounded[field, more].add(bound, place)
        return ordered[0]

    def last(self, *, shadow: bool) -> str | None:
        """The rule that is tested last if none is satisfied."""
        return self.rules[-1] if shadow else self.last_active

    def candidates(self, context: Context) -> list[int]:
        """The positions of all rules that may be true, or fail with an error, in order."""
        if context.get(UNFILLED):
            return list(range(len(self.rules)))
        found_places = self.others
        for field, look in self.looks:
            places = look(context[field])
            if places:
                found_places = found_places + places if found_places else places
        for field, by_key in self.found_in.items():
            keys: Any = context[field]
            for key in keys:
                if key in by_key:
                    found_places = found_places + by_key[key]
        for (field, _), bounds in self.bounded.items():
            value: Any = context[field]
            places = bounds.within(value) if value is not None else bounds.places
            if places:
                found_places = found_places + places
        return found_places if len(found_places) < 2 else sorted(found_places)


class TreeIndex:
    """A tree with the index for walking it."""

    __slots__ = ("_chain_of", "_chains", "_compiles", "_nothing", "tree")

    def __init__(self, tree: RuleTree, compiles: Compiles) -> None:
        self._compiles = compiles
        for _ in self.build(tree):
            pass

    def build(self, tree: RuleTree) -> Iterator[None]:
        """Build the index in steps; it must not be used before it is complete."""
        self.tree = tree
        self._nothing: dict[bool, Walk] = {}
        self._chains: dict[str, _Chain] = {}
        self._chain_of: dict[str, _Chain] = {}
        heads = [tree.root.true_child]
        taken = 0
        while heads:
            coming = heads.pop()
            chain: _Chain | None = None
            while coming is not None:
                rule = tree.rules[coming]
                chain = self._take(rule, chain)
                heads.append(rule.true_child)
                coming = rule.false_child
                taken += 1
                if taken % AT_ONCE == 0:
                    yield

    def _take(self, rule: Rule, chain: _Chain | None) -> _Chain:
        if chain is None:
            chain = self._chains[rule.id] = _Chain()
        chain.append(rule, _read(rule.condition) if self._compiles(rule.condition) else NOTHING)
        self._chain_of[rule.id] = chain
        return chain

    @staticmethod
    def can_follow(changes: Sequence[RuleChange]) -> bool:
        """Whether these changes are only additions or promotions; after any others it must be rebuilt."""
        added = [change.after for change in changes if change.before is None and change.after is not None]
        if len(changes) > FEW or len(added) > 1 or any(rule.true_child or rule.false_child for rule in added):
            return False
        for _, _, before, after in changes:
            if after is None:
                return False
            if before is None:
                continue
            moved = (before.true_child, before.false_child) != (after.true_child, after.false_child)
            if before.condition != after.condition or before.parent != after.parent or (moved and not added):
                return False
        return True

    def follow(self, tree: RuleTree, changes: Sequence[RuleChange]) -> None:
        """Apply a few changes of the tree that `can_follow` allows."""
        self.tree = tree
        self._nothing = {}
        for _, name, before, after in changes:
            if after is None:
                continue
            if before is None:
                above = tree.rules[after.parent or ROOT]
                self._take(after, None if above.true_child == name else self._chain_of[above.id])
            elif before.state is not after.state:
                chain = self._chain_of[name]
                active = (rule for rule in reversed(chain.rules) if tree.rules[rule].state is RuleState.ACTIVE)
                chain.last_active = next(active, None)

    def first_finders(self) -> Sequence[FieldComparison | None]:
        """The comparison by which each rule directly below the root is found, in order."""
        head = self.tree.root.true_child
        return self._chains[head].finders if head is not None else ()

    def nothing(self, *, shadow: bool) -> Walk:
        """The result of a walk in which no rule is satisfied or fails with an error."""
        if shadow not in self._nothing:
            head = self.tree.root.true_child
            last = None if head is None else self._chains[head].last(shadow=shadow)
            self._nothing[shadow] = Walk(self.tree, ROOT, last or ROOT, ConditionVerdict.FALSE, "", shadow)
        return self._nothing[shadow]

    def walk(self, context: Context, evaluate: Evaluate, *, shadow: bool = False) -> Walk:
        """The result of the plain walk. The context must be complete, as `read_context` returns it."""
        rules = self.tree.rules
        satisfied = tested = ROOT
        head = rules[ROOT].true_child
        while head is not None:
            chain = self._chains[head]
            ids = chain.rules
            for place in chain.candidates(context):
                name = ids[place]
                rule = rules[name]
                if rule.state is RuleState.SHADOW and not shadow:
                    continue
                answer = evaluate(rule.condition)
                if answer is False:
                    continue
                if answer is not True:
                    message = (
                        answer.message if isinstance(answer, Erred) else "the condition did not return a truth value"
                    )
                    return Walk(self.tree, satisfied, name, ConditionVerdict.ERROR, message, shadow)
                satisfied = tested = name
                head = rule.true_child
                break
            else:
                tested = chain.last(shadow=shadow) or tested
                break
        if satisfied == ROOT:
            return self.nothing(shadow=shadow)
        return Walk(self.tree, satisfied, tested, ConditionVerdict.TRUE, "", shadow)


class IndexedSet:
    """A rule set whose trees are ready to be walked."""

    __slots__ = ("indexes", "rule_set", "shadowed")

    def __init__(self, rule_set: RuleSet, compiles: Compiles) -> None:
        self.rule_set = rule_set
        self.indexes: dict[TreeKey, TreeIndex] = {
            key: TreeIndex(tree, compiles) for key, tree in rule_set.trees.items()
        }
        self.shadowed = any(tree.shadowed for tree in rule_set.trees.values())


LEARNED_AT_ONCE = 1_000
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
            if place % LEARNED_AT_ONCE == LEARNED_AT_ONCE - 1:
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
