"""The simulation as a command: `python -m tests.system.simulation --schedules 10000 --jobs 2`, or `--seed 17` for one again."""

# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

from tests.system.simulation.campaign import Campaign, kept_seeds, run_campaign
from tests.system.simulation.world import Protocol, Report, run_schedule


def main() -> int:
    arguments = _arguments()
    if arguments.seed is not None:
        return _again(arguments.seed, arguments.protocol)
    seeds = [*kept_seeds(), *range(arguments.first, arguments.first + arguments.schedules)]
    began = time.monotonic()
    campaign = run_campaign(
        dict.fromkeys(seeds), jobs=arguments.jobs, on_event=_progress(len(dict.fromkeys(seeds)), began)
    )
    if sys.stderr.isatty():
        print(end="\r\033[K", file=sys.stderr)
    print("\n".join(campaign.table()))
    for report in campaign.failed:
        _tell(report)
    if campaign.missing:
        print(f"never happened: {', '.join(campaign.missing)}")
    seconds = time.monotonic() - began
    print(f"{campaign.jobs} jobs, {campaign.turns} turns, {seconds:.0f} s with {arguments.jobs} processes")
    print(campaign.verdict())
    return 0 if campaign.proven else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tests.system.simulation", description="Run the claim protocol under random schedules."
    )
    parser.add_argument("--schedules", type=int, default=1000, metavar="N", help="how many schedules (1000)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the seed of the first one (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes at once")
    parser.add_argument("--seed", type=int, metavar="SEED", help="run this one schedule again and tell what it broke")
    parser.add_argument("--protocol", choices=["checked", "naive", "number"], default="checked")
    return parser.parse_args()


def _again(seed: int, protocol: Protocol) -> int:
    report = run_schedule(seed, protocol)
    for kind, count in sorted(report.tally.items()):
        print(f"{kind:32} {count:9}")
    if report.violations:
        _tell(report)
    print(f"seed {seed}, {protocol}: {len(report.violations)} violations, {report.turns} turns, digest {report.digest}")
    return 1 if report.violations else 0


def _tell(report: Report) -> None:
    print(f"seed {report.seed} breaks; again: python -m tests.system.simulation --seed {report.seed}")
    for violation in report.violations:
        print(f"  {violation.kind}: {violation.text}")


def _progress(total: int, began: float) -> Callable[[Campaign], None]:
    """A line that changes on a terminal, a line for every twentieth elsewhere."""
    terminal = sys.stderr.isatty()
    due = total / 20

    def tell(campaign: Campaign) -> None:
        nonlocal due
        if not terminal:
            if campaign.schedules < due:
                return
            due += total / 20
        rate = campaign.schedules / (time.monotonic() - began)
        line = f"{campaign.schedules}/{total}  {rate:.0f}/s  {len(campaign.failed)} broken"
        print(f"\r{line}" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)

    return tell


if __name__ == "__main__":
    sys.exit(main())
