"""Rules in words say what they do, after which wait, and why."""

from __future__ import annotations

import pytest

from forestay.domain.rules.in_words import conclusion_in_words
from forestay.domain.rules.rule_tree import Conclusion


@pytest.mark.finding("F-D17")
@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"action": "resubmit"}, "resubmit"),
        ({"action": "resubmit", "how": "same", "wait": 60}, "resubmit after 1 min"),
        (
            {
                "action": "resubmit",
                "how": "changed",
                "needs": {"memory": {"factor": 2, "at_most": 1 << 38}},
                "wait": 90,
            },
            "resubmit with memory × 2 after 90 s",
        ),
        ({"action": "resubmit", "how": "other-domain"}, "resubmit other-domain"),
        ({"action": "hold", "target": "run", "reason": "ask the owner"}, "hold run (ask the owner)"),
    ],
)
def test_a_step_tells_how_it_is_done(step: dict[str, object], words: str) -> None:
    assert conclusion_in_words(Conclusion(steps=(step,))) == words
