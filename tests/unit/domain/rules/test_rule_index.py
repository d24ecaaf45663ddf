"""The quick walk comes to what the plain walk comes to, with real conditions, errors included."""

from __future__ import annotations

from dataclasses import replace
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples
from tests.unit.domain.rules.generated import states

from forestay.adapters.cel.conditions import CelConditions
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.rules.condition import ConditionVerdict
from forestay.domain.rules.context import Context, read_context
from forestay.domain.rules.plain_condition import NOTHING, FieldComparison, conjunction_of
from forestay.domain.rules.rule_index import IndexedSet, RuleSetIndex, TreeIndex, decide_quickly
from forestay.domain.rules.rule_set import RuleSet, RuleSetId, RuleSetLevel, TreeKey, changes_of, decide, with_tree
from forestay.domain.rules.rule_tree import Conclusion, Rule, RuleState, RuleTree, add, walk, with_rules

CONDITIONS = CelConditions()

PARTS = (
    'cause == "memory"', 'cause == "disk"', "cause == 'time'", 'cause != "memory"', "job.attempt == 1", "job.attempt < 2",
    "job.attempt >= 2", "evidence.exit_code == 137", "evidence.exit_code > 100", "evidence.exit_code != null",
    "evidence.exit_code == null", "evidence.exit_code != 137", "host.closed", "!host.closed", "confidence > 0.5",
    "evidence.wall_time < 10.5", 'pattern == "a && b"', 'pattern == "x || y"', "run.data.a == 1", 'tasks["a"] == "running"',
    'cause in ["memory", "disk"]', 'pattern in ["a && b"]', '"a" in tasks', '"a" in run.data', "'b' in tasks", '"q" in job.labels',
    'job.labels["q"] == "long"', '"q" in job.labels && job.labels["q"] == "long"', 'cause in ["disk", "disk"]',
    "history.cause_1h > 5", "history.cause_1h >= 2 && job.attempt < 3", "job.attempt <= 1", "evidence.peak_memory > job.memory",
    "evidence.exit_code in [1, 137]", 'pattern.contains("||")', "has(tasks.a)", 'tasks.a == "running"', 'tasks.exists(k, k != "a")',
    'evidence.log_tail.exists(l, l == "x")', "1 / (job.attempt - 1) == 1", '(cause == "memory" || job.attempt == 2)', "no.such == 1",
)  # fmt: skip

texts = st.one_of(
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=3).map(" && ".join),
    st.tuples(st.sampled_from(PARTS), st.sampled_from(PARTS)).map(" || ".join),
    st.tuples(st.sampled_from(PARTS), st.sampled_from(PARTS)).map(lambda two: f"{two[0]} ? {two[1]} : true"),
)

strategy = st.fixed_dictionaries(
    {},
    optional={
        "cause": st.sampled_from(["memory", "disk", "time"]),
        "job.attempt": st.integers(0, 3),
        "evidence.exit_code": st.sampled_from([None, 1, 100, 137]),
        "evidence.wall_time": st.sampled_from([None, 1.0, 10.5]),
        "host.closed": st.booleans(),
        "confidence": st.sampled_from([0.0, 0.5, 0.9]),
        "pattern": st.sampled_from(["a && b", "x || y", ""]),
        "run.data": st.sampled_from([{}, {"a": 1}, {"a": "1"}]),
        "job.labels": st.sampled_from([{}, {"q": "long"}, {"q": "short", "b": "x"}]),
        "tasks": st.sampled_from([{}, {"a": "running"}]),
        "unfilled": st.sampled_from([[], ["run.data", "tasks"], ["cause"]]),
        "history.cause_1h": st.integers(0, 7),
        "evidence.peak_memory": st.sampled_from([None, 0, 7]),
        "job.memory": st.integers(0, 7),
        "evidence.log_tail": st.sampled_from([[], ["x"], ["y"]]),
    },
)
contexts = strategy.map(lambda values: read_context(values)[0])


def _holds(comparison: FieldComparison, context: Context) -> bool | None:
    """Whether a comparison holds; None where the field is null, of which only CEL says what it comes to."""
    value: Any = context[comparison.field]
    wanted: Any = comparison.value
    if comparison.sign == "has":
        return wanted in value
    if comparison.sign == "among":
        return value in wanted
    if value is None and comparison.sign not in {"==", "!="}:
        return None
    by = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}[comparison.sign]
    return bool(by(value, wanted))


@given(st.sampled_from(PARTS) | texts, contexts)
@settings(max_examples=examples(400))
def test_a_condition_is_false_where_a_comparison_that_was_read_off_is(text: str, context: Context) -> None:
    if CONDITIONS.compile(text) or context["unfilled"]:
        return  # about a field that was not filled every condition errs, and no index is used
    if any(_holds(comparison, context) is False for comparison in conjunction_of(text).comparisons):
        assert CONDITIONS.over(context)(text) is False


