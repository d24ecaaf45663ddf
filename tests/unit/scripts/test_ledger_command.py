"""The ledger command: what it counts, what it refuses, and what it prints last."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

import pytest
from scripts.ledger import LONG_PROOFS, PAPERS, ROOT, RUN, TESTS, main, read_ledger, read_marks
from scripts.papers import figure_lines, read_evidence

if TYPE_CHECKING:
    from pathlib import Path

PAGE = """\
# The papers

| paper | title |
| --- | --- |
| P3 | a paper that is not a row |

## P3 Pilots

| id | claim | where |
| --- | --- | --- |
| P3-01 | Pilots pull | IV |

## P4 Job documents

| id | claim | where |
| --- | --- | --- |
| P4-01 | One document per job | 3.1, 3.2 |
| P4-02 | Exactly one claimer wins | 3.1 |
| P4-03 | **+** A lost holder cannot overwrite | ours |
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    page = tmp_path / "papers.md"
    page.write_text(PAGE, encoding="utf-8")
    return page


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    folder = tmp_path / "tests"
    folder.mkdir()
    return folder


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "20261118T120000"
    folder.mkdir()
    return folder


@pytest.fixture
def run(page: Path, tests: Path, results: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["--papers", str(page), "--tests", str(tests), "--run", str(results), *arguments])
        result = capsys.readouterr()
        return code, result.out, result.err

    return run


def write(tests: Path, source: str, name: str = "test_jobs.py") -> None:
    path = tests / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"import pytest\n{source}", encoding="utf-8")


def junit(folder: Path, outcomes: dict[str, str], tier: str = "unit") -> Path:
    """What pytest writes of a tier, with the ids that tests/conftest.py adds."""
    cases = "".join(
        f"<testcase><properties><property name='id' value={quoteattr(name)}/></properties>"
        + ("" if outcome == "passed" else f"<{outcome}/>")
        + "</testcase>"
        for name, outcome in outcomes.items()
    )
    path = folder / f"{tier}.xml"
    path.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>", encoding="utf-8")
    return path


def all_tests(tests: Path) -> Iterator[str]:
    for path in tests.rglob("*.py"):
        file = path.relative_to(tests.parent).as_posix()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                yield from (
                    f"{file}::{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)
                )
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{file}::{node.name}"
        yield f"{file}::TestMachine::runTest"


def all_pass(tests: Path, results: Path) -> None:
    junit(results, dict.fromkeys(all_tests(tests), "passed"))


def test_it_lists_what_the_run_has_not_proven_grouped_by_paper(run: Run, tests: Path, results: Path) -> None:
    write(
        tests,
        '@pytest.mark.ledger("P4-02")\ndef test_one_wins(): ...\n'
        '@pytest.mark.ledger("P4-03")\ndef test_on_real_servers(): ...\n'
        '@pytest.mark.ledger("P3-01")\ndef test_pull(): ...\n',
    )
    file = "tests/test_jobs.py"
    junit(results, {f"{file}::test_one_wins": "passed", f"{file}::test_on_real_servers[sqlite]": "skipped"})

    code, out, err = run()

    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "P3 Pilots: 1 of 1 rows not proven by this run",
        "  P3-01  Pilots pull [IV]",
        f"         not run: {file}::test_pull",
        "",
        "P4 Job documents: 2 of 3 rows not proven by this run",
        "  P4-01  One document per job [3.1, 3.2]",
        "         no test carries it",
        "  P4-03  **+** A lost holder cannot overwrite [ours]",
        f"         skipped: {file}::test_on_real_servers",
        "",
        "ledger: 1 of 4 rows proven by run 20261118T120000; 0 by a kept long proof; 3 not proven",
    ]


@pytest.mark.parametrize(
    ("outcomes", "proven"),
    [
        ({}, False),
        ({"[a]": "passed"}, True),
        ({"[a]": "skipped"}, False),
        ({"[a]": "passed", "[b]": "skipped"}, True),
        ({"[a]": "passed", "[b]": "failure"}, False),
        ({"[a]": "passed", "[b]": "error"}, False),
    ],
)
def test_a_row_is_proven_by_a_test_that_passed_and_by_none_that_failed(
    run: Run, tests: Path, results: Path, outcomes: dict[str, str], proven: bool
) -> None:
    write(tests, '@pytest.mark.ledger("P4-01")\ndef test_it(x): ...\n')
    junit(results, {f"tests/test_jobs.py::test_it{name}": outcome for name, outcome in outcomes.items()})

    assert run("--rows", "P4-01")[0] == (0 if proven else 1)


