"""Conditions in CEL: types, nulls, errors that are values, and bounds."""

from __future__ import annotations

import pytest

from forestay.adapters.cel.conditions import CelConditions
from forestay.domain.rules.condition import MAX_BYTES, ConditionVerdict, Erred
from forestay.domain.rules.context import BY_NAME, FIELDS, NOTHING_KNOWN, FieldType, read_context, worst_context
from forestay.domain.rules.rule_tree import Conclusion, Rule, RuleState, RuleTree, add, walk

TEN = "[1,2,3,4,5,6,7,8,9,10]"
TOLD = {
    "cause": "memory",
    "job": {"attempt": 2, "labels": {"queue": "long"}},
    "evidence": {"exit_code": 137, "log_tail": ["starting", "Killed"]},
    "run.data": {"Seating": 200, "TicketsSold": 90, "deep": {"list": [1, 2.5, None]}},
    "tasks": {"align": "completed", "sort": "running"},
    "external": {"weather": {"wind": 12.5}},
}


@pytest.fixture(scope="module")
def conditions() -> CelConditions:
    return CelConditions()


@pytest.mark.ledger("P1-24")
@pytest.mark.parametrize(
    "text",
    [
        'cause == "memory" && job.attempt < 3',
        "evidence.exit_code == 137",
        "evidence.signal == null",
        'evidence.log_tail.exists(line, line.contains("Killed"))',
        "double(run.data.TicketsSold) < 0.75 * double(run.data.Seating)",
        "run.data.deep.list[1] == 2.5",
        'tasks["sort"] == "running" && tasks.all(name, tasks[name] != "failed")',
        'has(external.weather) && external.weather.wind > 10.0',
        'job.labels["queue"] == "long"',
        "attempts.size() == 0 && history.same_cause == 0",
    ],
)  # fmt: skip
def test_a_condition_may_ask_of_all_that_is_known(conditions: CelConditions, text: str) -> None:
    context, wrong = read_context(TOLD)
    assert wrong == ()
    assert conditions.compile(text) == ()
    assert conditions.over(context)(text) is True


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("cuase == 'x'", "1:1", "undeclared"),
        ("true &&\n  evidence.exitcode == 3", "2:11", "undeclared"),
        ("cause == 3", "1:7", "overload"),
        ("evidence.exit_code == 'x'", "1:20", "overload"),
        ("run.data.Seating", "1:1", "bool"),
        ("job.attempt", "1:1", "bool"),
        ("has(evidence.exit_code)", "1:1", "null"),
        ("cause ==", "1:9", "Syntax"),
    ],
)
def test_what_is_wrong_with_a_text_is_told_with_its_place(
    conditions: CelConditions, text: str, place: str, word: str
) -> None:
    problem = conditions.compile(text)[0]
    assert f"{problem.line}:{problem.column}" == place
    assert word in problem.message
    assert isinstance(conditions.over(NOTHING_KNOWN)(text), Erred)


@pytest.mark.parametrize(
    "text",
    [
        "x" * (MAX_BYTES + 1), "(" * 33 + "true" + ")" * 33, "", "\x00", "\ud800", f"cause.matches('{'a' * 300}')",
        "[" * 40 + "]" * 40 + " == []", " + ".join(["1"] * 60) + " == 60",
    ],
)  # fmt: skip
def test_texts_past_their_bounds_are_refused(conditions: CelConditions, text: str) -> None:
    assert conditions.compile(text)


