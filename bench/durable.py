"""Benchmark 1: durable no-op jobs a second through a run, beside one bare Temporal activity a job, in turn on the same Temporal.

    just bench durable --rounds 7

A Forestay job is submitted by its run, claimed and ended by a simulated pilot over HTTP, and the round is over when the run has ended: every step is on
disk before it is answered (PostgreSQL with fsync; Temporal's development server on a SQLite file, for both arms). One orchestrator process each.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys

import uvloop

from bench.bare_temporal import bare_temporal
from bench.flow_scale import FLOW, run_ended
from bench.harness import Run, keep, leave, measure, paired, rates
from bench.simulated_pilots import PilotProcess
from bench.whole_site import WholeSite, whole_site

GOAL = 30.0


async def run(site: WholeSite, args: argparse.Namespace) -> list[Run]:
    runs: list[Run] = []

    async def through_run() -> int:
        run = await site.start_run(FLOW.format(jobs=args.jobs))
        await run_ended(site, run)
        return int(args.jobs)

    crowd = PilotProcess(site.urls, site.token("enrol"), args.pilots)
    try:
        async with bare_temporal(site.temporal, site.namespace) as bare:

            async def activities() -> int:
                await bare.run(args.bare)
                return int(args.bare)

            await bare.run(min(args.bare, 50))
            await run_ended(site, await site.start_run(FLOW.format(jobs=1000)))
            for number in range(args.rounds):
                arms = [("bare", activities), ("forestay", through_run)]
                for name, work in arms if number % 2 == 0 else arms[::-1]:
                    runs.append(await measure(name, work, site.servers))
                    await asyncio.sleep(1.0)
    finally:
        crowd.stop()
    return runs


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=20_000, help="of a Forestay round")
    parser.add_argument(
        "--bare", type=int, default=300, help="activities of a bare round, side by side in one workflow"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pilots", type=int, default=24)
    parser.add_argument(
        "--shared", action="store_true", help="PostgreSQL and Temporal of the environment, not own ones"
    )
    args = parser.parse_args()
    async with whole_site(own=not args.shared) as site:
        await site.start(relay_every=0.2)
        runs = await run(site, args)
    ratio = paired(rates(runs, "forestay"), rates(runs, "bare"))
    path = keep("durable", runs, {"forestay over bare": ratio})
    print(f"raw runs in {path}", file=sys.stderr)
    middle = {arm: statistics.median(rates(runs, arm)) for arm in ("forestay", "bare")}
    reached = ratio.low >= GOAL
    print(
        f"durable: {middle['forestay']:.0f} jobs/s beside {middle['bare']:.0f} bare activities/s: {ratio} × "
        f"(goal ≥ {GOAL:g}): {'reached' if reached else 'not reached'}"
    )
    leave(reached=reached)


if __name__ == "__main__":
    uvloop.run(main())