def test_a_test_that_passed_when_it_was_repeated_counts(run: Run, tests: Path, results: Path) -> None:
    write(tests, '@pytest.mark.ledger("P4-01")\ndef test_it(): ...\n')
    junit(results, {"tests/test_jobs.py::test_it": "failure"})
    assert run("--rows", "P4-01")[0] == 1
    junit(results, {"tests/test_jobs.py::test_it": "passed"}, tier="unit.again")
    assert run("--rows", "P4-01")[0] == 0


def test_a_failure_in_another_tier_counts_too(run: Run, tests: Path, results: Path) -> None:
    write(tests, '@pytest.mark.ledger("P4-01")\ndef test_it(): ...\n')
    junit(results, {"tests/test_jobs.py::test_it": "passed"})
    junit(results, {"tests/test_jobs.py::test_it": "failure"}, tier="live")
    assert run("--rows", "P4-01")[0] == 1


def test_long_proofs_are_kept_with_date_and_commit_until_they_fail(
    run: Run, tests: Path, results: Path, tmp_path: Path
) -> None:
    write(tests, '@pytest.mark.slow\n@pytest.mark.ledger("P4-01")\ndef test_for_hours(): ...\n')
    name = "tests/test_jobs.py::test_for_hours"
    campaign = junit(tmp_path, {name: "passed", "tests/test_jobs.py::test_other": "passed"}, tier="campaign")
    assert run("--keep", str(campaign))[:2] == (0, f"kept: {name}\n")
    kept = json.loads((tests / LONG_PROOFS).read_text())
    assert kept.keys() == {name}

    code, out, _ = run("--rows", "P4-01")
    assert code == 0
    assert f"a long proof, last passed on {kept[name]['date']} at {kept[name]['commit']}" in out
    assert out.endswith("0 of 1 rows of P4-01 proven by run 20261118T120000; 1 by a kept long proof; 0 not proven\n")

    junit(results, {name: "failure"})
    assert run("--rows", "P4-01")[0] == 1, "this run has refuted it"
    (results / "unit.xml").unlink()
    run("--keep", str(junit(tmp_path, {name: "failure"}, tier="campaign")))
    assert json.loads((tests / LONG_PROOFS).read_text()) == {}


def test_a_kept_proof_of_a_test_that_is_gone_is_an_error(run: Run, tests: Path) -> None:
    (tests / LONG_PROOFS).write_text('{"tests/test_gone.py::test_it": {"date": "2026-11-18", "commit": "abc"}}')

    code, _, err = run()

    assert code == 2
    assert "test_gone.py::test_it carries no row" in err


def test_the_run_under_way_is_asked_first(
    page: Path, tests: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tests, '@pytest.mark.ledger("P4-01")\ndef test_it(): ...\n')
    all_pass(tests, results)
    monkeypatch.setenv(RUN, str(results))
    assert main(["--papers", str(page), "--tests", str(tests), "--rows", "P4-01"]) == 0


@pytest.mark.parametrize(
    "source",
    [
        '@pytest.mark.ledger("P4-01", "P4-02")\ndef test_both(): ...\n',
        '@pytest.mark.ledger("P4-01")\n@pytest.mark.ledger("P4-02")\nasync def test_stacked(): ...\n',
        'pytestmark = [pytest.mark.live, pytest.mark.ledger("P4-01", "P4-02")]\ndef test_module(): ...\n',
        '@pytest.mark.ledger("P4-01", "P4-02")\nclass TestStore:\n    def test_it(self): ...\n',
        'class TestStore:\n    pytestmark = pytest.mark.ledger("P4-01", "P4-02")\n    def test_a(s): ...\n',
        'TestMachine = pytest.mark.ledger("P4-01", "P4-02")(object)\n',
        'from pytest import mark\n@mark.ledger("P4-01", "P4-02")\ndef test_short(): ...\n',
        'import no_such_server\n@pytest.mark.ledger("P4-01", "P4-02")\ndef test_never_imported(): ...\n',
        (
            '@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.ledger("P4-01")),'
            ' pytest.param(2, marks=[pytest.mark.ledger("P4-02")])])\ndef test_param(x): ...\n'
        ),
        '@pytest.mark.skipif(True, reason="x")\n@pytest.mark.ledger("P4-01", "P4-02")\ndef test_if(): ...\n',
    ],
)
def test_every_way_to_set_a_mark_counts(run: Run, tests: Path, results: Path, source: str) -> None:
    write(tests, source, name="contracts/job_store.py")
    all_pass(tests, results)

    code, out, _ = run("--rows", "P4-01..P4-02")

    assert code == 0
    assert out.startswith("ledger: 2 of 2 rows of P4-01..P4-02 proven")