@pytest.mark.parametrize(
    "text",
    [
        "run.data.nothing == 3",
        "tasks['nobody'] == 'running'",
        "1 / (job.attempt - job.attempt) == 1",
        "9223372036854775807 + job.attempt > 0",
        "evidence.peak_memory > 3",
        "run.data.Seating * 0.75 > 1.0",
        "run.data.deep > 3",
        "evidence.log_tail[17] == ''",
        "timestamp(cause) > timestamp('2020-01-01T00:00:00Z')",
        f"{TEN}.all(a, {TEN}.all(b, {TEN}.all(c, {TEN}.all(d, {TEN}.all(e, true)))))",
    ],
)  # fmt: skip
def test_an_error_is_a_value_and_no_general_rule_acts_on_it(conditions: CelConditions, text: str) -> None:
    context, _ = read_context(TOLD)
    evaluate = conditions.over(context)
    assert conditions.compile(text) == ()
    assert isinstance(evaluate(text), Erred)
    tree = RuleTree()
    for name, condition in (("general", 'cause == "memory"'), ("refined", text)):
        grown = add(tree, Rule(name, condition, Conclusion(name), RuleState.ACTIVE), walk(tree, evaluate, shadow=True))
        assert isinstance(grown, RuleTree)
        tree = grown
    done = walk(tree, evaluate)
    assert (done.verdict, done.conclusion, done.flagged) == (ConditionVerdict.ERROR, None, "refined")


def test_an_error_beside_what_decides_alone_is_none(conditions: CelConditions) -> None:
    evaluate = conditions.over(read_context(TOLD)[0])
    assert evaluate("job.attempt > 5 && run.data.nothing == 3") is False
    assert evaluate("run.data.nothing == 3 || job.attempt == 2") is True


def test_every_field_has_a_value_of_its_type_also_when_nothing_is_known(conditions: CelConditions) -> None:
    ask = {FieldType.INT: "== 0", FieldType.NUMBER: "== 0.0", FieldType.TEXT: "== ''", FieldType.TRUTH: "== false"}
    for context in (NOTHING_KNOWN, worst_context()):
        evaluate = conditions.over(context)
        for field in FIELDS:
            answer = evaluate(f"{field.name} {'== null' if field.optional else ask.get(field.kind, '.size() == 0').lstrip()}"
                              if field.kind in ask or field.optional else f"{field.name}.size() == 0")  # fmt: skip
            assert answer is (context is NOTHING_KNOWN), field.name
    assert all(field.words and BY_NAME[field.name] is field for field in FIELDS)


def test_a_context_is_read_within_its_bounds_and_every_mistake_is_told() -> None:
    context, wrong = read_context(
        {"evidence": {"log_tail": [f"line {n}" for n in range(1000)], "exit_code": "137"}, "job.age": True, "hots": {"name": "x"},
         "cause": None, "run.data": {"huge": 2**80, "deep": [[[[[[[[[[1]]]]]]]]]], "text": "x" * 9000}}
    )  # fmt: skip
    assert [name.partition(":")[0] for name in wrong] == ["evidence.exit_code", "job.age", "hots", "cause"]
    lines = context["evidence.log_tail"]
    assert isinstance(lines, list)
    assert (len(lines), lines[-1]) == (400, "line 999")
    data = context["run.data"]
    assert isinstance(data, dict)
    assert data["huge"] == float(2**80)
    assert len(data["text"]) == 4000


@pytest.mark.finding("F-D17")
@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("cause = memory", (1, 7), "use == to compare"),
        ('confidence >= 0.8 &&\n  cause = "a = b"', (2, 9), "use == to compare"),
        ("cause == memory", (1, 10), 'put text in quotes: "memory"'),
        ("job.attemt < 2", (1, 4), "did you mean job.attempt?"),
        ("nonsense.x > 3", (1, 9), "forestay rules fields lists the fields"),
    ],
)
def test_a_mistake_that_people_make_is_told_once_with_what_to_write(
    text: str, place: tuple[int, int], words: str
) -> None:
    (problem,) = CelConditions().compile(text)
    assert (problem.line, problem.column) == place
    assert words in problem.message


def test_an_equals_sign_in_a_text_is_no_mistake() -> None:
    assert CelConditions().compile('evidence.log_tail.exists(line, line.contains("a = b"))') == ()
