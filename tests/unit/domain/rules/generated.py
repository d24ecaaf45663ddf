"""Generated trees: conditions are single letters, and a context says of each letter whether it is true, false or errs."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from forestay.domain.rules.condition import Erred, Evaluate
from forestay.domain.rules.rule_tree import Conclusion, Rule, RuleState, RuleTree, add, walk

LETTERS = "abcdefgh"

Context = Mapping[str, bool | Erred]

_answers = st.one_of(st.booleans(), st.booleans(), st.booleans(), st.builds(Erred, st.just("no such key")))
clear_contexts = st.fixed_dictionaries({letter: st.booleans() for letter in LETTERS})
"""Contexts on which no condition errs."""
contexts = st.fixed_dictionaries(dict.fromkeys(LETTERS, _answers))
states = st.sampled_from(RuleState)


def evaluate_in(context: Context) -> Evaluate:
    return lambda condition: True if condition == "true" else context[condition]


def rule(number: int, condition: str, state: RuleState = RuleState.ACTIVE) -> Rule:
    return Rule(
        f"r{number}",
        condition,
        Conclusion(playbook=f"do-{number}"),
        state,
        reference_incident=f"i{number}",
        author="ann",
        description="why",
    )


@st.composite
def trees(draw: st.DrawFn, *, shadows: bool = False, largest: int = 12) -> RuleTree:
    """A tree that grew as trees grow: each rule added for a reference incident on which its condition is true."""
    tree = RuleTree()
    for number in range(draw(st.integers(0, largest))):
        context = draw(clear_contexts)
        true = [letter for letter in LETTERS if context[letter]]
        if not true:
            continue
        state = draw(states) if shadows else RuleState.ACTIVE
        grown = add(
            tree, rule(number, draw(st.sampled_from(true)), state), walk(tree, evaluate_in(context), shadow=True)
        )
        assert isinstance(grown, RuleTree)
        tree = grown
    return tree
