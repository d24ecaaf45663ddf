"""The ledger command: what it counts, what it refuses, and what it prints last."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from scripts.ledger import PAPERS, ROOT, main, read_ledger

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
def run(page: Path, tests: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["--papers", str(page), "--tests", str(tests), *arguments])
        result = capsys.readouterr()
        return code, result.out, result.err

    return run


def write(tests: Path, source: str, name: str = "test_jobs.py") -> None:
    path = tests / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"import pytest\n{source}", encoding="utf-8")


def test_it_lists_what_no_test_carries_grouped_by_paper(run: Run, tests: Path) -> None:
    write(tests, '@pytest.mark.ledger("P4-02")\ndef test_one_wins(): ...\n')

    code, out, err = run()

    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "P3 Pilots: 1 of 1 rows carried by no test",
        "  P3-01  Pilots pull [IV]",
        "",
        "P4 Job documents: 2 of 3 rows carried by no test",
        "  P4-01  One document per job [3.1, 3.2]",
        "  P4-03  **+** A lost holder cannot overwrite [ours]",
        "",
        "ledger: 1 of 4 rows carried; 3 not carried",
    ]


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
def test_every_way_to_set_a_mark_counts(run: Run, tests: Path, source: str) -> None:
    write(tests, source, name="contracts/job_store.py")

    code, out, _ = run("--rows", "P4-01..P4-02")

    assert (code, out) == (0, "ledger: 2 of 2 rows of P4-01..P4-02 carried; 0 not carried\n")


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
def test_a_test_that_shows_nothing_carries_nothing(run: Run, tests: Path, source: str) -> None:
    write(tests, source)

    code, out, _ = run("--rows", "P4-01")

    assert code == 1
    assert out.splitlines()[-1] == "ledger: 0 of 1 rows of P4-01 carried; 1 not carried"


def test_one_living_test_is_enough(run: Run, tests: Path) -> None:
    write(
        tests,
        '@pytest.mark.skip\n@pytest.mark.ledger("P4-01")\ndef test_off(): ...\n'
        '@pytest.mark.ledger("P4-01")\ndef test_on(): ...\n',
    )

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
    assert json.loads(out)["not_carried"] == rows
    assert err == f"ledger: 0 of {len(rows)} rows of {asked} carried; {len(rows)} not carried\n"


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


def test_json_names_the_tests_of_every_row(run: Run, tests: Path) -> None:
    write(
        tests,
        'class TestClaims:\n    @pytest.mark.ledger("P4-02")\n    def test_one_wins(self): ...\n',
        name="contracts/test_store.py",
    )

    code, out, _ = run("--json", "--rows", "P4-02")

    assert code == 0
    assert json.loads(out) == {
        "rows": [
            {
                "id": "P4-02",
                "paper": "P4",
                "claim": "Exactly one claimer wins",
                "where": "3.1",
                "tests": ["tests/contracts/test_store.py::TestClaims::test_one_wins"],
            }
        ],
        "carried": 1,
        "not_carried": [],
    }


def test_the_real_page_is_whole() -> None:
    """No row of the five papers was dropped: the ids of each paper count up from 1 without a gap."""
    ledger = read_ledger(PAPERS)

    sizes = {"P0": 33, "P1": 37, "P2": 9, "P3": 22, "P4": 16}
    assert [row.id for row in ledger.rows] == [
        f"{paper}-{number:02}" for paper, size in sizes.items() for number in range(1, size + 1)
    ]


@pytest.mark.long
def test_the_command_runs_as_shown_and_every_real_mark_names_a_row() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/ledger.py", "--json"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["rows"]) == 117
    assert done.stderr.startswith("ledger: ")
