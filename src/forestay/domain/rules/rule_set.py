"""Rule sets: all rules of a flow, of a domain or of a pack, by exception type and task; and their versions.

A rule set is a value with a version number. A version is stored as its changes, so a process that has version 7 gets to
version 8 by these alone, however large the set is; and any older version can be restored by another change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.rules.condition import ConditionVerdict, Evaluate
from forestay.domain.rules.rule_tree import (
    ROOT,
    Conclusion,
    Rule,
    RuleChangeRefused,
    RuleTree,
    Walk,
    check_tree,
    copied,
    walk,
)

ANY_TASK = "*"
"""The task of a tree that applies to every task; it is walked after the task's own."""


class RuleSetLevel(StrEnum):
    """The level of a rule set, in the order of evaluation."""

    FLOW = "flow"
    DOMAIN = "domain"
    PACK = "pack"


_ORDER = {level: place for place, level in enumerate(RuleSetLevel)}


class RuleSetId(NamedTuple):
    """The id of a rule set: its tenant, and a flow by its name (all its versions), the domain, or a pack by its name."""

    tenant: str
    level: RuleSetLevel
    name: str

    def __str__(self) -> str:
        return f"{self.level}/{self.name}"


class TreeKey(NamedTuple):
    """The key of a tree in a rule set. The task of a run-level type is empty; that of a task-level type may be `ANY_TASK`."""

    type: ExceptionType
    task: str = ""

    def __str__(self) -> str:
        return f"{self.type}:{self.task}" if self.task else str(self.type)


def tree_key(type_: ExceptionType, task: str = "") -> TreeKey:
    """The key of the tree for an exception: run-level types have one tree, whatever the task."""
    return TreeKey(type_, "" if type_.of_run else task or ANY_TASK)


