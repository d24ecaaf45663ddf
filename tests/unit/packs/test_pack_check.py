"""What is wrong with a pack is told with its line and column, all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.evidence.evidence import PreparedEvidence
from forestay.formats.rules.evidence_json import read_evidence
from forestay.formats.rules.pack_folder import read_packs
from forestay.formats.rules.pack_yaml import read_pack_text

GOOD = """pack: mine
version: 1
patterns:
  - name: one-thing
    cause: memory
    retry: changed
    confidence: 0.9
    weight: 60
    when:
      lines: ['it broke']
    words: "It broke."
    matches: [{log_tail: it broke}]
    passes: [{log_tail: it holds}]
"""


def test_a_good_one_has_no_problems() -> None:
    read = read_pack_text(GOOD)
    assert (read.name, read.version, len(read.patterns), read.problems) == ("mine", 1, 1, ())


def test_every_error_is_told_at_once_with_its_place() -> None:
    wrong = (
        GOOD.replace("cause: memory", "cause: memroy")
        .replace("retry: changed", "retry: later")
        .replace("weight: 60", "weight: 600")
        .replace(
            "      lines: ['it broke']",
            "      lines: ['(it broke', '(it) \\1ed', 'it broke']\n      linse: [a]\n      signal: [SIGNONE]\n      disk_left: 'some'",
        )
    )
    names = [str(problem) for problem in read_pack_text(wrong).problems]
    assert [text.split(": ")[0] for text in names] == ["5:5", "6:5", "8:5", "10:15", "10:28", "11:7", "12:16", "13:7"]
    assert "did you mean 'memory'" in names[0]
    assert "not a valid regular expression" in names[3]
    assert "no backreferences" in names[4]
    assert "did you mean 'lines'" in names[5]


@pytest.mark.parametrize(
    "missing",
    ["name: one-thing", "matches: [{log_tail: it broke}]", "passes: [{log_tail: it holds}]", 'words: "It broke."'],
)
def test_what_is_needed_is_asked_for(missing: str) -> None:
    text = (
        GOOD.replace(f"  - {missing}\n    cause", "  - cause")
        if missing.startswith("name")
        else GOOD.replace(f"    {missing}\n", "")
    )
    (problem,) = read_pack_text(text).problems
    assert "is missing" in problem.message


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (r"'(broken) \1'", "no backreferences"),
        ("'(?<=a)broken'", "no lookaround"),
        ("'broken(?! pipe)'", "no lookaround"),
        ("'('", "not a valid regular expression"),
        (f"'{'x' * 700}'", "characters"),
        ("'(a{1000}){1000}'", "not a valid regular expression"),
        ("'.*'", "every line"),
        ("7", "must be a text"),
        ("{find: 'it broke'}", "'not' is missing"),
        ("{find: 'it broke', not: '(?!x)'}", "no lookaround"),
        ("{find: 'it broke', nor: 'x', not: 'y'}", "there is no field 'nor'"),
    ],
)
def test_an_expression_that_cannot_be_used_is_refused(expression: str, why: str) -> None:
    (problem,) = read_pack_text(GOOD.replace("'it broke'", expression, 1)).problems
    assert why in str(problem)


@pytest.mark.parametrize(
    "expression", ["it broke", "(?:a+)+broke", ".*broke", r"(?i)IT .{0,80}broke", "^it", "(?:foo|it) (?:broke)?"]
)
def test_an_expression_may_repeat_as_it_likes(expression: str) -> None:
    assert read_pack_text(GOOD.replace("'it broke'", f"'{expression}'", 1)).problems == ()


def test_an_expression_may_leave_out_lines_that_another_matches() -> None:
    read = read_pack_text(GOOD.replace("'it broke'", "{find: '^it broke', not: '^it broke off'}", 1))
    assert read.problems == ()
    pattern = read.patterns[0].pattern
    classifier = Classifier([pattern])
    for log, places in {
        "it broke": (0,),
        "it broke off": (),
        "it broke off\nit broke": (1,),
        "12:00:01 it broke": (0,),
        "12:00:01 it broke off": (),
    }.items():
        evidence = read_evidence({"log_tail": log})
        by_itself = pattern.match(PreparedEvidence(evidence))
        among_others = classifier.matches(PreparedEvidence(evidence))
        assert (by_itself.places if by_itself else ()) == places, log
        assert [match.places for match in among_others] == ([places] if places else []), log


def test_what_is_no_pack_is_said() -> None:
    assert read_pack_text("[1, 2]").problems[0].message.startswith("a pack is a mapping")
    assert "Invalid YAML" in read_pack_text("a: [").problems[0].message


def test_a_name_stands_once_in_all_folders(tmp_path: Path) -> None:
    for pack in ("a", "b"):
        (tmp_path / pack).mkdir()
        (tmp_path / pack / "x.yaml").write_text(GOOD)
    (tmp_path / "b" / "broken.yaml").write_bytes(b"\xff\xfe")
    problems = [f"{file}:{problem}" for file, problem in read_packs([tmp_path], with_shipped=False).problems]
    assert any(problem.startswith("b/x.yaml:4:") and "a/x.yaml" in problem for problem in problems)
    assert any(problem.startswith("b/broken.yaml:") for problem in problems)
