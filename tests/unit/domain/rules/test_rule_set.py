"""Rule sets: which tree answers which exception, versions, their differences and the way back."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.rules.generated import LETTERS, Context, contexts, evaluate_in, rule, trees

from forestay.domain.exceptions.incidents.exception_type import EXCEPTIONS, RUN_LEVEL, ExceptionType
from forestay.domain.rules.condition import ConditionVerdict
from forestay.domain.rules.rule_set import (
    ANY_TASK,
    RuleSet,
    RuleSetId,
    RuleSetLevel,
    RuleSetVersion,
    TreeKey,
    apply,
    decide,
    diff,
    in_order,
    roll_back,
    tree_key,
    with_tree,
)
from forestay.domain.rules.rule_tree import RuleChangeRefused, RuleTree, add, check_tree, walk

ABORT = ExceptionType.ABORT
KEYS = [TreeKey(ExceptionType.RUN_PRE), TreeKey(ABORT, "align"), TreeKey(ABORT, ANY_TASK)]


def _set(level: RuleSetLevel, name: str, trees_: dict[TreeKey, RuleTree]) -> RuleSet:
    rule_set = RuleSet(RuleSetId("lab", level, name))
    for key, tree in trees_.items():
        rule_set = with_tree(rule_set, key, tree)
    return rule_set


def _tree(number: int, condition: str) -> RuleTree:
    grown = add(RuleTree(), rule(number, condition), walk(RuleTree(), lambda _: True, shadow=True))
    assert isinstance(grown, RuleTree)
    return grown


def _version(old: RuleSet, new: RuleSet) -> RuleSetVersion:
    return RuleSetVersion(old.id, old.version + 1, diff(old, new), "ann", 1)


rule_sets = st.builds(
    lambda first, two, three: _set(RuleSetLevel.DOMAIN, "site", dict(zip(KEYS, (first, two, three), strict=True))),
    trees(shadows=True), trees(shadows=True), trees(shadows=True),
)  # fmt: skip

ALL_FALSE: Context = dict.fromkeys(LETTERS, False)


@pytest.mark.ledger("P1-22")
def test_a_rule_set_has_up_to_eleven_tree_sets_with_one_tree_a_run_level_type_and_one_a_task_otherwise() -> None:
    assert len(ExceptionType) == 11
    assert len(EXCEPTIONS) == 10
    assert {"run-pre", "run-post", "run-external"} == RUN_LEVEL
    number = 0
    rule_set = RuleSet(RuleSetId("lab", RuleSetLevel.FLOW, "reads"))
    for type_ in ExceptionType:
        for task in ("align", "sort"):
            number += 1
            rule_set = with_tree(rule_set, tree_key(type_, task), _tree(number, "a"))
    assert Counter(key.type for key in rule_set.trees) == {t: 1 if t in RUN_LEVEL else 2 for t in ExceptionType}
    assert rule_set.find("r8") is not None


@pytest.mark.ledger("P1-23")
def test_an_exception_for_which_there_are_no_rules_is_ignored() -> None:
    rule_set = _set(RuleSetLevel.FLOW, "reads", {TreeKey(ABORT, "align"): _tree(1, "a")})
    for type_, task in ((ExceptionType.TIMEOUT, "align"), (ABORT, "sort")):
        ruling = decide([rule_set], type_, task, lambda _: True)
        assert (ruling.walks, ruling.verdict, ruling.conclusion) == ((), ConditionVerdict.FALSE, None)


def test_the_flow_is_asked_first_then_the_domain_then_the_packs_and_the_task_before_any_task() -> None:
    flow = _set(
        RuleSetLevel.FLOW, "reads", {TreeKey(ABORT, "align"): _tree(1, "a"), TreeKey(ABORT, ANY_TASK): _tree(2, "b")}
    )
    domain = _set(RuleSetLevel.DOMAIN, "site", {TreeKey(ABORT, ANY_TASK): _tree(3, "c")})
    packs = [
        _set(RuleSetLevel.PACK, name, {TreeKey(ABORT, ANY_TASK): _tree(n, "d")})
        for n, name in ((4, "slurm"), (5, "base"))
    ]
    sets = in_order([packs[0], domain, packs[1], flow])
    assert [rule_set.id.name for rule_set in sets] == ["reads", "site", "base", "slurm"]
    answers = {
        true: decide(sets, ABORT, "align", evaluate_in({**ALL_FALSE, **dict.fromkeys(true, True)})).rule
        for true in ("abcd", "bcd", "cd", "d", "")
    }
    assert answers == {"abcd": "r1", "bcd": "r2", "cd": "r3", "d": "r5", "": None}


@given(st.lists(trees(), min_size=1, max_size=4), contexts)
def test_an_error_in_an_earlier_set_keeps_the_later_sets_from_acting(several: list[RuleTree], context: Context) -> None:
    sets = [
        _set(RuleSetLevel.PACK, str(place), {TreeKey(ABORT, ANY_TASK): tree})
        for place, tree in enumerate(several)
        if len(tree)
    ]
    ruling = decide(sets, ABORT, "align", evaluate_in(context))
    verdicts = [set_walk.walk.verdict for set_walk in ruling.walks]
    assert all(verdict is ConditionVerdict.FALSE for verdict in verdicts[:-1])
    if ConditionVerdict.ERROR in verdicts:
        assert (ruling.verdict, ruling.conclusion, ruling.rule) == (ConditionVerdict.ERROR, None, None)
        assert ruling.flagged == ruling.walks[-1].walk.last_tested
    elif ruling.verdict is ConditionVerdict.FALSE:
        assert len(ruling.walks) == len(sets)


@given(rule_sets, rule_sets)
def test_a_version_is_what_it_changed_and_the_way_back_is_another_version(old: RuleSet, new: RuleSet) -> None:
    version = _version(old, new)
    later = apply(old, version)
    assert isinstance(later, RuleSet)
    assert later.version == old.version + 1
    assert diff(later, new) == ()
    for tree in later.trees.values():
        assert check_tree(tree) == ()
    back = roll_back(later, old, by="bob", at=6)
    if not version.changes:
        assert isinstance(back, RuleChangeRefused)
        return
    assert isinstance(back, RuleSetVersion)
    again = apply(later, back)
    assert isinstance(again, RuleSet)
    assert again.version == old.version + 2
    assert diff(again, old) == ()


def test_a_version_that_does_not_follow_or_breaks_a_tree_is_refused() -> None:
    empty = RuleSet(RuleSetId("lab", RuleSetLevel.DOMAIN, "site"))
    first = _version(empty, with_tree(empty, KEYS[2], _tree(1, "a")))
    rule_set = apply(empty, first)
    assert isinstance(rule_set, RuleSet)
    assert isinstance(apply(rule_set, first), RuleChangeRefused)
    torn = RuleSetVersion(empty.id, 1, first.changes[:1], "ann", 1)
    refused = apply(empty, torn)
    assert isinstance(refused, RuleChangeRefused)
    assert "r1" in refused.reason
