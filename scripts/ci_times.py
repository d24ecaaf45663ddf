"""Where the gate's time goes: its tiers, the twenty most expensive test files, and what changed since the run that is kept in the tree.

just ci-times          the newest run on this machine beside .ci/times.json
just ci-times --keep   write the newest run to .ci/times.json
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.gate_results import load_table, results_folder, save_table, tables  # noqa: E402 - the path comes first

if TYPE_CHECKING:
    from scripts.gate_results import Table

KEPT = ROOT / ".ci" / "times.json"
MOST = 20
WORTH_KEEPING = 2.0
"""Seconds; what is cheaper is left out of the kept table, so that its changes stay readable."""


def change(now: float, before: float | None) -> str:
    return "new" if before is None else f"{now - before:+.0f}"


def lines(newest: Table, kept: Table | None) -> list[str]:
    """The tiers in their order, then the most expensive files."""
    tiers = {tier.name: tier.seconds for tier in kept.tiers} if kept else {}
    out = [f"run of {newest.began} at {newest.commit}: {newest.seconds:.0f} s, {100 * newest.busy:.0f} % busy"]
    if kept:
        out[0] += f"; kept: {kept.seconds:.0f} s at {kept.commit}"
    out.append(f"\n{'tier':<42} {'seconds':>8} {'CPU-s':>8} {'change':>8}  result")
    out += [
        f"{tier.name:<42} {tier.seconds:>8.0f} {tier.cpu:>8.0f} {change(tier.seconds, tiers.get(tier.name)):>8}  {tier.result}"
        for tier in newest.tiers
    ]
    out.append(f"\n{'file':<72} {'seconds':>8} {'CPU-s':>8} {'tests':>6} {'change':>8}")
    files = kept.files if kept else {}
    for name, times in sorted(newest.files.items(), key=lambda entry: -entry[1].seconds)[:MOST]:
        before = files[name].seconds if name in files else None
        out.append(
            f"{name:<72} {times.seconds:>8.1f} {times.cpu:>8.1f} {times.tests:>6} {change(times.seconds, before):>8}"
        )
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="write the newest run to .ci/times.json")
    arguments = parser.parse_args()
    paths = tables(results_folder())
    if not paths:
        print("No run of the gate is kept on this machine: run `just ci` first.")
        return 1
    newest = load_table(paths[-1])
    print(*lines(newest, load_table(KEPT) if KEPT.exists() else None), sep="\n")
    if arguments.keep:
        worth_keeping = {name: times for name, times in newest.files.items() if times.seconds >= WORTH_KEEPING}
        save_table(KEPT, replace(newest, files=worth_keeping))
    return 0


if __name__ == "__main__":
    sys.exit(main())
