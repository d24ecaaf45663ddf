"""Ripple-down trees: what a walk comes to, and what adding and removing leaves as it was."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.unit.domain.rules.generated import LETTERS, Context, clear_contexts, contexts, evaluate_in, rule, trees

from forestay.domain.rules.condition import ConditionVerdict, Erred
from forestay.domain.rules.in_words import effective_rule, tree_in_words, walk_in_words
from forestay.domain.rules.rule_tree import (
    ROOT,
    Conclusion,
    Rule,
    RuleChangeRefused,
    RuleState,
    RuleTree,
    add,
    check_tree,
    remove,
    walk,
    with_rules,
)


def _grown(*steps: tuple[str, str]) -> RuleTree:
    """A tree grown by (condition, the letters that are true on its reference incident)."""
    tree = RuleTree()
    for number, (condition, true) in enumerate(steps, start=1):
        on = walk(tree, evaluate_in({letter: letter in true for letter in LETTERS}), shadow=True)
        grown = add(tree, rule(number, condition), on)
        assert isinstance(grown, RuleTree)
        tree = grown
    return tree


def _conclusion(tree: RuleTree, true: str) -> str | None:
    done = walk(tree, evaluate_in({letter: letter in true for letter in LETTERS}))
    return done.conclusion.playbook if done.conclusion else None


@pytest.mark.ledger("P1-21")
def test_a_refinement_is_tested_only_where_the_general_rule_holds_and_an_alternative_only_where_it_does_not() -> None:
    tree = _grown(("a", "a"), ("b", "ab"), ("c", "c"), ("d", "abd"))
    assert tree.rules["r2"].parent == "r1"
    assert tree.rules["r1"].true_child == "r2"
    assert tree.rules["r1"].false_child == "r3"
    assert _conclusion(tree, "a") == "do-1"
    assert _conclusion(tree, "ab") == "do-2"
    assert _conclusion(tree, "abd") == "do-4"
    assert _conclusion(tree, "c") == "do-3"
    assert _conclusion(tree, "bd") is None


@pytest.mark.ledger("P1-21")
def test_the_concert_of_the_paper_is_moved_or_cancelled_by_the_tickets_sold() -> None:
    sold = {"a": 0.75, "b": 0.5, "c": 0.2}
    tree = _grown(("a", "a"), ("b", "ab"), ("c", "abc"))

    def venue(share: float) -> str | None:
        return _conclusion(tree, "".join(letter for letter, limit in sold.items() if share < limit))

    assert [venue(share) for share in (0.9, 0.7, 0.4, 0.1)] == [None, "do-1", "do-2", "do-3"]


def test_a_walk_names_its_whole_path_and_where_a_rule_would_go() -> None:
    tree = _grown(("a", "a"), ("b", "ab"), ("c", "c"))
    done = walk(tree, evaluate_in({**dict.fromkeys(LETTERS, False), "a": True}))
    assert [(tested.rule, tested.verdict) for tested in done.path] == [(ROOT, "true"), ("r1", "true"), ("r2", "false")]
    assert (done.last_satisfied, done.last_tested, done.verdict) == ("r1", "r2", ConditionVerdict.TRUE)


@given(trees(), clear_contexts, st.sampled_from(LETTERS), contexts)
def test_a_new_rule_answers_its_reference_incident_and_changes_no_walk_that_does_not_reach_it(
    tree: RuleTree, reference_incident: Context, condition: str, other: Context
) -> None:
    assume(reference_incident[condition] is True)
    on = walk(tree, evaluate_in(reference_incident), shadow=True)
    grown = add(tree, rule(99, condition), on)
    assert isinstance(grown, RuleTree)
    after = walk(grown, evaluate_in(reference_incident))
    assert after.conclusion == Conclusion(playbook="do-99")
    assert after.path[:-1] == on.path

    was, is_ = walk(tree, evaluate_in(other)), walk(grown, evaluate_in(other))
    if all(tested.rule != "r99" for tested in is_.path):
        assert was == is_
    else:
        assert (was.last_tested, was.path) == (on.last_tested, is_.path[:-1])


@given(trees(), clear_contexts, st.sampled_from(LETTERS))
def test_adding_and_removing_gives_the_same_tree_back(
    tree: RuleTree, reference_incident: Context, condition: str
) -> None:
    grown = add(tree, rule(99, condition), walk(tree, evaluate_in(reference_incident), shadow=True))
    assert isinstance(grown, RuleTree)
    back = remove(grown, "r99")
    assert isinstance(back, RuleTree)
    assert dict(back.rules) == dict(tree.rules)


@given(trees(), contexts, st.data())
def test_removing_a_rule_changes_only_walks_on_which_it_was_satisfied_or_erred(
    tree: RuleTree, context: Context, data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(sorted(tree.rules)))
    rest = remove(tree, gone)
    if gone == ROOT or tree.rules[gone].true_child is not None:
        assert isinstance(rest, RuleChangeRefused)
        return
    assert isinstance(rest, RuleTree)
    assert check_tree(rest) == ()
    was = walk(tree, evaluate_in(context))
    if {tested.verdict for tested in was.path if tested.rule == gone} <= {ConditionVerdict.FALSE}:
        is_ = walk(rest, evaluate_in(context))
        assert (is_.conclusion, is_.verdict) == (was.conclusion, was.verdict)
        assert is_.path == tuple(tested for tested in was.path if tested.rule != gone)


@given(trees(shadows=True), contexts)
def test_no_walk_is_longer_than_the_tree_is_deep(tree: RuleTree, context: Context) -> None:
    assert check_tree(tree) == ()
    for shadow in (False, True):
        done = walk(tree, evaluate_in(context), shadow=shadow)
        assert len(done.path) <= tree.depth() <= len(tree) + 1
        assert len({tested.rule for tested in done.path}) == len(done.path)


@given(trees(shadows=True), contexts, st.booleans())
def test_the_path_is_what_was_tested_in_that_order(tree: RuleTree, context: Context, shadow: bool) -> None:
    asked: list[str] = []

    def evaluate(condition: str) -> bool | Erred:
        asked.append(condition)
        return evaluate_in(context)(condition)

    done = walk(tree, evaluate, shadow=shadow)
    assert [tree.rules[tested.rule].condition for tested in done.path[1:]] == asked
    for tested in done.path[1:]:
        answer = context[tree.rules[tested.rule].condition]
        assert tested.verdict == (ConditionVerdict.ERROR if isinstance(answer, Erred) else str(answer).lower())


@given(trees(), contexts)
def test_an_erring_rule_never_lets_a_more_general_one_act(tree: RuleTree, context: Context) -> None:
    done = walk(tree, evaluate_in(context))
    errs = [tested for tested in done.path if tested.verdict is ConditionVerdict.ERROR]
    if errs:
        assert errs == [done.path[-1]]
        assert errs[0].message == "no such key"
        assert (done.verdict, done.conclusion, done.flagged) == (ConditionVerdict.ERROR, None, errs[0].rule)
    else:
        assert done.flagged is None
        assert (done.conclusion is None) == (done.verdict is ConditionVerdict.FALSE) == (done.last_satisfied == ROOT)


@given(trees(shadows=True), contexts)
@pytest.mark.ledger("P1-35")
def test_what_acts_is_what_would_act_without_the_shadows(tree: RuleTree, context: Context) -> None:
    """The reference has each shadow's condition made false: it can be satisfied no more, and cannot err."""
    silent = with_rules(
        tree, *(Rule(r.id, "never", r.conclusion, RuleState.ACTIVE, r.reference_incident, r.author, r.description, r.created, r.parent,
                     r.true_child, r.false_child) for r in tree.rules.values() if r.state is RuleState.SHADOW)
    )  # fmt: skip
    without = walk(silent, evaluate_in({**context, "never": False}))
    acted = walk(tree, evaluate_in(context))
    assert (acted.conclusion, acted.verdict, acted.last_satisfied) == (
        without.conclusion,
        without.verdict,
        without.last_satisfied,
    )


