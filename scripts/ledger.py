"""Which claims of the papers are carried by no test.

The rows are read from ``docs/explanation/papers.md``. The marks are read from the source of the tests, by
parsing and never by importing: the answer is the same on a machine without a single server, and a test
module that cannot be imported there still counts.

Exit codes: 0, the list is printed; 1, ``--rows`` was given and one of these rows is not carried; 2, a mark or
the question itself is wrong, so that no figure can be trusted.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
PAPERS = ROOT / "docs" / "explanation" / "papers.md"
TESTS = ROOT / "tests"

HEADING = re.compile(r"^## (?P<paper>P\d+) (?P<title>.+?)\s*$")
ROW = re.compile(r"^\| (?P<id>P\d+-\d+) \| (?P<claim>.+?) \| (?P<where>[^|]*?) \|\s*$")
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
        """The rows asked for: ``P4``, ``P4-02``, ``P4-01..P4-14``, or several of these with commas."""
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
            complaints.append(f"{page.name}:{number}: not a row of three cells: {line}")
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
    """Whether a module or class says ``pytestmark = pytest.mark.skip`` for all its tests."""
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


@dataclass(frozen=True, slots=True)
class Report:
    """What is carried and what is not, for the rows asked for."""

    ledger: Ledger
    asked: str | None
    rows: tuple[Row, ...]
    tests: dict[str, list[str]]
    """The tests that carry each row."""

    @property
    def missing(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.id not in self.tests)

    def summary(self) -> str:
        whose = f"rows of {self.asked}" if self.asked else "rows"
        carried = len(self.rows) - len(self.missing)
        return f"ledger: {carried} of {len(self.rows)} {whose} carried; {len(self.missing)} not carried"

    def lines(self) -> Iterator[str]:
        for paper, title in self.ledger.titles.items():
            rows = [row for row in self.missing if row.paper == paper]
            if rows:
                asked = sum(row.paper == paper for row in self.rows)
                yield f"{paper} {title}: {len(rows)} of {asked} rows carried by no test"
                yield from (f"  {row.id}  {row.claim} [{row.where}]" for row in rows)
                yield ""

    def document(self) -> dict[str, object]:
        return {
            "rows": [
                {
                    "id": row.id,
                    "paper": row.paper,
                    "claim": row.claim,
                    "where": row.where,
                    "tests": self.tests.get(row.id, []),
                }
                for row in self.rows
            ],
            "carried": len(self.rows) - len(self.missing),
            "not_carried": [row.id for row in self.missing],
        }


def make_report(page: Path, tests: Path, asked: str | None) -> Report:
    """Join rows and marks; every mistake found on the way is raised together."""
    ledger = read_ledger(page)
    rows = ledger.rows if asked is None else ledger.choose(asked)
    marks, complaints = read_marks(tests)
    known = {row.id for row in ledger.rows}
    complaints += [f"{mark.place}: {mark.row} is no row of {page.name}" for mark in marks if mark.row not in known]
    if complaints:
        raise LedgerError(complaints)
    carried: dict[str, list[str]] = {}
    for mark in marks:
        if mark.counts and mark.test not in carried.setdefault(mark.row, []):
            carried[mark.row].append(mark.test)
    return Report(ledger, asked, rows, carried)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ledger", description="List the ledger rows that no test carries.")
    parser.add_argument("--rows", metavar="ROWS", help="P4, P4-02, P4-01..P4-14, or several of these with commas")
    parser.add_argument("--json", action="store_true", help="every row with its tests as JSON; the summary on stderr")
    parser.add_argument("--papers", type=Path, default=PAPERS, help="the page with the rows")
    parser.add_argument("--tests", type=Path, default=TESTS, help="the folder with the tests")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    chosen = parse_arguments(sys.argv[1:] if argv is None else argv)
    try:
        report = make_report(chosen.papers, chosen.tests, chosen.rows)
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
