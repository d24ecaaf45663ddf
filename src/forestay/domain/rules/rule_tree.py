"""A ripple-down tree: rules, each a refinement of or an alternative to its parent (P1 section 5).

A walk starts at the root, whose condition is `true`. A satisfied rule sends it to its true branch (a refinement: *except if*), an
unsatisfied one to its false branch (an alternative: *else if*). The last satisfied rule's conclusion wins.

A tree is a value: adding and removing return a new tree and leave the old one to walks that use it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType

from forestay.domain.rules.condition import ALWAYS, ConditionVerdict, Erred, Evaluate

ROOT = "root"
"""The id of every tree's root."""


class RuleState(StrEnum):
    """Whether a rule may act."""

    SHADOW = "shadow"
    """Its decisions are recorded, but it does not act (P1-35). Every rule begins in this state."""
    ACTIVE = "active"
    """It acts."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a rule concludes: a playbook by its name, or its steps written in place, as plain JSON values."""

    playbook: str = ""
    steps: tuple[Mapping[str, object], ...] = ()

    @property
    def empty(self) -> bool:
        return not self.playbook and not self.steps


@dataclass(frozen=True, slots=True)
class Rule:
    """One node of a tree. The root has no conclusion, no author and no reference incident."""

    id: str
    condition: str
    conclusion: Conclusion = Conclusion()
    state: RuleState = RuleState.SHADOW
    reference_incident: str | None = None
    """The incident for which it was written."""
    author: str = ""
    description: str = ""
    """Why, in the author's words."""
    created: int = 0
    """Milliseconds since 1970."""
    parent: str | None = None
    true_child: str | None = None
    false_child: str | None = None
    name: str = ""
    """Its name in the file of rules that it came from; empty: it was written for an incident."""


_ROOT_RULE = Rule(ROOT, ALWAYS, state=RuleState.ACTIVE)


@dataclass(frozen=True, slots=True)
class RuleTree:
    """Rules by their ids, joined by their links; the root is always there."""

    rules: Mapping[str, Rule] = field(default_factory=lambda: MappingProxyType({ROOT: _ROOT_RULE}))

    def __len__(self) -> int:
        """The number of rules without the root."""
        return len(self.rules) - 1

    @property
    def root(self) -> Rule:
        return self.rules[ROOT]

    @property
    def shadowed(self) -> bool:
        """Whether it contains a shadow rule."""
        return any(rule.state is RuleState.SHADOW for rule in self.rules.values())

    def depth(self) -> int:
        """The number of rules on the longest path, including the root."""
        deepest, waiting = 0, [(ROOT, 1)]
        while waiting:
            returned_rule, level = waiting.pop()
            deepest = max(deepest, level)
            rule = self.rules[returned_rule]
            waiting += [(child, level + 1) for child in (rule.true_child, rule.false_child) if child is not None]
        return deepest

    def way_to(self, rule: str) -> tuple[Rule, ...]:
        """The rules from the root down to a rule, including it."""
        way = [self.rules[rule]]
        while (parent := way[-1].parent) is not None:
            way.append(self.rules[parent])
        return tuple(reversed(way))

    def in_order(self) -> Iterator[tuple[Rule, int]]:
        """Every rule but the root in reading order, with the number of rules that it refines."""
        waiting: list[tuple[str, int]] = [(ROOT, -1)]
        while waiting:
            returned_rule, level = waiting.pop()
            rule = self.rules[returned_rule]
            if rule.id != ROOT:
                yield rule, level
            if rule.false_child is not None:
                waiting.append((rule.false_child, level))
            if rule.true_child is not None:
                waiting.append((rule.true_child, level + 1))


@dataclass(frozen=True, slots=True)
class Tested:
    """A rule on the path of a walk, with the result of its condition."""

    rule: str
    verdict: ConditionVerdict
    message: str = ""
    """What went wrong, where the verdict is `error`."""


# Not frozen: every decision creates one, and creating a frozen one takes three times as long.
@dataclass(slots=True)
class Walk:
    """A path through a tree, and its result.

    The path itself is not stored but derived: in a tree, the last rule determines the path to it.
    """

    tree: RuleTree = field(compare=False, repr=False)
    last_satisfied: str
    last_tested: str
    verdict: ConditionVerdict
    """`true`: there is a conclusion; `false`: there is none; `error`: the last tested condition failed with an error and there must be no action."""
    message: str = ""
    """What went wrong, where the verdict is `error`."""
    shadow: bool = False
    """Whether shadow rules counted."""

    @property
    def conclusion(self) -> Conclusion | None:
        """None: no rule was satisfied but the root, or a condition failed with an error."""
        return self.tree.rules[self.last_satisfied].conclusion if self.verdict is ConditionVerdict.TRUE else None

    @property
    def flagged(self) -> str | None:
        """The rule whose condition failed with an error."""
        return self.last_tested if self.verdict is ConditionVerdict.ERROR else None

    @property
    def path(self) -> tuple[Tested, ...]:
        """The tested rules, from the root to the last."""
        way = self.tree.way_to(self.last_tested)
        path = [
            Tested(rule.id, ConditionVerdict.TRUE if rule.true_child == after.id else ConditionVerdict.FALSE)
            for rule, after in pairwise(way)
            if self.shadow or rule.state is RuleState.ACTIVE
        ]
        if self.verdict is ConditionVerdict.ERROR:
            return (*path, Tested(self.last_tested, ConditionVerdict.ERROR, self.message))
        return (
            *path,
            Tested(
                self.last_tested,
                ConditionVerdict.TRUE if self.last_tested == self.last_satisfied else ConditionVerdict.FALSE,
            ),
        )