@pytest.mark.parametrize(
    "text",
    [
        'cause == r"a"', 'cause == "a\\n"', "cause == '''a'''", 'cause == "a" && job.name == r"x"', 'cause == "a" && job.name == """x"""',
        'cause == "a" // && job.attempt == 1', "cause == 1", "job.attempt == 1.5", "confidence == 1", "unknown == 1", "tasks == 1", "job.attempt == null",
        "evidence.exit_code < null", "job.attempt == 9999999999999999999", "job.`attempt` == 1", "attempts.exists(a, evidence.log_tail.exists(l, l == a.host))",
        "!" * 5, "(" * 40 + "true" + ")" * 40, "true" + " ? true : true" * 60, "1 + " * 40 + "1 == 1", "true && " * 800 + "true",
        'cause == "memory" || host.closed', 'cause == "memory" ? host.closed : true', 'cause < "b"', 'job.labels["q"] == "x"',
        'cause == "memory" && job.attempt == 1 || host.closed', '!(cause == "memory" && host.closed)', "job.attempt + 1 == 2", "!!host.closed",
        '"x" in evidence.log_tail', 'cause in ["a", 1]', "confidence in [0.5]", "job.attempt == 1u", "job.attempt == 0x1", "host.closed == host.closed",
        "run.data.a == 1", "has(run.data.a.b)", 'cause == "a" == true', "-job.attempt == 1",
    ],
)  # fmt: skip
def test_nothing_is_read_off_what_is_not_surely_a_comparison(text: str) -> None:
    assert conjunction_of(text) == NOTHING


@pytest.mark.parametrize(
    ("text", "comparison"),
    [
        ('cause == "a && b || c"', ("cause", "==", "a && b || c")),
        ("'a' == cause", ("cause", "==", "a")),
        ("3 < job.attempt", ("job.attempt", ">", 3)),
        ("evidence.exit_code>=-9", ("evidence.exit_code", ">=", -9)),
        ("evidence.exit_code != null", ("evidence.exit_code", "!=", None)),
        ("confidence > 0.5", ("confidence", ">", 0.5)),
        ("host.closed == false", ("host.closed", "==", False)),
        ("host.closed", ("host.closed", "==", True)),
        ("! host.closed", ("host.closed", "==", False)),
        ("cause in ['a', \"b, c\"]", ("cause", "among", ("a", "b, c"))),
        ("evidence.exit_code in [1,-137]", ("evidence.exit_code", "among", (1, -137))),
        ('"a" in tasks', ("tasks", "has", "a")),
        ("has(run.data.a)", ("run.data", "has", "a")),
    ],
)
def test_a_comparison_is_read_off(text: str, comparison: tuple[object, ...]) -> None:
    assert not CONDITIONS.compile(text)
    assert conjunction_of(text).comparisons == (comparison,)


def test_the_plain_parts_of_a_conjunction_are_read_off() -> None:
    read = conjunction_of(
        'cause == "memory" && (job.attempt == 1 || host.closed)\n && job.name.contains("?") && evidence.exit_code>100'
    )
    assert read.comparisons == (("cause", "==", "memory"), ("evidence.exit_code", ">", 100))


def _grown(drafts: list[tuple[str, Context, RuleState]], index: TreeIndex | None = None) -> RuleTree:
    """A tree grown rule by rule; an index that is given follows it."""
    tree = RuleTree()
    for number, (condition, reference_incident, state) in enumerate(drafts):
        on = walk(tree, CONDITIONS.over(reference_incident), shadow=True)
        rule = Rule(f"r{number}", condition, Conclusion(f"do-{number}"), state)
        grown = add(tree, rule, on)
        if not isinstance(grown, RuleTree):
            continue
        if index is not None:
            changes = changes_of(TreeKey(ExceptionType.ABORT, "*"), tree, grown, (on.last_tested, rule.id))
            assert TreeIndex.can_follow(changes)
            index.follow(grown, changes)
        tree = grown
    return tree


def _compiles(text: str) -> bool:
    return not CONDITIONS.compile(text)


drafts = st.lists(st.tuples(texts, contexts, states), max_size=14)


@given(drafts, st.lists(contexts, min_size=1, max_size=5))
@settings(max_examples=examples(150))
def test_the_quick_walk_comes_to_what_the_plain_walk_comes_to(
    rules: list[tuple[str, Context, RuleState]], asked: list[Context]
) -> None:
    following = TreeIndex(RuleTree(), _compiles)
    tree = _grown(rules, following)
    for index in (TreeIndex(tree, _compiles), following):
        assert index.tree == tree
        for context in asked:
            for shadow in (False, True):
                plain = walk(tree, CONDITIONS.over(context), shadow=shadow)
                quick = index.walk(context, CONDITIONS.over(context), shadow=shadow)
                assert quick == plain
                assert (quick.conclusion, quick.path) == (plain.conclusion, plain.path)