@pytest.mark.parametrize(
    "source",
    [
        '# @pytest.mark.ledger("P4-01")\ndef test_comment(): ...\n',
        'def test_words():\n    """pytest.mark.ledger("P4-01")"""\n',
        '@pytest.mark.skip\n@pytest.mark.ledger("P4-01")\ndef test_off(): ...\n',
        '@pytest.mark.xfail(reason="not yet")\n@pytest.mark.ledger("P4-01")\ndef test_off(): ...\n',
        '@pytest.mark.skip\nclass TestOff:\n    @pytest.mark.ledger("P4-01")\n    def test_it(self): ...\n',
        'pytestmark = [pytest.mark.skip(reason="x")]\n@pytest.mark.ledger("P4-01")\ndef test_off(): ...\n',
    ],
)
def test_a_test_that_shows_nothing_carries_nothing(run: Run, tests: Path, results: Path, source: str) -> None:
    write(tests, source)
    all_pass(tests, results)

    code, out, _ = run("--rows", "P4-01")

    assert code == 1
    assert out.splitlines()[-1].endswith("; 1 not proven")


def test_one_living_test_is_enough(run: Run, tests: Path, results: Path) -> None:
    write(
        tests,
        '@pytest.mark.skip\n@pytest.mark.ledger("P4-01")\ndef test_off(): ...\n'
        '@pytest.mark.ledger("P4-01")\ndef test_on(): ...\n',
    )
    all_pass(tests, results)

    assert run("--rows", "P4-01")[0] == 0


@pytest.mark.parametrize(
    ("asked", "rows"),
    [
        ("P4", ["P4-01", "P4-02", "P4-03"]),
        ("P4-02", ["P4-02"]),
        ("P4-02..P4-03", ["P4-02", "P4-03"]),
        ("P3-01..P4-01", ["P3-01", "P4-01"]),
        ("P4-03, P3", ["P3-01", "P4-03"]),
    ],
)
def test_rows_are_asked_for_by_paper_by_id_and_by_range(run: Run, asked: str, rows: list[str]) -> None:
    code, out, err = run("--json", "--rows", asked)

    assert code == 1
    assert json.loads(out)["not_proven"] == rows
    assert err.startswith(f"ledger: 0 of {len(rows)} rows of {asked} proven")


@pytest.mark.parametrize("asked", ["", "P9", "P4-99", "P4-01..P4-99", "P4-03..P4-01", "P4-01,", "4"])
def test_a_question_that_names_no_row_is_an_error(run: Run, asked: str) -> None:
    code, out, err = run("--rows", asked)

    assert (code, out) == (2, "")
    assert "--rows" in err


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (
            '@pytest.mark.ledger("P4-77")\ndef test_typo(): ...\n',
            "tests/test_jobs.py:2: P4-77 is no row of papers.md",
        ),
        (
            '@pytest.mark.ledger("P4-1")\ndef test_typo(): ...\n',
            "tests/test_jobs.py:2: P4-1 is no row of papers.md",
        ),
        ("@pytest.mark.ledger(ROWS[0])\ndef test_clever(): ...\n", "takes plain strings, this is ROWS[0]"),
        ("@pytest.mark.ledger()\ndef test_empty(): ...\n", "a ledger mark names its rows"),
        (
            '@pytest.mark.ledger("P4-01")\ndef store(): ...\n',
            "store is no test, its ledger mark has no effect",
        ),
        ("def test_broken(:\n", "tests/test_jobs.py:2: cannot be parsed"),
    ],
)
def test_a_wrong_mark_is_an_error_whatever_was_asked(run: Run, tests: Path, source: str, complaint: str) -> None:
    write(tests, '@pytest.mark.ledger("P3-01")\ndef test_pull(): ...\n', name="test_fine.py")
    write(tests, source)

    code, out, err = run("--rows", "P3-01")

    assert (code, out) == (2, "")
    assert complaint in err


