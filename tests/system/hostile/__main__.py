"""Run the hostile campaign: every test that its table names, on every store that is there; writes docs/reference/hostile.md.

`python -m tests.system.hostile [--only WORD] [--sqlite] [--page]`

What is not run now keeps the verdict of its last run, with its day.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from bench.harness import keep
from bench.report.results import result
from tests.system.hostile.table import TRIES, Try
from tests.system.verdicts import ROOT, run_tests

PAGE = ROOT / "docs" / "reference" / "hostile.md"
HEAD = """# The hostile campaign

What somebody may try against a site, what must happen then, and whether it did. Every line is tried by tests against real servers, pilots
and stores (SQLite, PostgreSQL and OpenSearch where a test is written for all of them). `just hostile` runs them all and writes this page; `F-…` is the number of a finding from a trial from outside.
"""


def verdict(trial: Try, results: dict[str, Any]) -> str:
    """The worst of its tests, with the day of the oldest."""
    of = [results[test] for test in trial.tests if test in results]
    verdicts = {record["verdict"] for record in of}
    if len(of) < len(trial.tests) or verdicts & {"not run"}:
        return "not run"
    return "failed" if "failed" in verdicts else f"as expected ({min(record['day'] for record in of)})"


def page(results: dict[str, Any]) -> str:
    parts = [HEAD]
    for name, group in TRIES.items():
        parts += [f"\n## {name}\n\n| What is tried | What must happen | Result |\n| --- | --- | --- |\n"]
        for trial in group:
            number = f" ({trial.finding})" if trial.finding else ""
            parts.append(f"| {trial.what}{number} | {trial.expected} | {verdict(trial, results)} |\n")
    return "".join(parts)


def kept() -> dict[str, Any]:
    return dict((result("hostile") or {"figures": {}})["figures"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="hostile", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[""], help="tests whose name has one of these words")
    parser.add_argument("--sqlite", action="store_true", help="only what needs no server of another store")
    parser.add_argument("--page", action="store_true", help="write the page only")
    arguments = parser.parse_args()
    every = [trial for group in TRIES.values() for trial in group]
    named = {test for trial in every for test in trial.tests}
    results = {test: record for test, record in kept().items() if test in named}
    if not arguments.page:
        options = ("-m", "not live") if arguments.sqlite else ()
        results |= run_tests([test for test in named if any(word in test for word in arguments.only)], *options)
        keep("hostile", [], results)
    PAGE.write_text(page(results))
    verdicts = [verdict(trial, results) for trial in every]
    good = sum(text.startswith("as expected") for text in verdicts)
    sys.stdout.write(
        f"hostile: {len(every)} tries by {len(named)} tests: {good} as expected, {verdicts.count('failed')} failed, {verdicts.count('not run')} not run\n"
    )
    return 0 if good == len(every) else 1


if __name__ == "__main__":
    sys.exit(main())