_EMPTY = RuleTree()


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All trees of one set, at one version. Version 0 is the empty set, which every set begins as."""

    id: RuleSetId
    version: int = 0
    trees: Mapping[TreeKey, RuleTree] = field(default_factory=lambda: MappingProxyType({}))

    def tree(self, key: TreeKey) -> RuleTree:
        """The tree of a key; an empty one if there are no rules."""
        return self.trees.get(key, _EMPTY)

    def find(self, rule: str) -> tuple[TreeKey, Rule] | None:
        """The rule with an id, and its tree."""
        for key, tree in self.trees.items():
            found_rule = tree.rules.get(rule)
            if found_rule is not None and rule != ROOT:
                return key, found_rule
        return None

    def __len__(self) -> int:
        return sum(len(tree) for tree in self.trees.values())


class RuleChange(NamedTuple):
    """A rule before and after a change; None: it did not exist, or no longer exists."""

    key: TreeKey
    rule: str
    before: Rule | None
    after: Rule | None


@dataclass(frozen=True, slots=True)
class RuleSetVersion:
    """One version of a rule set: what it changed, who made it, when and why. Never changed once stored."""

    rule_set: RuleSetId
    number: int
    changes: tuple[RuleChange, ...]
    by: str
    at: int
    note: str = ""
    replayed: Mapping[str, object] | None = None
    """For a promotion: the result of its replay."""


def with_tree(rule_set: RuleSet, key: TreeKey, tree: RuleTree) -> RuleSet:
    """The next version of a rule set, with one tree replaced; a tree without rules is left out."""
    trees = dict(rule_set.trees)
    if len(tree):
        trees[key] = tree
    else:
        trees.pop(key, None)
    return RuleSet(rule_set.id, rule_set.version + 1, MappingProxyType(trees))


def diff(old: RuleSet, new: RuleSet) -> tuple[RuleChange, ...]:
    """The differences between two versions, rule by rule, links included; identical trees cost nothing."""
    changes: list[RuleChange] = []
    for key in sorted(set(old.trees) | set(new.trees)):
        before, after = old.tree(key), new.tree(key)
        if before is after:
            continue
        for rule in dict.fromkeys((*before.rules, *after.rules)):
            was, is_ = before.rules.get(rule), after.rules.get(rule)
            if was is not is_ and was != is_:
                changes.append(RuleChange(key, rule, was, is_))
    return tuple(changes)


def changes_of(key: TreeKey, before: RuleTree, after: RuleTree, rules: Iterable[str | None]) -> tuple[RuleChange, ...]:
    """The differences between two trees, given the rules that can differ: as fast for many rules as for few."""
    changes = (
        RuleChange(key, rule, before.rules.get(rule), after.rules.get(rule)) for rule in rules if rule is not None
    )
    return tuple(change for change in changes if change.before != change.after)


def apply(rule_set: RuleSet, version: RuleSetVersion) -> RuleSet | RuleChangeRefused:
    """The rule set at its next version. Refused if the version is not the next one, or leaves a broken tree."""
    if version.rule_set != rule_set.id or version.number != rule_set.version + 1:
        return RuleChangeRefused(
            f"version {version.number} of {version.rule_set} does not follow {rule_set.version} of {rule_set.id}"
        )
    touched: dict[TreeKey, dict[str, Rule]] = {}
    for key, rule, before, after in version.changes:
        rules = touched.get(key)
        if rules is None:
            rules = touched[key] = copied(rule_set.tree(key))
        if rules.get(rule) != before:
            return RuleChangeRefused(f"rule {rule} of {key} is not as version {version.number} found it")
        if after is None:
            del rules[rule]
        else:
            rules[rule] = after
    trees = dict(rule_set.trees)
    for key, rules in touched.items():
        tree = RuleTree(MappingProxyType(rules))
        wrong = check_tree(tree) if len(version.changes) > _FEW else _check_few(tree, version.changes, key)
        if wrong:
            return RuleChangeRefused(f"{key}: {'; '.join(wrong[:3])}")
        if len(tree):
            trees[key] = tree
        else:
            trees.pop(key, None)
    return RuleSet(rule_set.id, version.number, MappingProxyType(trees))


_FEW = 8
"""Up to this many changes, only the links of the changed rules are checked, so that adding a rule does not require a check of all."""


def _check_few(tree: RuleTree, changes: Sequence[RuleChange], key: TreeKey) -> Sequence[str]:
    wrong: list[str] = []
    for change in changes:
        rule = change.after
        if change.key != key or rule is None:
            continue
        wrong += [
            f"rule {rule.id} has a branch to {child}, which is not attached there"
            for child in (rule.true_child, rule.false_child)
            if child is not None and (child not in tree.rules or tree.rules[child].parent != rule.id)
        ]
        if rule.parent is not None:
            above = tree.rules.get(rule.parent)
            if above is None or rule.id not in (above.true_child, above.false_child):
                wrong.append(f"rule {rule.id} is attached to no branch")
        elif rule.id != ROOT:
            wrong.append(f"rule {rule.id} is attached to no branch")
    return wrong


def roll_back(current: RuleSet, to: RuleSet, *, by: str, at: int, note: str = "") -> RuleSetVersion | RuleChangeRefused:
    """A new version with the content of an older one. No version is lost: the roll-back can itself be rolled back."""
    if to.id != current.id or to.version >= current.version:
        return RuleChangeRefused(
            f"{to.id} at version {to.version} is not older than {current.id} at version {current.version}"
        )
    changes = diff(current, to)
    if not changes:
        return RuleChangeRefused(f"version {to.version} does not differ from version {current.version}")
    return RuleSetVersion(current.id, current.version + 1, changes, by, at, note or f"back to version {to.version}")


class SetWalk(NamedTuple):
    """A walk through one tree of one set, at its version."""

    rule_set: RuleSetId
    version: int
    key: TreeKey
    walk: Walk


# Not frozen: every decision creates one, and creating a frozen one takes three times as long.
@dataclass(slots=True)
class Ruling:
    """The result of the rules for one exception: all walks, the last of which decides."""

    walks: tuple[SetWalk, ...]

    @property
    def verdict(self) -> ConditionVerdict:
        """`true`: a rule concluded; `false`: none did, and the default policy decides; `error`: a condition failed with an error, and there must be no action."""
        return self.walks[-1].walk.verdict if self.walks else ConditionVerdict.FALSE

    @property
    def conclusion(self) -> Conclusion | None:
        return self.walks[-1].walk.conclusion if self.walks else None

    @property
    def rule(self) -> str | None:
        """The rule that concluded."""
        return self.walks[-1].walk.last_satisfied if self.verdict is ConditionVerdict.TRUE else None

    @property
    def flagged(self) -> str | None:
        """The rule whose condition failed with an error."""
        return self.walks[-1].walk.flagged if self.walks else None

    @property
    def by(self) -> SetWalk | None:
        """The walk that decided: the one that concluded or failed with an error."""
        return self.walks[-1] if self.verdict is not ConditionVerdict.FALSE else None


def in_order(sets: Iterable[RuleSet]) -> tuple[RuleSet, ...]:
    """The flow's rule set, then the domain's, then the packs by their names."""
    return tuple(sorted(sets, key=lambda rule_set: asked_at(rule_set.id)))


def asked_at(rule_set: RuleSetId) -> tuple[int, str]:
    """The position of a set in the order of evaluation."""
    return _ORDER[rule_set.level], rule_set.name


def keys_for(type_: ExceptionType, task: str) -> tuple[TreeKey, ...]:
    """The trees of one set that apply to an exception: its task's own, then the one for any task."""
    if type_.of_run:
        return (TreeKey(type_),)
    return (TreeKey(type_, ANY_TASK),) if task in {"", ANY_TASK} else (TreeKey(type_, task), TreeKey(type_, ANY_TASK))


def decide(
    sets: Sequence[RuleSet], type_: ExceptionType, task: str, evaluate: Evaluate, *, shadow: bool = False
) -> Ruling:
    """Evaluate the sets in the order given. The first tree that concludes decides; an error ends the evaluation, and there is no action.

    With `shadow` the rules that are not yet active count too: the result is what they would have decided. A type without
    rules gives no walk at all: the exception is ignored (P1-23).
    """
    walks: list[SetWalk] = []
    for rule_set in sets:
        for key in keys_for(type_, task):
            tree = rule_set.trees.get(key)
            if tree is None:
                continue
            walks.append(SetWalk(rule_set.id, rule_set.version, key, walk(tree, evaluate, shadow=shadow)))
            if walks[-1].walk.verdict is not ConditionVerdict.FALSE:
                return Ruling(tuple(walks))
    return Ruling(tuple(walks))
