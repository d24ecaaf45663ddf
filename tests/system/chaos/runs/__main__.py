"""`python -m tests.system.chaos.runs small|full`: kills every process of a run at its named points; 1 when an end state differs."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from tests.system.chaos.runs.campaign import Campaign, Kill, Report, every
from tests.system.chaos.runs.command_line import carry_out, names, parser, say
from tests.system.chaos.runs.site import runs_site

SMALL = (
    Kill("orchestrator.activity.submit_jobs:after", 3),
    Kill("orchestrator.run.resolve_activity:after", 9),
    Kill("server.engine.tell_run:after", 5),
    Kill("reconciler.documents.put:before", 1),
    Kill("orchestrator.activity.submit_jobs:before", 6, temporal=True),
)
"""What the continuous integration has time for."""


def last_line(seed: int, report: Report, seconds: float) -> str:
    """The figures in one line."""
    who = ", ".join(f"{name} {count}" for name, count in sorted(report.kills.items()))
    return (
        f"chaos runs: {report.kills.total()} kills at {len(report.points)} points ({who}); "
        f"{len(report.wrong)} end states or records wrong, {report.extra_attempts} extra attempts, "
        f"{len(report.missed)} passes that did not come; undisturbed {report.undisturbed:.1f} s, "
        f"slowest {report.slowest:.1f} s ({report.slowest_kill}); seed {seed}, {seconds:.0f} s in all"
    )


async def run(arguments: argparse.Namespace, folder: Path) -> Report:
    async with runs_site(arguments.store, folder) as site:
        campaign = Campaign(site)
        counts: Counter[str] = await campaign.undisturbed()
        say(f"{len(counts)} points, {counts.total()} passes in {campaign.report.undisturbed:.1f} s; folder {folder}")
        if arguments.list:
            for point, often in sorted(counts.items()):
                say(f"{often:6}  {point}")
            return campaign.report
        if arguments.size == "small" and not arguments.points:
            kills = list(SMALL)
        else:
            drawn = every(counts, arguments.seed, arguments.rounds, arguments.points)
            kills = [kill for kill in drawn if not arguments.who or kill.who in arguments.who]
        say(f"{len(kills)} kills")
        for kill in kills:
            if not await campaign.kill(kill) and kill.nth > 1:
                await campaign.kill(kill._replace(nth=1))
        return campaign.report


def main() -> int:
    made = parser("chaos-runs", __doc__)
    made.add_argument("size", nargs="?", default="full", choices=["small", "full"])
    made.add_argument("--points", type=names, default=[], help="parts of names, with commas")
    made.add_argument("--who", type=names, default=[], help="only server, reconciler, orchestrator, temporal")
    made.add_argument("--rounds", type=int, default=1, help="kills at each point")
    made.add_argument("--list", action="store_true", help="only tell which points there are")
    return carry_out(made, run, last_line)


if __name__ == "__main__":
    sys.exit(main())
