"""Rules declared in a file: what applying it changes in a rule set.

A declared rule is identified by its name. Applying a file twice changes nothing the second time. A rule that the file changed is a new rule:
it starts in shadow mode and has to be replayed again, since the replay of the old one says nothing about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from forestay.domain.rules.condition import Evaluate
from forestay.domain.rules.rule_set import RuleSet, TreeKey, with_tree
from forestay.domain.rules.rule_tree import Rule, RuleChangeRefused, RuleState, add, remove, walk, with_rules


class DeclaredRule(NamedTuple):
    """A rule of a file, its position, and an evaluation over its example."""

    key: TreeKey
    rule: Rule
    evaluate: Evaluate


class DeclaredChange(StrEnum):
    """What applying a file does to one rule."""

    NONE = "none"
    ADDED = "added"
    CHANGED = "changed"
    """Removed, and added again in shadow mode."""
    DESCRIBED = "described"
    """Only its description differs; its state is kept."""
    REMOVED = "removed"


class AppliedRule(NamedTuple):
    """A rule after the file was applied."""

    name: str
    rule: str
    state: RuleState
    change: DeclaredChange


@dataclass(frozen=True, slots=True)
class AppliedRules:
    """The rule set after a file was applied; the same value where the file changes nothing."""

    rule_set: RuleSet
    rules: tuple[AppliedRule, ...]

    @property
    def changed(self) -> frozenset[str]:
        """The names of the rules that are added, changed or removed."""
        kept = {DeclaredChange.NONE, DeclaredChange.DESCRIBED}
        return frozenset(rule.name for rule in self.rules if rule.change not in kept)


def apply_declared(
    current: RuleSet, declared: Sequence[DeclaredRule], *, prune: bool = False
) -> AppliedRules | RuleChangeRefused:
    """Apply a file to a rule set. With `prune`, rules of the set that came from a file and are not in this one are removed.

    Refused if a rule that others refine would have to be removed, and if a declared rule would not answer its own example.
    """
    by_name = {
        rule.name: (key, rule) for key, tree in current.trees.items() for rule in tree.rules.values() if rule.name
    }
    applied: list[AppliedRule] = []
    later = current
    names = {entry.rule.name for entry in declared}
    added: list[DeclaredRule] = []
    # Removals come first: a rule of the file must not be added below a rule that the same file removes.
    for name, (key, old) in by_name.items():
        entry = next((entry for entry in declared if entry.rule.name == name), None)
        if entry is None:
            if not prune:
                continue
            applied.append(AppliedRule(name, old.id, old.state, DeclaredChange.REMOVED))
        elif entry.key == key and _same(entry.rule, old):
            if entry.rule.description == old.description:
                applied.append(AppliedRule(name, old.id, old.state, DeclaredChange.NONE))
            else:
                described = replace(later.tree(key).rules[old.id], description=entry.rule.description)
                later = with_tree(later, key, with_rules(later.tree(key), described))
                applied.append(AppliedRule(name, old.id, old.state, DeclaredChange.DESCRIBED))
            continue
        else:
            added.append(entry)
            applied.append(AppliedRule(name, entry.rule.id, entry.rule.state, DeclaredChange.CHANGED))
        rest = remove(later.tree(key), old.id)
        if isinstance(rest, RuleChangeRefused):
            return RuleChangeRefused(f"{name}: {rest.reason}")
        later = with_tree(later, key, rest)
    new = [entry for entry in declared if entry.rule.name not in by_name]
    applied += [AppliedRule(entry.rule.name, entry.rule.id, entry.rule.state, DeclaredChange.ADDED) for entry in new]
    for entry in (*added, *new):
        tree = later.tree(entry.key)
        grown = add(tree, entry.rule, walk(tree, entry.evaluate, shadow=True))
        if isinstance(grown, RuleChangeRefused):
            return RuleChangeRefused(f"{entry.rule.name}: {grown.reason}")
        later = with_tree(later, entry.key, grown)
    for entry in declared:
        tree = later.tree(entry.key)
        answering = tree.rules[walk(tree, entry.evaluate, shadow=True).last_satisfied]
        if answering.name != entry.rule.name and (entry in added or entry in new or answering.name in names):
            return RuleChangeRefused(
                f"{entry.rule.name}: rule {answering.name or answering.id} answers its example; make the conditions exclude each other"
            )
    order = {entry.rule.name: place for place, entry in enumerate(declared)}
    applied.sort(key=lambda rule: (order.get(rule.name, len(order)), rule.name))
    if later is not current:
        later = replace(later, version=current.version + 1)
    return AppliedRules(later, tuple(applied))


def _same(declared: Rule, stored: Rule) -> bool:
    return (declared.condition, declared.conclusion, declared.reference_incident) == (
        stored.condition,
        stored.conclusion,
        stored.reference_incident,
    )