def test_what_is_no_truth_value_is_an_error_however_true_it_looks() -> None:
    tree = _grown(("a", "a"))
    done = walk(tree, lambda _condition: "an error that is a text")  # type: ignore[arg-type,return-value]
    assert (done.verdict, done.conclusion) == (ConditionVerdict.ERROR, None)


def test_a_rule_is_refused_where_its_place_is_taken_or_a_rule_errs() -> None:
    tree = _grown(("a", "a"))
    on = walk(tree, evaluate_in({**dict.fromkeys(LETTERS, False), "a": True}), shadow=True)
    grown = add(tree, rule(2, "b"), on)
    assert isinstance(grown, RuleTree)
    assert isinstance(add(grown, rule(3, "c"), on), RuleChangeRefused)
    assert isinstance(add(grown, rule(1, "c"), on), RuleChangeRefused)
    assert isinstance(add(tree, Rule("r9", "b"), on), RuleChangeRefused)
    erred = walk(tree, evaluate_in({**dict.fromkeys(LETTERS, False), "a": Erred("no such key")}), shadow=True)
    refused = add(tree, rule(3, "c"), erred)
    assert isinstance(refused, RuleChangeRefused)
    assert "r1 has an error" in refused.reason


def test_every_broken_link_is_found() -> None:
    whole = _grown(("a", "a"), ("b", "ab"))
    lost = RuleTree({name: rule for name, rule in whole.rules.items() if name != "r2"})
    assert check_tree(lost) == ("rule r1 has a branch to r2, which does not exist",)
    assert check_tree(RuleTree({})) == ("there is no root whose condition is true",)
    ring = with_rules(whole, Rule("r2", "b", Conclusion("x"), parent="r1", true_child="r1"))
    assert any("more than one branch" in wrong for wrong in check_tree(ring))
    stray = with_rules(whole, Rule("r3", "b", Conclusion("x"), parent="r1"))
    assert check_tree(stray) == ("rule r3 is attached to no branch",)


def test_a_rule_and_a_tree_are_told_in_words() -> None:
    tree = _grown(("a", "a"), ("b", "ab"), ("c", "c"), ("d", "ad"))
    assert effective_rule(tree, "r4") == "if a except if b else if d then do-4"
    assert effective_rule(tree, "r3") == "if a else if c then do-3"
    assert tree_in_words(tree) == (
        "if a then do-1",
        "  except if b then do-2",
        "  else if d then do-4",
        "else if c then do-3",
    )
    done = walk(tree, evaluate_in({**dict.fromkeys(LETTERS, False), "a": True, "b": Erred("no such key")}))
    assert walk_in_words(tree, done) == ("if a → true", "except if b → error: no such key")


def test_a_chain_of_many_rules_is_walked_and_told_without_recursion() -> None:
    rules = {ROOT: Rule(ROOT, "true", state=RuleState.ACTIVE, true_child="0")}
    many = 5000
    for number in range(many):
        rules[str(number)] = Rule(
            str(number), "a", Conclusion("x"), RuleState.ACTIVE, parent=str(number - 1) if number else ROOT,
            false_child=str(number + 1) if number < many - 1 else None,
        )  # fmt: skip
    tree = RuleTree(rules)
    assert check_tree(tree) == ()
    assert len(walk(tree, lambda _: False).path) == tree.depth() == many + 1
    assert len(tree_in_words(tree)) == many
