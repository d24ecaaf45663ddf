"""Run the fault table: every test that its rows name, then its campaigns; the verdicts go to bench/results/fault_table.json.

`python -m tests.system.faults [list|small|full] [--only tests,chaos,…] [--rows 7,8] [--no-keep]`

What is not run now keeps the verdict of its last run, with its day.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from typing import Any

from bench.harness import keep
from bench.report.results import result
from tests.system.faults.table import CAMPAIGNS, FULL, TABLE
from tests.system.verdicts import ROOT, record, run_tests

TESTS = "tests"


def say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def run_campaign(words: tuple[str, ...]) -> dict[str, Any]:
    """One campaign; its last line has its figures."""
    say(f"campaign: {' '.join(words)}")
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=sys.stderr, text=True
    )
    last = (done.stdout.strip().splitlines() or [""])[-1]
    say(last)
    return record("failed" if done.returncode else "passed", time.monotonic() - began, last) | {
        "words": " ".join(words)
    }


def write(figures: dict[str, dict[str, Any]], *, kept: bool) -> None:
    """After each step: all of them take an hour, and what was run is not to be run again because something later was cut off."""
    if kept:
        keep("fault_table", [], figures)


def main() -> int:
    parser = argparse.ArgumentParser(prog="failures", description=__doc__)
    parser.add_argument("size", nargs="?", default="small", choices=["list", "small", "full"])
    parser.add_argument("--only", default="", help="such as `tests,chaos`; the others keep their last verdict")
    parser.add_argument("--rows", default="", help="such as `7,8`: only what these rows name")
    parser.add_argument("--no-keep", action="store_true", help="write no results")
    args = parser.parse_args()
    if args.size == "list":
        for row in TABLE:
            by = ", ".join([*(test.partition("::")[2] for test in row.tests), *row.campaigns])
            sys.stdout.write(f"{row.number:>2} {row.fault}: {row.shown}{'; ' + by if by else ''}\n")
        return 0
    campaigns = FULL if args.size == "full" else CAMPAIGNS
    rows = {int(part) for part in args.rows.split(",") if part}
    of_rows = [name for row in TABLE if row.number in rows for name in row.campaigns] if rows else list(campaigns)
    wanted = args.only.split(",") if args.only else [TESTS, *of_rows]
    before = (result("fault_table") or {"figures": {}})["figures"]
    fields: dict[str, dict[str, Any]] = {
        "tests": dict(before.get("tests", {})),
        "campaigns": dict(before.get("campaigns", {})),
    }
    now: dict[str, dict[str, Any]] = {}
    if TESTS in wanted:
        now |= run_tests(test for row in TABLE for test in row.tests if not rows or row.number in rows)
        fields["tests"] = fields["tests"] | now if rows else dict(now)
        write(fields, kept=not args.no_keep)
    for name, words in campaigns.items():
        if name in wanted:
            now[name] = fields["campaigns"][name] = run_campaign(words)
            write(fields, kept=not args.no_keep)
    bad = [name for name, record in now.items() if record["verdict"] != "passed"]
    sys.stdout.write(
        f"fault table: {len(now) - len(bad)} of {len(now)} passed{'; not: ' + ', '.join(bad) if bad else ''}\n"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