@given(drafts.filter(bool), contexts, st.data())
@settings(max_examples=examples(60))
def test_an_index_follows_promotions_and_says_when_it_cannot_follow(
    rules: list[tuple[str, Context, RuleState]], context: Context, data: st.DataObject
) -> None:
    tree = _grown(rules)
    index = TreeIndex(tree, _compiles)
    key = TreeKey(ExceptionType.ABORT, "*")
    chosen = data.draw(st.sampled_from([rule for rule in tree.rules.values() if rule.id != "root"]))
    other = RuleState.SHADOW if chosen.state is RuleState.ACTIVE else RuleState.ACTIVE
    promoted = with_rules(tree, replace(chosen, state=other))
    changes = changes_of(key, tree, promoted, (chosen.id,))
    assert TreeIndex.can_follow(changes)
    index.follow(promoted, changes)
    for shadow in (False, True):
        assert index.walk(context, CONDITIONS.over(context), shadow=shadow) == walk(
            promoted, CONDITIONS.over(context), shadow=shadow
        )
    reworded = with_rules(promoted, replace(chosen, condition="false"))
    assert not TreeIndex.can_follow(changes_of(key, promoted, reworded, (chosen.id,)))


@given(st.lists(drafts, min_size=1, max_size=3), contexts, st.booleans())
@settings(max_examples=examples(60))
def test_the_quick_decision_is_the_plain_one(
    several: list[list[tuple[str, Context, RuleState]]], context: Context, shadow: bool
) -> None:
    sets = []
    for place, rules in enumerate(several):
        key = TreeKey(ExceptionType.ABORT, "*" if place % 2 else "align")
        sets.append(with_tree(RuleSet(RuleSetId("lab", RuleSetLevel.PACK, str(place))), key, _grown(rules)))
    evaluate = CONDITIONS.over(context)
    ready = [IndexedSet(rule_set, _compiles) for rule_set in sets]
    for set_indexes in ([RuleSetIndex(ready)], [RuleSetIndex(ready[:1]), RuleSetIndex(ready[1:])]):
        quick = decide_quickly(set_indexes, ExceptionType.ABORT, "align", context, evaluate, shadow=shadow)
        assert quick == decide(sets, ExceptionType.ABORT, "align", evaluate, shadow=shadow)


@given(drafts, drafts, st.lists(contexts, min_size=1, max_size=3))
@settings(max_examples=examples(60))
def test_a_panel_follows_its_sets(
    rules: list[tuple[str, Context, RuleState]],
    others: list[tuple[str, Context, RuleState]],
    asked: list[Context],
) -> None:
    key = TreeKey(ExceptionType.ABORT, "*")
    rule_set, other = (RuleSet(RuleSetId("lab", RuleSetLevel.PACK, name)) for name in "ab")
    other = with_tree(other, key, _grown(others))
    growing = IndexedSet(rule_set, _compiles)
    growing.indexes[key] = TreeIndex(RuleTree(), _compiles)
    set_index = RuleSetIndex([growing, IndexedSet(other, _compiles)])
    for count in range(1, len(rules) + 1):
        grown = RuleTree()
        index = TreeIndex(grown, _compiles) if count % 3 == 0 else growing.indexes[key]
        if count % 3 == 0:
            grown = _grown(rules[:count], index)
        else:
            before = growing.indexes[key].tree
            grown = _grown(rules[:count])
            added = [name for name in grown.rules if name not in before.rules]
            if added:
                parent = grown.rules[added[0]].parent
                assert parent is not None
                index.follow(grown, changes_of(key, before, grown, (parent, added[0])))
        for _ in set_index.learn(rule_set.id, key, index):
            pass
        growing.indexes[key], growing.rule_set = index, with_tree(rule_set, key, grown)
        set_index.seat(set_index.sets)
        for context in asked:
            for shadow in (False, True):
                evaluate = CONDITIONS.over(context)
                quick = decide_quickly([set_index], ExceptionType.ABORT, "x", context, evaluate, shadow=shadow)
                trees = [growing.indexes[key].tree, other.tree(key)]
                plain = [
                    walk(tree, evaluate, shadow=shadow) for tree in trees if tree is not trees[1] or key in other.trees
                ]
                made = [done.walk for done in quick.walks]
                assert made == plain[: len(made)]
                assert all(done.verdict is ConditionVerdict.FALSE for done in made[:-1])
                assert len(made) == len(plain) or made[-1].verdict is not ConditionVerdict.FALSE
