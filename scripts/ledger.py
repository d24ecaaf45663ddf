"""Which claims of the papers a run of the gate has not proven.

The rows are read from ``docs/explanation/papers.md``, the marks from the source of the tests, by parsing and never by importing. What counts
are results: the JUnit files of one run, by default the newest of the gate on this machine. A row is proven if a test that carries it passed
and none failed; a test that was skipped or not run proves nothing. Long proofs, which the gate does not run, are kept with the date and commit of their last
success in ``tests/long_proofs.json``; ``--keep`` adds those of a JUnit file. ``--write`` writes the page: the evidence of each claim and figure from ``papers.toml``, and the tests of each row.

Exit codes: 0, the list is printed; 1, ``--rows`` was given and one of these rows is neither proven by the run nor by a kept long proof; 2, a mark
or the question itself is wrong, so that no figure can be trusted.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.gate_results import read_tests, results_folder, tables  # noqa: E402 - the path comes first
from scripts.papers import COLUMNS, FIGURES, figure_lines, read_evidence  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PAPERS = ROOT / "docs" / "explanation" / "papers.md"
TESTS = ROOT / "tests"
LONG_PROOFS = "long_proofs.json"
RUN = "FORESTAY_GATE_RUN"
"""Set by the gate: the folder with the results of its own tiers."""

HEADING = re.compile(r"^## (?P<paper>P\d+) (?P<title>.+?)\s*$")
ROW = re.compile(
    r"^\| (?P<id>P\d+-\d+) \| (?P<claim>.+?) \| (?P<where>[^|]*?) \|(?:(?: [^|]* \|){3})?(?: (?P<tests>[^|]*) \|)?\s*$"
)
ROW_LIKE = re.compile(r"^\|\s*P\d+-")
RANGE = re.compile(r"^(?P<first>P\d+-\d+)\.\.(?P<last>P\d+-\d+)$")

SWITCHED_OFF = frozenset({"skip", "xfail"})


class LedgerError(Exception):
    """The ledger, a mark or the question cannot be read; every complaint is one line."""

    def __init__(self, complaints: Sequence[str]) -> None:
        super().__init__("\n".join(complaints))
        self.complaints = tuple(complaints)


@dataclass(frozen=True, slots=True)
class Row:
    """One claim of a paper."""

    id: str
    claim: str
    where: str

    @property
    def paper(self) -> str:
        return self.id.partition("-")[0]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The rows in the order of the page, and the title of each paper."""

    titles: dict[str, str]
    rows: tuple[Row, ...]

    def choose(self, question: str) -> tuple[Row, ...]:
        """The requested rows: ``P4``, ``P4-02``, ``P4-01..P4-14``, or several of these with commas."""
        order = {row.id: place for place, row in enumerate(self.rows)}
        chosen: set[str] = set()
        complaints: list[str] = []
        for part in (piece.strip() for piece in question.split(",")):
            span = RANGE.match(part)
            if part in self.titles:
                chosen.update(row.id for row in self.rows if row.paper == part)
            elif part in order:
                chosen.add(part)
            elif span and span["first"] in order and span["last"] in order:
                first, last = order[span["first"]], order[span["last"]]
                if first > last:
                    complaints.append(f"--rows: {part} runs backwards")
                chosen.update(row.id for row in self.rows[first : last + 1])
            else:
                complaints.append(f"--rows: {part or 'an empty part'} names no row; say P4, P4-02 or P4-01..P4-14")
        if complaints:
            raise LedgerError(complaints)
        return tuple(row for row in self.rows if row.id in chosen)


@dataclass(frozen=True, slots=True)
class Mark:
    """One row named by one mark, such as ``pytest.mark.ledger``."""

    row: str
    place: str
    test: str
    counts: bool
    """False when the test is switched off (skip, xfail): it shows nothing."""


def read_ledger(page: Path) -> Ledger:
    """Read the rows; a line that looks like a row and is none is an error, or a claim would vanish unseen."""
    titles: dict[str, str] = {}
    rows: dict[str, Row] = {}
    complaints: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if heading := HEADING.match(line):
            titles[heading["paper"]] = heading["title"]
        elif match := ROW.match(line):
            row = Row(match["id"], match["claim"], match["where"])
            if row.id in rows:
                complaints.append(f"{page.name}:{number}: {row.id} is there twice")
            if row.paper not in titles:
                complaints.append(f"{page.name}:{number}: {row.id} stands under no heading of {row.paper}")
            rows[row.id] = row
        elif ROW_LIKE.match(line):
            complaints.append(f"{page.name}:{number}: not a row of three cells, or four with its tests: {line}")
    if not rows:
        complaints.append(f"{page.name}: no row found")
    if complaints:
        raise LedgerError(complaints)
    return Ledger(titles, tuple(rows.values()))


