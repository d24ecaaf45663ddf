"""Rules that are evaluated once for each group of incidents decide what they decide about each incident by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples
from tests.unit.domain.rules.test_rule_index import PARTS, texts

from forestay.adapters.cel.conditions import CelConditions
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Incident
from forestay.domain.rules import decision_groups
from forestay.domain.rules.answer import Answer, AnswerKind
from forestay.domain.rules.context import told_by
from forestay.domain.rules.decision_groups import fields_read
from forestay.domain.rules.rule_set import RuleSet, RuleSetId, RuleSetLevel, TreeKey, with_tree
from forestay.domain.rules.rule_tree import Conclusion, Rule, RuleState, RuleTree, add, walk
from forestay.services.rules.replayed_sets import ReplayedSets
from forestay.services.rules.rule_replay import MOST, MOST_ALLOWED, ReplayRequest
from forestay.services.rules.rule_store import RuleCache

CONDITIONS = CelConditions()
SITE = RuleSetId("lab", RuleSetLevel.DOMAIN, "site")
THEN = Answer(AnswerKind.HOLD, "domain/site#before")
LONG = "a && b" + " " * 300
# Beside ordinary values those of which a condition sees something else, or which Python takes for equal and a condition does not.
contexts = st.fixed_dictionaries(
    {},
    optional={
        "cause": st.sampled_from(["memory", "disk", "code", "node", "transfer", 7]),
        "evidence.exit_code": st.sampled_from([None, 1, 1.0, True, 2, 100, 137, "137", 2**70]),
        "evidence.wall_time": st.sampled_from([1.0, 10, 10.5, 11.0]),
        "host.closed": st.booleans(),
        "confidence": st.sampled_from([0.0, 0.5, 0.9, 1]),
        "pattern": st.sampled_from(["a && b", "x || y", "p1", "p2", "", "é", LONG, ["a && b"]]),
        "run.data": st.sampled_from([{"a": 1}, {"a": 1.0}, {"a": True}, {"a": "1"}, {"b": 1}]),
        "job.labels": st.sampled_from([{"q": "long"}, {"q": "short", "b": "x"}, {"q": 1}]),
        "tasks": st.sampled_from([{"a": "running"}, {"b": "failed"}]),
        "unfilled": st.sampled_from([["run.data", "tasks"], ["cause"], ["job.team"]]),
        "history.cause_1h": st.integers(0, 7),
        "evidence.peak_memory": st.sampled_from([None, 0, 7]),
        "evidence.log_tail": st.sampled_from(["x", "y\nx", ["x"], ["y"]]),
    },
)


@st.composite
def incidents(draw: st.DrawFn) -> list[Incident]:
    """Some failures, of which several are often alike."""
    pool = draw(st.lists(st.tuples(contexts, st.integers(1, 3)), min_size=1, max_size=12))
    many = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=24))
    return [
        Incident(f"i{place}", "lab", "ann", ExceptionType.ABORT, 0, job="j", attempt=attempt, context=context)
        for place, (context, attempt) in enumerate(many)
    ]


def grown(conditions: Sequence[str]) -> RuleSet:
    tree = RuleTree()
    for number, text in enumerate(conditions):
        rule = Rule(f"r{number}", text, Conclusion(steps=({"action": "retry"},)), RuleState.ACTIVE, f"i{number}")
        made = add(tree, rule, walk(tree, lambda condition: condition == "true", shadow=True))
        assert isinstance(made, RuleTree)
        tree = made
    return with_tree(RuleSet(SITE), TreeKey(ExceptionType.ABORT, "*"), tree)


def sets_over(rule_set: RuleSet) -> ReplayedSets:
    return ReplayedSets(RuleCache(cast(Any, None), CONDITIONS), CONDITIONS, None, rule_set, {})


async def decided(sets: ReplayedSets, failures: Sequence[Incident], *, whole: bool) -> list[Answer]:
    return [
        await sets.decide(incident, told_by(incident) if whole else told_by(incident, sets.wanted()), "", THEN)
        for incident in failures
    ]


@given(conditions=st.lists(texts, min_size=1, max_size=4), failures=incidents())
@settings(max_examples=examples(60), deadline=None)
def test_the_answers_are_those_of_each_incident_by_itself(conditions: list[str], failures: list[Incident]) -> None:
    rule_set = grown(conditions)
    grouped, alone = sets_over(rule_set), sets_over(rule_set)
    alone.groups.alone = True
    expected = asyncio.run(decided(alone, failures, whole=True))
    assert asyncio.run(decided(grouped, failures, whole=False)) == expected
    assert alone.groups.evaluated == len(failures)
    assert grouped.groups.evaluated <= len({(repr(sorted(i.context.items())), i.attempt) for i in failures})


@pytest.mark.parametrize("part", PARTS)
def test_no_value_that_a_rule_tells_apart_is_taken_for_another(part: str) -> None:
    """Each part alone, over every pair of values of every field that it may read."""
    rule_set = grown([part])
    values: dict[str, list[Any]] = {
        "cause": ["memory", "disk", "time", "x"], "evidence.exit_code": [None, 1, 100, 137, 138, True, 1.0],
        "pattern": ["a && b", "x || y", "z", LONG], "host.closed": [True, False], "confidence": [0.5, 0.51],
        "evidence.wall_time": [10.4, 10.5], "run.data": [{"a": 1}, {"a": 2}], "tasks": [{"a": "running"}, {"a": "x"}],
        "job.labels": [{"q": "long"}, {"q": "x"}], "history.cause_1h": [1, 2, 5, 6], "evidence.peak_memory": [None, 0, 7],
        "evidence.log_tail": [["x"], ["y"]],
    }  # fmt: skip
    failures = [
        Incident(f"{name}-{place}", "lab", "ann", ExceptionType.ABORT, 0, job="j", attempt=1, context={name: value})
        for name, some in values.items()
        for place, value in enumerate(some)
    ]
    grouped, alone = sets_over(rule_set), sets_over(rule_set)
    alone.groups.alone = True
    expected = asyncio.run(decided(alone, failures, whole=True))
    assert asyncio.run(decided(grouped, failures, whole=False)) == expected


def test_values_that_no_rule_spells_out_are_all_the_same_to_rules() -> None:
    rule_set = grown(
        ['host.name == "n7" && cause in ["memory", "disk"]', 'evidence.exit_code != null && cause == "code"']
    )
    sets = sets_over(rule_set)
    failures = [
        Incident(
            f"i{n}", "lab", "ann", ExceptionType.ABORT, 0, job="j", attempt=n % 3,
            context={"host.name": f"n{n % 50}", "cause": "memory", "evidence.exit_code": n, "job.name": f"task-{n}"},
        )
        for n in range(200)
    ]  # fmt: skip
    answers = asyncio.run(decided(sets, failures, whole=False))
    assert [answer.by for answer in answers].count("domain/site#r0") == 4
    assert sets.groups.evaluated == 2
    assert sorted(sets.read().values) == ["cause", "evidence.exit_code", "host.name"]


@pytest.mark.finding("F-D11")
def test_what_is_said_of_every_past_failure_is_what_a_replay_looks_at() -> None:
    assert ReplayRequest(SITE).most == MOST == MOST_ALLOWED == 1_000_000
    text = (Path(__file__).parents[4] / "README.md").read_text(encoding="utf-8")
    assert "on every recorded failure (on the newest million, if there are more)" in text


def test_where_nearly_all_differ_each_is_evaluated_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_groups, "LEARNING", 10)
    sets = sets_over(grown(['evidence.log_tail.exists(line, line.contains("lost"))']))
    failures = [
        Incident(
            f"i{n}", "lab", "ann", ExceptionType.ABORT, 0, job="j", attempt=1,
            context={"evidence.log_tail": [f"step {n}", "connection lost" if n % 2 else "stopped"]},
        )
        for n in range(20)
    ]  # fmt: skip
    answers = asyncio.run(decided(sets, failures, whole=False))
    assert [answer.by == "domain/site#r0" for answer in answers] == [n % 2 == 1 for n in range(20)]
    assert sets.groups.alone
    assert sets.groups.evaluated == 20


def test_a_field_in_any_other_place_counts_with_its_whole_value() -> None:
    read = fields_read(
        grown(['cause == "memory" || job.name.startsWith("a")', 'job.owner == "ada"', "job.attempt < 3"]).trees.values()
    )
    assert read.values == {"cause": None, "job.name": None, "job.owner": frozenset({"ada"}), "job.attempt": None}
