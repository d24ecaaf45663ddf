"""How many rules are evaluated for the exceptions of a flow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from forestay.domain.rules.rule_set import ANY_TASK, RuleSet
from forestay.domain.rules.rule_tree import ROOT, RuleState


class RuleCount(NamedTuple):
    """The rules of one tree."""

    rule_set: str
    type: str
    task: str
    """Empty: the run as a whole; ``*``: every task."""
    active: int
    shadow: int


def count_rules(sets: Iterable[RuleSet], tasks: Iterable[str]) -> Iterator[RuleCount]:
    """The rules for a run with these tasks, set by set in the order of evaluation."""
    names = {"", ANY_TASK, *tasks}
    for rule_set in sets:
        for key, tree in sorted(rule_set.trees.items()):
            states = [rule.state for name, rule in tree.rules.items() if name != ROOT]
            if key.task in names and states:
                active = states.count(RuleState.ACTIVE)
                yield RuleCount(str(rule_set.id), key.type.value, key.task, active, len(states) - active)