@dataclass(frozen=True, slots=True)
class RuleChangeRefused:
    """The tree cannot be changed in this way; says why."""

    reason: str


def walk(tree: RuleTree, evaluate: Evaluate, *, shadow: bool = False) -> Walk:
    """Walk the tree. Without `shadow` only active rules count: a shadow rule is skipped, untested, by its false branch.

    So the action is exactly what it would be without the shadow rules, even if their conditions fail with errors.
    """
    rules = tree.rules
    satisfied = tested = ROOT
    coming = tree.root.true_child
    while coming is not None:
        rule = rules[coming]
        if rule.state is RuleState.SHADOW and not shadow:
            coming = rule.false_child
            continue
        tested = coming
        answer = evaluate(rule.condition)
        if answer is True:
            satisfied = coming
            coming = rule.true_child
        elif answer is False:
            coming = rule.false_child
        else:
            # A value other than a boolean is an error, even if it is truthy.
            message = answer.message if isinstance(answer, Erred) else "the condition did not return a truth value"
            return Walk(tree, satisfied, tested, ConditionVerdict.ERROR, message, shadow)
    return Walk(
        tree, satisfied, tested, ConditionVerdict.FALSE if satisfied == ROOT else ConditionVerdict.TRUE, "", shadow
    )


def add(tree: RuleTree, rule: Rule, on: Walk) -> RuleTree | RuleChangeRefused:
    """Add a rule to the branch on which the walk of its reference incident ended; the walk must have included shadow rules.

    If the rule is true, that walk then ends in it; walks on other paths are not changed.
    """
    if rule.id in tree.rules:
        return RuleChangeRefused(f"there is already a rule {rule.id}")
    if rule.conclusion.empty:
        return RuleChangeRefused("a rule needs a conclusion: a playbook or at least one step")
    if on.verdict is ConditionVerdict.ERROR:
        return RuleChangeRefused(
            f"rule {on.last_tested} has an error on the reference incident; correct or remove it first"
        )
    above = tree.rules.get(on.last_tested)
    if above is None:
        return RuleChangeRefused(f"rule {on.last_tested}, where the evaluation ended, no longer exists; evaluate again")
    refines = on.last_tested == on.last_satisfied
    taken = above.true_child if refines else above.false_child
    if taken is not None:
        return RuleChangeRefused(f"rule {taken} is now at that position; evaluate again")
    child = replace(rule, parent=above.id, true_child=None, false_child=None)
    return with_rules(tree, _linked(above, child.id, refines=refines), child)


def remove(tree: RuleTree, rule: str) -> RuleTree | RuleChangeRefused:
    """Remove a rule without refinements; its alternative, if it has one, moves up into its place.

    Only walks on which the rule was satisfied (or failed with an error) can have another result.
    """
    gone = tree.rules.get(rule)
    if gone is None:
        return RuleChangeRefused(f"there is no rule {rule}")
    if gone.parent is None:
        return RuleChangeRefused("the root cannot be removed")
    if gone.true_child is not None:
        return RuleChangeRefused(f"rule {gone.true_child} refines it; remove the refinements first")
    above = tree.rules[gone.parent]
    rules = copied(tree)
    del rules[rule]
    rules[above.id] = _linked(above, gone.false_child, refines=above.true_child == rule)
    if gone.false_child is not None:
        rules[gone.false_child] = replace(rules[gone.false_child], parent=above.id)
    return RuleTree(MappingProxyType(rules))


def with_rules(tree: RuleTree, *changed: Rule) -> RuleTree:
    """The tree with some rules replaced by others of the same ids. The caller is responsible for the links."""
    rules = copied(tree)
    for rule in changed:
        rules[rule.id] = rule
    return RuleTree(MappingProxyType(rules))


def copied(tree: RuleTree) -> dict[str, Rule]:
    """A mutable copy of the rules of a tree; the mapping's own copy takes a fraction of a millisecond for a hundred thousand."""
    rules = tree.rules
    return rules.copy() if isinstance(rules, MappingProxyType) else dict(rules)


def check_tree(tree: RuleTree) -> tuple[str, ...]:
    """All errors in a tree's links; an untrusted tree must not be walked before this is empty."""
    root = tree.rules.get(ROOT)
    if root is None or root.parent is not None or root.condition != ALWAYS:
        return ("there is no root whose condition is true",)
    wrong = [f"rule {key} is stored under the name of {rule.id}" for key, rule in tree.rules.items() if key != rule.id]
    if root.false_child is not None:
        wrong.append("the root has a false branch, which no evaluation can reach")
    seen = {ROOT}
    waiting = [root]
    while waiting:
        above = waiting.pop()
        for child in (above.true_child, above.false_child):
            if child is None:
                continue
            rule = tree.rules.get(child)
            if rule is None:
                wrong.append(f"rule {above.id} has a branch to {child}, which does not exist")
            elif child in seen:
                wrong.append(f"rule {child} is attached to more than one branch")
            else:
                if rule.parent != above.id:
                    wrong.append(f"rule {child} is attached to {above.id} but names {rule.parent} as its parent")
                seen.add(child)
                waiting.append(rule)
    wrong += [f"rule {rule} is attached to no branch" for rule in tree.rules if rule not in seen]
    wrong += [
        f"rule {rule.id} has no conclusion" for rule in tree.rules.values() if rule.id != ROOT and rule.conclusion.empty
    ]
    return tuple(wrong)


def _linked(above: Rule, child: str | None, *, refines: bool) -> Rule:
    return replace(above, true_child=child) if refines else replace(above, false_child=child)
