"""`python -m tests.system.chaos.playbooks`: kills who carries playbooks out in the middle of each action; 1 when an end differs from the undisturbed one."""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from tests.system.chaos.playbooks.actions import ACTIONS
from tests.system.chaos.playbooks.campaign import Campaign, Report, drawn, opened
from tests.system.chaos.playbooks.crowd import Crowd
from tests.system.chaos.runs.command_line import carry_out, names, parser, say
from tests.system.chaos.runs.site import runs_site


def last_line(seed: int, report: Report, seconds: float) -> str:
    """The figures in one line."""
    return (
        f"chaos playbooks: {report.times} kills at {len(report.points)} points, in the middle of {report.kills.total()} playbooks of "
        f"{len(report.kills)} actions (at least {min(report.kills.values(), default=0)} of each); "
        f"{len(report.wrong)} ends wrong, {report.missed} passes that did not come; slowest {report.slowest:.1f} s; "
        f"seed {seed}, {seconds:.0f} s in all"
    )


async def run(arguments: argparse.Namespace, folder: Path) -> Report:
    async with runs_site(arguments.store, folder) as site:
        stores, engine = opened(site)
        await stores.jobs.open()
        try:
            campaign = Campaign(site, stores, engine, say)
            chosen = [action for action in ACTIONS if not arguments.actions or action.name in arguments.actions]
            if arguments.together:
                await Crowd(campaign, random.Random(arguments.seed), arguments.together).kill(chosen, arguments.times)
                return campaign.report
            for tried in chosen:
                await campaign.undisturbed(tried)  # what is only passed when everything is new is no step of a playbook
                counts, known = await campaign.undisturbed(tried)
                say(f"{tried.name}: {len(counts)} points, {counts.total()} passes; {known['incident']}")
                # The action's own name is part of the seed, so that one can be run again alone.
                chance = random.Random(f"{arguments.seed}:{tried.name}")
                for point, nth in drawn(counts, chance, arguments.times):
                    await campaign.kill(tried, known, point, nth)
            return campaign.report
        finally:
            await stores.jobs.close()


def main() -> int:
    made = parser("chaos-playbooks", __doc__)
    made.add_argument("--times", type=int, default=50, help="kills in each action")
    made.add_argument("--actions", type=names, default=[], help="names, with commas")
    made.add_argument(
        "--together", type=int, default=0, help="carry so many playbooks of each action out at once; 0: one by one"
    )
    return carry_out(made, run, last_line)


if __name__ == "__main__":
    sys.exit(main())
