"""Scatters that follow one another: what it costs to start each element when its own input is there, beside waiting for all of them.

    just bench streaming --elements 10000 --rounds 3

Five scatters, each over the outputs of the one before, on an own Temporal and store, with one server, orchestrator and reconciler as processes, and simulated pilots in another process.
Three arms in turn: *streaming*; *barrier*, the same flow in which every task names the one before in `after` (up to 10,000 elements, its limit); and *plain*, scatters over numbers that wait
for one another and refer to no output: the least that a barrier can cost. CPU is that of all processes but the pilots, a job.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from typing import Any

import uvloop

from bench.flow_scale import say
from bench.harness import keep, leave, paired, pressure
from bench.simulated_pilots import PilotProcess
from bench.whole_site import WholeSite, whole_site
from forestay.domain.flows.execution.rounds import MAX_OUTPUTS

GOAL = 1.15
ARMS = ("streaming", "barrier", "plain")


def flow(arm: str, elements: int, steps: int) -> str:
    """The flow of an arm."""
    lines = ["forestay: 1", f"name: {arm}", "tasks:"]
    for step in range(steps):
        over = f"{{range: [0, {elements}]}}" if step == 0 or arm == "plain" else f'"${{tasks.s{step - 1}.outputs.out}}"'
        after = f", after: [s{step - 1}]" if step and arm != "streaming" else ""
        lines.append(f'  s{step}: {{command: ["true"], scatter: {{x: {over}}}, outputs: {{out: out.txt}}{after}}}')
    return "\n".join(lines)


async def ended(site: WholeSite, run: str) -> dict[str, Any]:
    while True:
        reply: dict[str, Any] = await site.get(f"/v1/runs/{run}", "viewer")
        if reply["ended"] is not None:
            return reply
        await asyncio.sleep(1.0)


async def run_arm(site: WholeSite, arm: str, elements: int, steps: int) -> dict[str, Any]:
    before, started = site.cpu(), time.monotonic()
    run = await site.start_run(flow(arm, elements, steps))
    reply = await ended(site, run)
    took = time.monotonic() - started
    if reply["state"] != "completed" or any(task["well"] != elements for task in reply["tasks"]):
        raise SystemExit(f"the run is {reply['state']}: {reply['reason']}")
    jobs = elements * steps
    cpu = {name: (spent - before[name]) / jobs * 1e6 for name, spent in site.cpu().items()}
    out = {"arm": arm, "seconds": took, "cpu": cpu, "cpu_a_job": sum(cpu.values())}
    say(
        f"  {arm}: {took:.0f} s, {out['cpu_a_job']:.0f} µs a job { ({name: round(spent) for name, spent in cpu.items()}) }"
    )
    return out | {"load": os.getloadavg()[0], "pressure": pressure()}


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--elements", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pilots", type=int, default=8)
    parser.add_argument("--store", default="postgres", choices=["postgres", "sqlite"])
    parser.add_argument(
        "--shared", action="store_true", help="PostgreSQL and Temporal of the environment, not own ones"
    )
    asked = parser.parse_args()
    arms = [arm for arm in ARMS if arm != "barrier" or asked.elements <= MAX_OUTPUTS]
    rows: list[dict[str, Any]] = []
    async with whole_site(own=not asked.shared, store=asked.store) as site:
        await site.start()
        pilots = PilotProcess(site.urls, site.token("enrol"), asked.pilots, outputs=True)
        try:
            for number in range(asked.rounds):
                for arm in arms if number % 2 == 0 else arms[::-1]:
                    row = await run_arm(site, arm, asked.elements, asked.steps)
                    rows.append(row | {"round": number})
        finally:
            pilots.stop()
    report(asked, arms, rows)


def report(asked: argparse.Namespace, arms: list[str], rows: list[dict[str, Any]]) -> None:
    by_arm = {arm: [row["cpu_a_job"] for row in rows if row["arm"] == arm] for arm in arms}
    ratios = {arm: paired(by_arm["streaming"], by_arm[arm]) for arm in arms if arm != "streaming"}
    figures = {"elements": asked.elements, "steps": asked.steps, "rows": rows, "goal": GOAL}
    print(f"raw runs in {keep(f'streaming_{asked.elements}', [], figures)}", file=sys.stderr)
    for arm in arms:
        mine = [row for row in rows if row["arm"] == arm]
        took = sum(row["seconds"] for row in mine) / len(mine)
        print(f"{arm}: {sum(by_arm[arm]) / len(mine):.0f} µs a job, ended after {took:.0f} s")
    for arm, ratio in ratios.items():
        print(f"streaming: {ratio} × the CPU of {arm} (goal ≤ {GOAL})")
    judged = ratios.get("barrier", ratios["plain"])
    leave(reached=judged.median <= GOAL)


if __name__ == "__main__":
    uvloop.run(main())