def test_all_mistakes_are_named_at_once(run: Run, tests: Path) -> None:
    write(tests, '@pytest.mark.ledger("P7-01", "P8-01")\ndef test_two(): ...\n')

    assert run()[2].splitlines() == [
        "error: tests/test_jobs.py:2: P7-01 is no row of papers.md",
        "error: tests/test_jobs.py:2: P8-01 is no row of papers.md",
        "ledger: 2 errors; nothing counted",
    ]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("| P4-02 | The same id again | 3.1 |", "P4-02 is there twice"),
        ("| P9-01 | A paper without a heading | 1 |", "stands under no heading"),
        ("| P4-04 | A row that lost its last cell |", "not a row of three cells"),
    ],
)
def test_a_damaged_page_is_an_error(run: Run, page: Path, line: str, complaint: str) -> None:
    page.write_text(f"{PAGE}{line}\n", encoding="utf-8")

    code, _, err = run()

    assert code == 2
    assert complaint in err


def test_json_names_the_tests_of_every_row(run: Run, tests: Path, results: Path) -> None:
    write(
        tests,
        'class TestClaims:\n    @pytest.mark.ledger("P4-02")\n    def test_one_wins(self): ...\n',
        name="contracts/test_store.py",
    )
    all_pass(tests, results)

    code, out, _ = run("--json", "--rows", "P4-02")

    assert code == 0
    assert json.loads(out) == {
        "run": "run 20261118T120000",
        "rows": [
            {
                "id": "P4-02",
                "paper": "P4",
                "claim": "Exactly one claimer wins",
                "where": "3.1",
                "proven": True,
                "tests": {"tests/contracts/test_store.py::TestClaims::test_one_wins": "passed"},
            }
        ],
        "proven": 1,
        "not_proven_by_run": [],
        "not_proven": [],
    }


def test_the_page_names_the_tests_of_each_row(run: Run, page: Path, tests: Path) -> None:
    write(
        tests,
        '@pytest.mark.ledger("P4-01", "P4-02")\ndef test_it(): ...\n@pytest.mark.ledger("P4-02")\ndef test_b(): ...\n',
    )
    name = "tests/test_jobs.py::test_it"
    (tests / LONG_PROOFS).write_text(json.dumps({name: {"date": "2026-11-18", "commit": "abc"}}))
    before = read_ledger(page)
    run("--write")
    first = page.read_text()
    assert f"| P4-01 | One document per job | 3.1, 3.2 | `{name}` (long proof: 2026-11-18, abc) |" in first
    assert "<br>`tests/test_jobs.py::test_b` |" in first
    assert "| P3-01 | Pilots pull | IV | none |" in first
    assert "| id | claim | where | tests |\n| --- | --- | --- | --- |" in first
    assert read_ledger(page) == before
    run("--write")
    assert page.read_text() == first, "writing it again changes nothing"


def test_the_tests_that_the_real_page_names_are_there() -> None:
    """A moved test is moved here too: `just ledger --write`. New ones may be missing for a while."""
    marks, _ = read_marks(TESTS)
    known = {(mark.row, mark.test) for mark in marks}
    named = [
        (row[1], test)
        for line in PAPERS.read_text(encoding="utf-8").splitlines()
        if (row := re.match(r"\| (P\d-\d+) \|", line))
        for test in re.findall(r"`(tests/[^`]+)`", line)
    ]
    assert len(named) > 117
    assert set(named) <= known


def test_the_real_page_is_whole() -> None:
    """No row of the five papers was dropped: the ids of each paper count up from 1 without a gap."""
    ledger = read_ledger(PAPERS)

    sizes = {"P0": 33, "P1": 37, "P2": 9, "P3": 22, "P4": 16}
    assert [row.id for row in ledger.rows] == [
        f"{paper}-{number:02}" for paper, size in sizes.items() for number in range(1, size + 1)
    ]


