"""`python -m tests.system.chaos.runs small|full|parts`: kills every process of a run at its named points; 1 when an end state differs."""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

from tests.system.chaos.runs.campaign import Campaign, Kill, Report, every
from tests.system.chaos.runs.command_line import carry_out, names, parser, say
from tests.system.chaos.runs.parts import PARTS
from tests.system.chaos.runs.site import RunsSite, runs_site

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
        if arguments.size == "parts":
            return await run_parts(arguments, site)
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


async def run_parts(arguments: argparse.Namespace, site: RunsSite) -> Report:
    """Kill in each part alone: at so many of its points, drawn by the seed and the part's name, or at all of them."""
    report = Report()
    for name in arguments.parts or PARTS:
        campaign = Campaign(site, PARTS[name](), report=report)
        counts = await campaign.undisturbed()
        kills = [
            kill
            for kill in every(counts, arguments.seed, arguments.rounds, arguments.points)
            if not arguments.who or kill.who in arguments.who
        ]
        say(f"{name}: {len(counts)} points, {counts.total()} passes in {report.undisturbed:.1f} s, {len(kills)} kills")
        if arguments.list:
            continue
        if arguments.times:
            kills = random.Random(f"{arguments.seed}:{name}").sample(kills, min(arguments.times, len(kills)))
        for kill in kills:
            if not await campaign.kill(kill) and kill.nth > 1:
                await campaign.kill(kill._replace(nth=1))
    return report


def main() -> int:
    made = parser("chaos-runs", __doc__)
    made.add_argument("size", nargs="?", default="full", choices=["small", "full", "parts"])
    made.add_argument("--points", type=names, default=[], help="parts of names, with commas")
    made.add_argument("--who", type=names, default=[], help="only server, reconciler, orchestrator, temporal")
    made.add_argument("--rounds", type=int, default=1, help="kills at each point")
    made.add_argument("--parts", type=names, default=[], help=f"with parts: only these of {', '.join(PARTS)}")
    made.add_argument("--times", type=int, default=0, help="with parts: so many kills in each; 0: at every point")
    made.add_argument("--list", action="store_true", help="only tell which points there are")
    return carry_out(made, run, last_line)


if __name__ == "__main__":
    sys.exit(main())
