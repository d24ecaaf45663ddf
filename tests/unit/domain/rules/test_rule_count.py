"""How many rules would be asked about a flow."""

from __future__ import annotations

from dataclasses import replace

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.rules.rule_count import RuleCount, count_rules
from forestay.domain.rules.rule_set import RuleSet, RuleSetId, RuleSetLevel, TreeKey
from forestay.domain.rules.rule_tree import ROOT, RuleState, RuleTree


def test_rules_of_the_run_of_every_task_and_of_its_own_tasks() -> None:
    empty = RuleTree()
    root = empty.root
    tree = RuleTree(
        {ROOT: root, "a": replace(root, state=RuleState.ACTIVE), "b": replace(root, state=RuleState.SHADOW)}
    )
    keys = [
        TreeKey(ExceptionType.ABORT, "other"), TreeKey(ExceptionType.ABORT, "align"), TreeKey(ExceptionType.ABORT, "*"),
        TreeKey(ExceptionType.RUN_PRE),
    ]  # fmt: skip
    rules = RuleSet(RuleSetId("t", RuleSetLevel.FLOW, "nightly"), 1, dict.fromkeys(keys, tree))
    nothing = RuleSet(RuleSetId("t", RuleSetLevel.DOMAIN, "site"), 1, {keys[0]: empty, keys[1]: empty})
    assert list(count_rules([rules, nothing], ["align"])) == [
        RuleCount("flow/nightly", "abort", "*", 1, 1),
        RuleCount("flow/nightly", "abort", "align", 1, 1),
        RuleCount("flow/nightly", "run-pre", "", 1, 1),
    ]
