"""Which test keeps each finding of a trial from outside from coming back, and whether it passed in the newest run of the gate.

    just findings          each finding, its tests, and their newest results
    just findings --run    run those tests first (those on real servers need `just servers-up`)

Exit codes: 0, every test passed or was not run; 1, one failed, or a mark cannot be read.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.gate_results import read_tests, results_folder, tables  # noqa: E402 - the path comes first
from scripts.ledger import read_marks  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WORST_FIRST = ("failure", "error", "skipped", "passed")


def natural(number: str) -> list[str | int]:
    """F-A2 before F-A10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", number)]


def newest_results(folders: Sequence[Path]) -> dict[str, str]:
    """The newest result of every test, by its id without parameters; of several parameters the worst."""
    results: dict[str, str] = {}
    for folder in folders:
        of_run: dict[str, set[str]] = defaultdict(set)
        for junit in sorted(folder.glob("*.xml")):  # the repeat of a tier comes before the tier: it failed
            for test in read_tests(junit):
                of_run[test.id.partition("[")[0]].add(test.result)
        results |= {name: min(outcomes, key=WORST_FIRST.index) for name, outcomes in of_run.items()}
    return results


def result_of(test: str, results: Mapping[str, str]) -> str:
    """The result of a test, or the worst of all tests of a marked file or class."""
    outcomes = [result for name, result in results.items() if name == test or name.startswith(f"{test}::")]
    return min(outcomes, key=WORST_FIRST.index, default="not run")


def lines(tests: Mapping[str, Sequence[str]], results: Mapping[str, str]) -> list[str]:
    return [
        f"{number:<6} {result_of(test, results):<8} {test}"
        for number in sorted(tests, key=natural)
        for test in sorted(set(tests[number]))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="store_true", help="run the tests first")
    arguments = parser.parse_args()
    marks, complaints = read_marks(ROOT / "tests", "finding")
    tests: dict[str, list[str]] = defaultdict(list)
    for mark in marks:
        if mark.counts:
            tests[mark.row].append(mark.test)
    folders = [table.parent for table in tables(results_folder())]
    if arguments.run:
        folder = results_folder() / "findings"
        folder.mkdir(parents=True, exist_ok=True)
        names = sorted({test for group in tests.values() for test in group})
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", f"--junitxml={folder / 'findings.xml'}", *names], check=False
        )
        folders = [*folders, folder]
    results = newest_results(folders)
    print(*complaints, *lines(tests, results), sep="\n")
    passed = sum(all(result_of(test, results) == "passed" for test in group) for group in tests.values())
    print(f"findings: {len(tests)} have tests; of {passed} every test passed in the newest run")
    failed = any(result_of(test, results) in ("failure", "error") for group in tests.values() for test in group)
    return 1 if failed or complaints else 0


if __name__ == "__main__":
    sys.exit(main())