def mark_name(node: ast.expr) -> str | None:
    """``skip`` for ``pytest.mark.skip``, ``mark.skip`` and calls of them; None for anything else."""
    if isinstance(node, ast.Call):
        node = node.func
    if not isinstance(node, ast.Attribute):
        return None
    holder = node.value
    of_pytest = isinstance(holder, ast.Attribute) and holder.attr == "mark" and isinstance(holder.value, ast.Name)
    of_mark = isinstance(holder, ast.Name) and holder.id == "mark"
    return node.attr if of_pytest or of_mark else None


def is_switched_off(body: Sequence[ast.stmt]) -> bool:
    """Whether a module or class sets ``pytestmark = pytest.mark.skip`` for all its tests."""
    return any(
        mark_name(expression) in SWITCHED_OFF
        for statement in body
        if isinstance(statement, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in statement.targets)
        for expression in ast.walk(statement.value)
        if isinstance(expression, ast.expr)
    )


class MarkReader(ast.NodeVisitor):
    """Collects the marks of one name in one file, with the test each one sits on."""

    def __init__(self, file: str, mark: str) -> None:
        self.file, self.mark = file, mark
        self.marks: list[Mark] = []
        self.complaints: list[str] = []
        self._names: list[str] = []
        self._off = [False]

    def visit_Module(self, node: ast.Module) -> None:
        self._off.append(is_switched_off(node.body))
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_definition(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_definition(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_definition(node)

    def visit_Call(self, node: ast.Call) -> None:
        if mark_name(node) == self.mark:
            self._take(node)
        self.generic_visit(node)

    def _visit_definition(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        names = {mark_name(decorator) for decorator in node.decorator_list}
        # pytest ignores a mark on a fixture or a helper: such a row would only look carried.
        if self.mark in names and not isinstance(node, ast.ClassDef) and not node.name.startswith("test"):
            self.complaints.append(
                f"{self.file}:{node.lineno}: {node.name} is no test, its {self.mark} mark has no effect"
            )
        self._names.append(node.name)
        self._off.append(self._off[-1] or bool(names & SWITCHED_OFF) or is_switched_off(node.body))
        self.generic_visit(node)
        self._off.pop()
        self._names.pop()

    def _take(self, node: ast.Call) -> None:
        place = f"{self.file}:{node.lineno}"
        if not node.args or node.keywords:
            self.complaints.append(f"{place}: a {self.mark} mark names its rows, and nothing else")
        for argument in node.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                test = "::".join([self.file, *self._names])
                self.marks.append(Mark(argument.value, place, test, counts=not self._off[-1]))
            else:
                self.complaints.append(
                    f"{place}: a {self.mark} mark takes plain strings, this is {ast.unparse(argument)}"
                )


def read_marks(tests: Path, mark: str = "ledger") -> tuple[tuple[Mark, ...], list[str]]:
    """Every mark of this name under a folder, and what is wrong with them."""
    marks: list[Mark] = []
    complaints: list[str] = []
    for path in sorted(tests.rglob("*.py")):
        file = path.relative_to(tests.parent).as_posix()
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        except SyntaxError as error:
            complaints.append(f"{file}:{error.lineno}: cannot be parsed: {error.msg}")
            continue
        reader = MarkReader(file, mark)
        reader.visit(tree)
        marks += reader.marks
        complaints += reader.complaints
    return tuple(marks), complaints


def run_results(folder: Path) -> dict[str, list[str]]:
    """The results of each test of a run, by its id without parameters. A tier that was repeated counts by the repeat."""
    results: dict[str, dict[str, str]] = defaultdict(dict)
    for junit in sorted(folder.glob("*.xml"), key=lambda path: (path.name.endswith(".again.xml"), path.name)):
        for test in read_tests(junit):
            results[test.id.partition("[")[0]][f"{junit.name.partition('.')[0]} {test.id}"] = test.result
    return {name: list(of_test.values()) for name, of_test in results.items()}


def result_of(test: str, results: Mapping[str, Sequence[str]]) -> str:
    """What a marked test, class or file came to: failed if any of it did, else passed if any of it did."""
    outcomes = {
        outcome for name, found in results.items() if name == test or name.startswith(f"{test}::") for outcome in found
    }
    for outcome in ("failure", "error", "passed", "skipped"):
        if outcome in outcomes:
            return {"failure": "failed", "error": "failed"}.get(outcome, outcome)
    return "not run"


@dataclass(frozen=True, slots=True)
class LongProof:
    """The last success of a test that the gate does not run."""

    date: str
    commit: str


def read_long_proofs(tests: Path) -> dict[str, LongProof]:
    kept = tests / LONG_PROOFS
    plain = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    return {test: LongProof(**proof) for test, proof in plain.items()}


def keep_long_proofs(tests: Path, junit: Path, marks: Sequence[Mark], commit: str, date: str) -> list[str]:
    """Note which marked tests passed in a JUnit file; those that failed there are no longer proven. Names what was noted."""
    results: dict[str, list[str]] = defaultdict(list)
    for test in read_tests(junit):
        results[test.id.partition("[")[0]].append(test.result)
    proofs = read_long_proofs(tests)
    noted: list[str] = []
    for name in sorted({mark.test for mark in marks}):
        outcome = result_of(name, results)
        if outcome == "passed":
            proofs[name] = LongProof(date, commit)
            noted.append(name)
        elif outcome == "failed":
            proofs.pop(name, None)
    plain = {name: {"date": proof.date, "commit": proof.commit} for name, proof in sorted(proofs.items())}
    (tests / LONG_PROOFS).write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    return noted


@dataclass(frozen=True, slots=True)
class Report:
    """What one run proves and what not, for the requested rows."""

    ledger: Ledger
    asked: str | None
    rows: tuple[Row, ...]
    tests: dict[str, list[str]]
    """The tests that carry each row."""
    results: Mapping[str, Sequence[str]]
    proofs: Mapping[str, LongProof]
    run: str
    """Which run it was."""

    def outcomes(self, row: Row) -> dict[str, str]:
        """What became of each test that carries the row."""
        return {test: result_of(test, self.results) for test in self.tests.get(row.id, [])}

    def proven(self, row: Row) -> bool:
        """By this run."""
        outcomes = self.outcomes(row).values()
        return "passed" in outcomes and "failed" not in outcomes

    def long_proof(self, row: Row) -> LongProof | None:
        """The newest kept proof of a row, unless this run has refuted it."""
        outcomes = self.outcomes(row)
        kept = [self.proofs[test] for test in outcomes if test in self.proofs]
        return max(kept, key=lambda proof: proof.date) if kept and "failed" not in outcomes.values() else None

    @property
    def unproven(self) -> tuple[Row, ...]:
        """By this run, whatever is kept."""
        return tuple(row for row in self.rows if not self.proven(row))

    @property
    def missing(self) -> tuple[Row, ...]:
        """Proven by nothing."""
        return tuple(row for row in self.unproven if self.long_proof(row) is None)

    def why(self, row: Row) -> str:
        """Why a row is not proven by this run."""
        outcomes = self.outcomes(row)
        proof = self.long_proof(row)
        if not outcomes:
            return "no test carries it"
        if proof is not None:
            return f"a long proof, last passed on {proof.date} at {proof.commit}"
        for outcome in ("failed", "skipped", "not run"):
            tests = [test for test, came_to in outcomes.items() if came_to == outcome]
            if tests:
                return f"{outcome}: {', '.join(tests)}"
        raise AssertionError(row.id)

    def summary(self) -> str:
        whose = f"rows of {self.asked}" if self.asked else "rows"
        kept = len(self.unproven) - len(self.missing)
        proven = len(self.rows) - len(self.unproven)
        return (
            f"ledger: {proven} of {len(self.rows)} {whose} proven by {self.run}; "
            f"{kept} by a kept long proof; {len(self.missing)} not proven"
        )

    def lines(self) -> Iterator[str]:
        for paper, title in self.ledger.titles.items():
            rows = [row for row in self.unproven if row.paper == paper]
            if rows:
                asked = sum(row.paper == paper for row in self.rows)
                yield f"{paper} {title}: {len(rows)} of {asked} rows not proven by this run"
                for row in rows:
                    yield f"  {row.id}  {row.claim} [{row.where}]"
                    yield f"         {self.why(row)}"
                yield ""

    def document(self) -> dict[str, object]:
        return {
            "run": self.run,
            "rows": [
                {
                    "id": row.id,
                    "paper": row.paper,
                    "claim": row.claim,
                    "where": row.where,
                    "proven": self.proven(row),
                    "tests": self.outcomes(row),
                }
                for row in self.rows
            ],
            "proven": len(self.rows) - len(self.unproven),
            "not_proven_by_run": [row.id for row in self.unproven],
            "not_proven": [row.id for row in self.missing],
        }


def newest_run() -> Path | None:
    """The folder of the run that is under way, or of the newest one that came to its end."""
    if RUN in os.environ:
        return Path(os.environ[RUN])
    found = tables(results_folder())
    return found[-1].parent if found else None


def make_report(page: Path, tests: Path, asked: str | None, run: Path | None) -> Report:
    """Join rows, marks and results; every mistake found on the way is raised together."""
    ledger = read_ledger(page)
    rows = ledger.rows if asked is None else ledger.choose(asked)
    marks, complaints = read_marks(tests)
    known = {row.id for row in ledger.rows}
    complaints += [f"{mark.place}: {mark.row} is no row of {page.name}" for mark in marks if mark.row not in known]
    proofs = read_long_proofs(tests)
    marked = {mark.test for mark in marks}
    complaints += [f"{LONG_PROOFS}: {test} carries no row" for test in proofs if test not in marked]
    if complaints:
        raise LedgerError(complaints)
    carried: dict[str, list[str]] = {}
    for mark in marks:
        if mark.counts and mark.test not in carried.setdefault(mark.row, []):
            carried[mark.row].append(mark.test)
    results = run_results(run) if run is not None else {}
    return Report(ledger, asked, rows, carried, results, proofs, f"run {run.name}" if run is not None else "no run")


def written(page: str, report: Report, evidence: Path) -> str:
    """The page with the tests of every row in its last cell, and when a long proof passed last; before it, what its evidence is where that is known."""
    claims, figures = read_evidence(evidence) if evidence.exists() else ({}, ())
    if claims and (missing := [row.id for row in report.ledger.rows if row.id not in claims]):
        raise LedgerError([f"{evidence.name}: nothing about {row}" for row in missing])
    lines: list[str] = []
    for line in page.partition(FIGURES)[0].rstrip().splitlines():
        match = ROW.match(line)
        if match:
            tests = "<br>".join(
                f"`{test}`"
                + (f" (long proof: {proof.date}, {proof.commit})" if (proof := report.proofs.get(test)) else "")
                for test in report.tests.get(match["id"], [])
            )
            cells = f"{claims[match['id']].cells} | " if claims else ""
            line = f"| {match['id']} | {match['claim']} | {match['where']} | {cells}{tests or 'none'} |"
        elif line.startswith("| id | "):
            line = COLUMNS if claims else "| id | claim | where | tests |"
        elif line.startswith("| --- | --- | --- |") and lines[-1].startswith("| id | "):
            line = "| " + " | ".join(["---"] * (lines[-1].count("|") - 1)) + " |"
        lines.append(line)
    return "\n".join([*lines, *(["", *figure_lines(figures)] if figures else []), ""])


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ledger", description="List the ledger rows that a run has not proven.")
    parser.add_argument("--rows", metavar="ROWS", help="P4, P4-02, P4-01..P4-14, or several of these with commas")
    parser.add_argument("--json", action="store_true", help="every row with its tests as JSON; the summary on stderr")
    parser.add_argument("--papers", type=Path, default=PAPERS, help="the page with the rows")
    parser.add_argument("--tests", type=Path, default=TESTS, help="the folder with the tests")
    parser.add_argument("--run", type=Path, help="the folder with the JUnit files of a run; the newest run of the gate")
    parser.add_argument("--keep", type=Path, metavar="JUNIT", help="note the long proofs that passed in this file")
    parser.add_argument(
        "--write",
        action="store_true",
        help="write the evidence and the tests of each row, and of each figure, to the page",
    )
    return parser.parse_args(argv)


def keep(tests: Path, junit: Path) -> int:
    git = ["git", "describe", "--always", "--dirty", "--abbrev=8"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    marks, _ = read_marks(tests)
    for name in keep_long_proofs(tests, junit, marks, commit, datetime.now(UTC).date().isoformat()):
        print(f"kept: {name}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    chosen = parse_arguments(sys.argv[1:] if argv is None else argv)
    if chosen.keep is not None:
        return keep(chosen.tests, chosen.keep)
    try:
        report = make_report(chosen.papers, chosen.tests, chosen.rows, chosen.run or newest_run())
        if chosen.write:
            text = chosen.papers.read_text(encoding="utf-8")
            chosen.papers.write_text(written(text, report, chosen.papers.with_suffix(".toml")), encoding="utf-8")
    except LedgerError as error:
        for complaint in error.complaints:
            print(f"error: {complaint}", file=sys.stderr)
        print(f"ledger: {len(error.complaints)} errors; nothing counted", file=sys.stderr)
        return 2
    if chosen.json:
        print(json.dumps(report.document(), indent=2, ensure_ascii=False))
        print(report.summary(), file=sys.stderr)
    else:
        for line in report.lines():
            print(line)
        print(report.summary())
    return 1 if chosen.rows is not None and report.missing else 0


if __name__ == "__main__":
    sys.exit(main())
