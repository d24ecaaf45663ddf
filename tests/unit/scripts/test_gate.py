"""The gate's own parts: which tests a tier collects, what is kept of a run, what is told of findings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts.ci_times import lines as times_lines
from scripts.findings import lines as finding_lines
from scripts.findings import newest_results, result_of
from scripts.gate import PHASES, ROOT
from scripts.gate_results import Table, TierResult, file_times, load_table, read_tests, save_table

JUSTFILE = (ROOT / "justfile").read_text()
JUNIT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest">
<testcase classname="tests.a" name="test_one[x]" time="1.50"><properties>
 <property name="cpu" value="0.25"/><property name="id" value="tests/a.py::test_one[x]"/></properties></testcase>
<testcase classname="tests.a" name="test_one[y]" time="0.50"><properties>
 <property name="cpu" value="0.10"/><property name="id" value="tests/a.py::test_one[y]"/></properties><failure>no</failure></testcase>
<testcase classname="tests.b" name="test_two" time="2.00"><properties>
 <property name="cpu" value="1.00"/><property name="id" value="tests/b.py::test_two"/></properties><skipped>no</skipped></testcase>
</testsuite></testsuites>
"""


def folders_of(variable: str) -> set[str]:
    """The folders that a tier of the justfile names."""
    match = re.search(rf'^{variable} := "([^"]*)"$', JUSTFILE, re.MULTILINE)
    assert match is not None
    return set(match[1].split())


def tier_folder(path: Path) -> str:
    parts = path.parent.relative_to(ROOT).parts
    depth = 4 if parts[1:3] == ("unit", "apps") else 3 if parts[1] in ("unit", "system") else 2
    return "/".join(parts[:depth])


def folders_with(pattern: str) -> set[str]:
    tests = [path for path in (ROOT / "tests").glob("*/**/*.py") if path.name.startswith(("test_", "conftest"))]
    return {tier_folder(path) for path in tests if path != Path(__file__) and re.search(pattern, path.read_text())}


@pytest.mark.finding("F-G1")
def test_every_folder_with_live_tests_is_named_by_its_tier() -> None:
    """A tier names its folders to be collected fast; one that is forgotten would run nowhere."""
    live = folders_with(r"mark\.live|tests\.unit\.apps\.server\.fixtures|\bstore_kind\b") - folders_with(r"mark\.pages")
    only_slow = {
        *(
            "tests/system/chaos",
            "tests/system/deploy",
            "tests/system/faults",
            "tests/system/linearizability",
            "tests/system/matrix",
            "tests/system/metadata",
        ),
        *("tests/system/upgrade", "tests/unit/scripts"),  # the latter has marks in texts that it reads
    }
    beside, pairs = folders_of("live_beside_folders"), folders_of("live_pairs_folders")
    assert live - only_slow <= beside | pairs
    paired = folders_with(r"(?s)(mark\.live|store_room).*mark\.pair\b|mark\.pair\b.*mark\.live")
    assert paired - only_slow <= pairs


def test_every_measuring_test_is_named_by_its_tier() -> None:
    """No other tier runs one: what runs beside it would count."""
    named = folders_of("measured_tests")
    measuring = {path for path in ROOT.glob("tests/**/test_*.py") if re.search(r"mark\.measured\b", path.read_text())}
    unnamed = {str(path.relative_to(ROOT)) for path in measuring - {Path(__file__)}}
    assert not {path for path in unnamed if not any(path == name or path.startswith(f"{name}/") for name in named)}


def test_every_tier_has_one_name() -> None:
    names = [tier.name for phase in PHASES for lane in phase for tier in lane]
    assert len(names) == len(set(names))


def test_the_recipes_of_the_tiers_exist() -> None:
    recipes = set(re.findall(r"^([a-z][a-z0-9-]*)(?: [^\n]*)?:(?!=)", JUSTFILE, re.MULTILINE))
    called = {
        tier.command.split()[1]
        for phase in PHASES
        for lane in phase
        for tier in lane
        if tier.command.startswith("just ")
    }
    assert called <= recipes


def test_times_are_added_up_by_file_and_survive_being_kept(tmp_path: Path) -> None:
    (tmp_path / "unit.xml").write_text(JUNIT)
    files = file_times("unit", read_tests(tmp_path / "unit.xml"))
    assert {name: (times.seconds, times.cpu, times.tests) for name, times in files.items()} == {
        "unit: tests/a.py": (2.0, 0.35, 2),
        "unit: tests/b.py": (2.0, 1.0, 1),
    }
    table = Table("abc", "2026-11-16", 100.0, 0.5, [TierResult("unit", 60.0, 90.0, "passed")], files)
    save_table(tmp_path / "table.json", table)
    assert load_table(tmp_path / "table.json") == table
    kept = Table("abb", "2026-11-15", 90.0, 0.5, [TierResult("unit", 50.0, 90.0, "passed")], {})
    shown = "\n".join(times_lines(table, kept))
    assert re.search(r"^unit +60 +90 +\+10  passed$", shown, re.MULTILINE)
    assert re.search(r"^unit: tests/a.py +2.0 +0.[34] +2 +new$", shown, re.MULTILINE)


def test_a_finding_is_as_good_as_the_worst_of_its_tests_parameters(tmp_path: Path) -> None:
    (tmp_path / "unit.xml").write_text(JUNIT)
    results = newest_results([tmp_path])
    assert results == {"tests/a.py::test_one": "failure", "tests/b.py::test_two": "skipped"}
    assert result_of("tests/a.py", results) == "failure", "of a file that is marked as a whole"
    shown = finding_lines(
        {"F-A10": ["tests/b.py::test_two"], "F-A2": ["tests/a.py::test_one", "tests/c.py::new"]}, results
    )
    assert [line.split() for line in shown] == [
        ["F-A2", "failure", "tests/a.py::test_one"],
        ["F-A2", "not", "run", "tests/c.py::new"],
        ["F-A10", "skipped", "tests/b.py::test_two"],
    ]
