"""What is wrong with a pack is told with its line and column, all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from forestay.domain.exceptions.evidence.regex_shape import shape_of
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
            "      lines: ['(it broke', '(x+ )+ed', 'it broke']\n      linse: [a]\n      signal: [SIGNONE]\n      disk_left: 'some'",
        )
    )
    names = [str(problem) for problem in read_pack_text(wrong).problems]
    assert [text.split(": ")[0] for text in names] == ["5:5", "6:5", "8:5", "10:15", "10:28", "11:7", "12:16", "13:7"]
    assert "did you mean 'memory'" in names[0]
    assert "not a valid regular expression" in names[3]
    assert "repeats" in names[4]
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
        ("(a+)+b", "group"),
        ("(?:ab|c)*done", "group"),
        (r"(?:\w{1,40}\s){1,40}done", "nested"),
        (".*broken", "begins"),
        (r"error \s*.*x", "adjacent"),
        (r"(broken) \1", "back"),
        ("(?<=a)broken", "behind"),
        ("[a-z]+", "begins"),
        (r"\d\d", "literal text"),
        ("(", "not a valid regular expression"),
        ("x" * 700, "characters"),
    ],
)
def test_an_expression_that_can_be_slow_is_refused(expression: str, why: str) -> None:
    assert why in shape_of(expression).problem


@pytest.mark.parametrize(
    "expression", ["it broke", r"(?i)out of memory.*task [0-9]+", r"^(?:E|F): .{0,80}failed", "(?:foo|bar) (?:baz)?"]
)
def test_an_expression_that_cannot_is_not(expression: str) -> None:
    assert shape_of(expression).problem == ""


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
