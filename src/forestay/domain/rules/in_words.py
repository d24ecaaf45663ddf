"""Rules in words: what a single rule means at its place in the tree, and a whole tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from forestay.domain.exceptions.incidents.retry_policy import wait_words
from forestay.domain.rules.rule_tree import ROOT, Conclusion, Rule, RuleState, RuleTree, Walk


def conclusion_in_words(conclusion: Conclusion) -> str:
    """The playbook's name, or its steps in sequence."""
    if conclusion.playbook:
        return conclusion.playbook
    return ", then ".join(_step(step) for step in conclusion.steps) or "nothing"


def _step(step: object) -> str:
    if not isinstance(step, dict) or not step:
        return str(step)
    first = str(step.get("do") or step.get("action") or next(iter(step)))
    target = step.get("on") or step.get("target")
    return " ".join([first, *([str(target)] if target else []), *_terms(step)])


def _terms(step: Mapping[str, Any]) -> Iterator[str]:
    """The arguments of a step in words: where, with how much, after which wait, and why."""
    if step.get("how") not in (None, "same", "changed"):
        yield str(step["how"])
    needs: Any = step.get("needs")
    for name, need in needs.items() if isinstance(needs, Mapping) else ():
        yield f"with {need_in_words(str(name), need)}"
    if isinstance(step.get("wait"), int) and step["wait"]:
        yield wait_words(step["wait"])
    if step.get("reason"):
        yield f"({step['reason']})"


def need_in_words(name: str, need: object) -> str:
    """A change of what a job may use: `memory × 2`, `wall to 3600`."""
    if not isinstance(need, Mapping):
        return name
    return f"{name} × {need['factor']:g}" if need.get("factor") is not None else f"{name} to {need.get('to')}"


def effective_rule(tree: RuleTree, rule: str) -> str:
    """A rule with the path that leads to it: `if … except if … else if … then …`.

    Each rule on the path is named once: a refinement by *except if*, an alternative by *else if*.
    """
    way = [other_rule for other_rule in tree.way_to(rule) if other_rule.id != ROOT]
    words = [f"{_joint(tree, other_rule)} {other_rule.condition}" for other_rule in way]
    if not words:
        return "always: nothing"
    return f"{' '.join(words)} then {conclusion_in_words(tree.rules[rule].conclusion)}"


def tree_in_words(tree: RuleTree) -> tuple[str, ...]:
    """The tree with one line per rule, refinements indented."""
    return tuple(_lines(tree))


def walk_in_words(tree: RuleTree, walk: Walk) -> tuple[str, ...]:
    """The walk with one line per tested rule, and its result."""
    lines: list[str] = []
    for tested in walk.path:
        if tested.rule == ROOT:
            continue
        rule = tree.rules[tested.rule]
        outcome = f"error: {tested.message}" if tested.message else str(tested.verdict)
        lines.append(f"{_joint(tree, rule)} {rule.condition} → {outcome}{_note(rule)}")
    return tuple(lines)


def _lines(tree: RuleTree) -> Iterator[str]:
    for rule, level in tree.in_order():
        yield f"{'  ' * level}{_joint(tree, rule)} {rule.condition} then {conclusion_in_words(rule.conclusion)}{_note(rule)}"


def _note(rule: Rule) -> str:
    return " (shadow)" if rule.state is RuleState.SHADOW else ""


def _joint(tree: RuleTree, rule: Rule) -> str:
    above = tree.rules[rule.parent or ROOT]
    if above.true_child != rule.id:
        return "else if"
    return "if" if above.id == ROOT else "except if"
