"""The formal model as a command: `python -m tests.system.model`, or `small` for what the gate runs.

Prints states, distinct states, time and verdict for each variant as its last lines; the exit code is 1 if one of them is not as expected.
The full run also writes the counter-examples and the table to the docs.
"""

# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests.system.model.tlc import Checked, check, java, tools
from tests.system.model.variants import BAD, IN_GATE, PROTOCOL, PROTOCOL_FULL, REDUNDANT
from tests.system.model.words import trace

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "docs" / "explanation" / "model"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.system.model", description=__doc__)
    parser.add_argument("size", nargs="?", choices=("full", "small"), default="full")
    parser.add_argument("--only", default="", help="variants whose names contain this text")
    arguments = parser.parse_args()
    jar = tools()
    program = java()
    if program is None:
        sys.exit("no Java is installed")
    full = arguments.size == "full"
    variants = [*PROTOCOL_FULL, *REDUNDANT, *BAD]
    if not full:
        variants = [*PROTOCOL, *(variant for variant in BAD if variant.name in IN_GATE)]
    results: list[Checked] = []
    for variant in variants:
        if arguments.only in variant.name:
            print(f"{variant.name} ({variant.bound}) …", file=sys.stderr, flush=True)
            results.append(check(variant, program=program, jar=jar))
    lines = table(results)
    if full and not arguments.only:
        keep(results, lines)
    print("\n".join(lines))
    return 0 if all(result.as_expected for result in results) else 1


def table(results: list[Checked]) -> list[str]:
    """A line for each variant."""
    lines = [f"{'variant':<30} {'bound':<38} {'states':>9} {'distinct':>9} {'seconds':>8}  verdict"]
    for result in results:
        bound = str(result.variant.bound)
        lines.append(
            f"{result.variant.name:<30} {bound:<38} {result.generated:>9,} {result.distinct:>9,} "
            f"{result.seconds:>8.1f}  {result.verdict}"
        )
    return lines


def keep(results: list[Checked], lines: list[str]) -> None:
    """Write the counter-examples and the table for the page."""
    KEPT.mkdir(exist_ok=True)
    for old in KEPT.glob("*.txt"):
        old.unlink()
    for result in results:
        if result.steps:
            (KEPT / f"{result.variant.name}.txt").write_text(trace(result))
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    (KEPT / "results.txt").write_text("\n".join([f"after commit {commit}", "", *lines, ""]))


if __name__ == "__main__":
    sys.exit(main())
