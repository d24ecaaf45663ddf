"""`python -m tests.chaos.exlets`: kills who carries exlets out in the middle of each primitive; 1 when an end differs from the undisturbed one."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.chaos.cases.site import cases_site
from tests.chaos.exlets.campaign import Campaign, Report, drawn, opened
from tests.chaos.exlets.crowd import Crowd
from tests.chaos.exlets.primitives import PRIMITIVES


def say(text: str) -> None:
    with suppress(BrokenPipeError):
        sys.stderr.write(f"chaos-exlets {time.strftime('%H:%M:%S')}  {text}\n")
        sys.stderr.flush()


def last_line(seed: int, report: Report, seconds: float) -> str:
    """The figures in one line."""
    return (
        f"chaos exlets: {report.times} kills at {len(report.points)} points, in the middle of {report.kills.total()} exlets of "
        f"{len(report.kills)} primitives (at least {min(report.kills.values(), default=0)} of each); "
        f"{len(report.wrong)} ends wrong, {report.missed} passes that did not come; slowest {report.slowest:.1f} s; "
        f"seed {seed}, {seconds:.0f} s in all"
    )


async def run(arguments: argparse.Namespace, folder: Path) -> Report:
    async with cases_site(arguments.store, folder) as site:
        stores, engine = opened(site)
        await stores.jobs.open()
        try:
            campaign = Campaign(site, stores, engine, say)
            chosen = [one for one in PRIMITIVES if not arguments.primitives or one.name in arguments.primitives]
            if arguments.together:
                await Crowd(campaign, random.Random(arguments.seed), arguments.together).kill(chosen, arguments.times)
                return campaign.report
            for tried in chosen:
                await campaign.undisturbed(tried)  # what is only passed when everything is new is no step of an exlet
                found, known = await campaign.undisturbed(tried)
                say(f"{tried.name}: {len(found)} points, {found.total()} passes; {known['incident']}")
                # The primitive's own name is part of the seed, so that one can be run again alone.
                chance = random.Random(f"{arguments.seed}:{tried.name}")
                for point, nth in drawn(found, chance, arguments.times):
                    await campaign.kill(tried, known, point, nth)
            return campaign.report
        finally:
            await stores.jobs.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos-exlets", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--times", type=int, default=50, help="kills in each primitive")
    parser.add_argument("--primitives", type=lambda text: text.split(","), default=[], help="names, with commas")
    parser.add_argument(
        "--together", type=int, default=0, help="carry so many exlets of each primitive out at once; 0: one by one"
    )
    parser.add_argument("--store", default="postgresql", choices=["postgresql", "sqlite"])
    parser.add_argument("--folder", type=Path, help="where logs and Temporal's data are kept; a new one unless given")
    arguments = parser.parse_args()
    folder: Path = arguments.folder or Path(tempfile.mkdtemp(prefix="holdfast-chaos-exlets-"))
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    report = asyncio.run(run(arguments, folder.resolve()))
    for complaint in report.wrong:
        say(f"WRONG: {complaint}")
    if not report.wrong and arguments.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.write(last_line(arguments.seed, report, time.monotonic() - began) + "\n")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