def test_the_real_page_is_what_its_evidence_says() -> None:
    claims, figures = read_evidence(PAPERS.with_suffix(".toml"))
    ledger = read_ledger(PAPERS)
    assert set(claims) == {row.id for row in ledger.rows}, "every claim has evidence"
    page = PAPERS.read_text(encoding="utf-8")
    for row in ledger.rows:
        assert f"| {row.id} | {row.claim} | {row.where} | {claims[row.id].cells} | " in page, (
            "run `just ledger --write`"
        )
    assert page.endswith("\n".join([*figure_lines(figures), ""])), "run `just ledger --write`"


def test_every_figure_and_table_of_the_papers_has_a_row() -> None:
    _, figures = read_evidence(PAPERS.with_suffix(".toml"))
    known = {row.id for row in read_ledger(PAPERS).rows}
    sizes = {"P0": 8, "P1": 5, "P2": 6, "P3": 12, "P4": 2}
    wanted = {f"{paper} figure {number}" for paper, size in sizes.items() for number in range(1, size + 1)}
    assert {figure.id for figure in figures} == wanted | {"P3 table 1"}
    assert all(figure.rows and set(figure.rows) <= known for figure in figures)


def test_what_the_evidence_names_is_there() -> None:
    claims, figures = read_evidence(PAPERS.with_suffix(".toml"))
    tasks = set(re.findall(r"^([a-z][\w-]*)(?: [^:\n]*)?:", (ROOT / "justfile").read_text(), re.MULTILINE))
    commands = (ROOT / "docs" / "reference" / "cli.md").read_text()
    for evidence in [*claims.values(), *(figure.evidence for figure in figures)]:
        place = (PAPERS.parent / evidence.page.partition("#")[0]).resolve()
        assert place.exists(), evidence.page
        assert not evidence.picture or (PAPERS.parent / evidence.picture).resolve().exists(), evidence.picture
        anchor = evidence.page.partition("#")[2]
        headings = {
            re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
            for line in place.read_text(encoding="utf-8").splitlines()
            if line.startswith("#")
        }
        assert not anchor or anchor in headings, evidence.page
        first, second, *rest = evidence.command.split()
        assert second in tasks if first == "just" else f"## {second}" in commands, evidence.command
        assert all((ROOT / word).exists() for word in rest if word.startswith("tests/")), evidence.command


@pytest.mark.parametrize("row", ["P0-10", "P0-29", "P0-31", "P0-33", "P4-13", "P4-16"])
def test_what_is_weaker_than_its_claim_says_so(row: str) -> None:
    (line,) = (line for line in PAPERS.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {row} |"))
    assert "**weaker** than the claim: " in line


def test_the_page_is_written_with_its_evidence(run: Run, page: Path, tests: Path) -> None:
    write(tests, '@pytest.mark.ledger("P4-01")\ndef test_it(): ...\n')
    evidence = page.with_suffix(".toml")
    evidence.write_text('[[claims]]\nrows = ["P3-01", "P4-01"]\npage = "a.md"\ncommand = "just model"\n')
    code, _, errors = run("--write")
    assert (code, "papers.toml: nothing about P4-02" in errors) == (2, True)
    evidence.write_text(
        '[[claims]]\nrows = ["P3-01", "P4-01", "P4-02", "P4-03"]\npage = "a.md"\ncommand = "just model"\nweaker = "less"\n'
        '[[figures]]\nid = "P4 figure 1"\nshows = "a lock"\npage = "b.md"\ncommand = "just sim"\npicture = "b.svg"\nrows = ["P4-01"]\n'
    )
    before = read_ledger(page)
    run("--write")
    first = page.read_text()
    assert (
        "| P4-01 | One document per job | 3.1, 3.2 | **weaker** than the claim: less ([more](a.md)) | – | `just model` | `tests/test_jobs.py::test_it` |"
        in first
    )
    assert "| P4 figure 1 | a lock | [holds](b.md) | [picture](b.svg) | `just sim` | P4-01 |" in first
    assert read_ledger(page) == before
    run("--write")
    assert page.read_text() == first, "writing it again changes nothing"


@pytest.mark.long
def test_the_command_runs_as_shown_and_every_real_mark_names_a_row() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/ledger.py", "--json"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["rows"]) == 117
    assert done.stderr.startswith("ledger: ")
