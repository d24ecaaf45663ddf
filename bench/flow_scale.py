"""One flow of very many jobs: how long until it is accepted, until it has ended, what it costs, and what a kill -9 of everything costs.

    just bench flow_scale --jobs 100000
    just bench flow_scale --jobs 1000000 --beside 10000     # CPU per job beside that of a small flow
    just bench flow_scale --jobs 100000 --over 600          # the jobs end evenly over ten minutes

A scatter of N no-ops on its own Temporal and PostgreSQL (--store opensearch: the one that runs), one server, orchestrator and reconciler as processes, simulated pilots
in another process that speak the real protocol (claims and ends of 32). They begin when all jobs are accepted. Half way every Forestay process is killed with
kill -9 at once and started again. Everything is durable: each answer of the store waits for its disk.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
import uvloop
from temporalio.client import Client, WorkflowExecutionStatus

from bench.harness import keep, leave
from bench.simulated_pilots import PilotProcess
from bench.whole_site import TENANT, WholeSite, whole_site
from forestay.apps.compose.stores import open_stores
from forestay.domain.jobs.job_document import State
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import JobQuery, JobStore

FLOW = """
forestay: 1
name: scale
tasks:
  each:
    command: ["true"]
    scatter: {{n: {{range: [0, {jobs}]}}}}
"""
GIB = 1 << 30
LEASE = 30
"""Seconds. A pilot whose answer was lost by the kill does not know of those claims; they are released after two of its heartbeats, a third of this apart."""


@dataclass(slots=True)
class Figures:
    """What one flow came to."""

    jobs: int
    accepted_in: float = 0.0
    ended_in: float = 0.0
    """From the start of the run to its end, without the kill's part being taken out."""
    jobs_a_second: float = 0.0
    """While the pilots ran."""
    events: int = 0
    events_a_job: float = 0.0
    runs: int = 0
    largest_run: int = 0
    recovery: float | None = None
    """From kill -9 of everything to the next end that counts."""
    case_answers: float | None = None
    """From kill -9 of everything until the run's state is told again, so until an orchestrator has replayed it."""
    superseded: int = 0
    peak_bytes: dict[str, int] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    """Microseconds a job, by process, the pilots not counted."""
    cpu_accept: dict[str, float] = field(default_factory=dict)
    """The part of it until all jobs were accepted."""
    load: float = 0.0

    @property
    def cpu_a_job(self) -> float:
        return sum(self.cpu.values())


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


async def accepted(store: JobStore, run: str, jobs: int, since: float) -> float:
    """When all documents exist; asked so seldom that the question costs little."""
    query = JobQuery(tenant=TENANT, anyof={"run": [run]})
    while True:
        asked = time.monotonic()
        try:
            await store.refresh(only_jobs=True)
            total = sum((await store.count(query, by="state")).values())
        except Transient:
            total = 0
        now = time.monotonic()
        if total >= jobs:
            return (asked + now) / 2 - since
        say(f"  {total} of {jobs} accepted after {now - since:.0f} s")
        left = (jobs - total) * (now - since) / total if total else 1.0
        await asyncio.sleep(max(0.1, 5 * (now - asked), min(left / 2, 10.0)))


async def run(site: WholeSite, jobs: int, args: argparse.Namespace, *, dying: bool) -> Figures:
    figures = Figures(jobs)
    store = open_stores(site.store).jobs
    await store.open()
    before = site.cpu()
    started = time.monotonic()
    run = await site.start_run(FLOW.format(jobs=jobs))
    figures.accepted_in = await accepted(store, run, jobs, started)
    figures.cpu_accept = {name: (spent - before[name]) / jobs * 1e6 for name, spent in site.cpu().items()}
    say(f"  accepted in {figures.accepted_in:.1f} s; CPU a job {_micro(figures.cpu_accept)}")
    rate = jobs / args.over / args.processes if args.over else 0.0
    enrol = site.token("enrol")
    crowd = [PilotProcess(site.urls, enrol, args.pilots, rate) for _ in range(args.processes)]
    try:
        began = time.monotonic()
        await until_ended(crowd, jobs // 2)
        if dying:
            await kill(site, run, crowd, figures)
        await until_ended(crowd, jobs)
        figures.jobs_a_second = jobs / (time.monotonic() - began)
        say(f"  {jobs} jobs ended, {figures.jobs_a_second:.0f}/s")
        await run_ended(site, run)
    finally:
        for process in crowd:
            process.stop()
    figures.ended_in = time.monotonic() - started
    figures.superseded = sum(process.superseded for process in crowd)
    figures.cpu = {name: (spent - before[name]) / jobs * 1e6 for name, spent in site.cpu().items()}
    figures.peak_bytes = site.peaks()
    figures.load = os.getloadavg()[0]
    await histories(site, run, figures)
    states = await store.count(JobQuery(tenant=TENANT, anyof={"run": [run]}), by="state")
    await store.close()
    if dict(states) != {State.COMPLETED.value: jobs}:
        raise SystemExit(f"the jobs are {dict(states)}")
    return figures


async def until_ended(crowd: list[PilotProcess], jobs: int) -> None:
    began = time.monotonic()
    while (ended := sum(process.ended for process in crowd)) < jobs:
        if any(pilot_process.process.poll() is not None for pilot_process in crowd):
            raise SystemExit("the pilots are gone")
        if time.monotonic() - began > 15:
            began = time.monotonic()
            say(f"  {ended} ended")
        await asyncio.sleep(0.05)


async def kill(site: WholeSite, run: str, crowd: list[PilotProcess], figures: Figures) -> None:
    """kill -9 of everything at once, and how long until it goes on."""
    site.kill_all()
    killed = time.monotonic()
    site.launch()
    launched = time.monotonic()

    async def ends() -> float:
        while True:
            if (last := max(process.last for process in crowd)) > launched + 0.2:
                return last - killed
            await asyncio.sleep(0.02)

    async def answers() -> float:
        await site.get(f"/v1/runs/{run}", "viewer", patience=120)
        return time.monotonic() - killed

    figures.recovery, figures.case_answers = await asyncio.gather(ends(), answers())
    say(
        f"  killed at {sum(process.ended for process in crowd)}; next end after {figures.recovery:.1f} s, run after {figures.case_answers:.1f} s"
    )


async def run_ended(site: WholeSite, run: str) -> None:
    while True:
        reply = await site.get(f"/v1/runs/{run}", "viewer")
        if reply["ended"] is not None:
            if reply["state"] != "completed" or reply["tasks"][0]["well"] == 0:
                raise SystemExit(f"the run is {reply['state']}: {reply['reason']}")
            return
        await asyncio.sleep(0.1)


async def histories(site: WholeSite, run: str, figures: Figures) -> None:
    """The events of every run of the run and its shards."""
    client = await Client.connect(site.temporal, namespace=site.namespace)
    query = f"WorkflowId STARTS_WITH '{run}'"
    for _ in range(100):
        executions = [workflow async for workflow in client.list_workflows(query, page_size=1000)]
        if executions and all(execution.status is not WorkflowExecutionStatus.RUNNING for execution in executions):
            break
        await asyncio.sleep(0.5)  # what is listed lags
    figures.runs = len(executions)
    figures.events = sum(execution.history_length for execution in executions)
    figures.largest_run = max(execution.history_length for execution in executions)
    figures.events_a_job = figures.events / figures.jobs


def _micro(cpu: dict[str, float]) -> str:
    return f"{sum(cpu.values()):.0f} µs (" + ", ".join(f"{name} {spent:.0f}" for name, spent in cpu.items()) + ")"


def lines(figures: Figures) -> list[str]:
    out = [
        f"{figures.jobs} jobs: accepted in {figures.accepted_in:.1f} s, ended after {figures.ended_in:.1f} s, {figures.jobs_a_second:.0f} jobs/s with pilots, load {figures.load:.1f}",
        f"  events {figures.events_a_job:.4f} a job ({figures.events} in {figures.runs} runs, the largest {figures.largest_run})",
        "  peak memory " + ", ".join(f"{name} {peak / 2**20:.0f} MiB" for name, peak in figures.peak_bytes.items()),
        f"  CPU a job {_micro(figures.cpu)}; of it until accepted {_micro(figures.cpu_accept)}",
    ]
    if figures.recovery is not None:
        out.append(
            f"  after kill -9 of everything the next end counted after {figures.recovery:.1f} s, "
            f"the run answered after {figures.case_answers:.1f} s; {figures.superseded} ends superseded"
        )
    return out


def judge(figures: Figures, small: Figures | None) -> dict[str, bool]:
    """The goals, and whether each was reached."""
    wanted = {
        f"accepted in ≤ {120 * figures.jobs / 1e6:g} s": figures.accepted_in <= 120 * figures.jobs / 1e6,
        "≤ 0.02 events a job": figures.events_a_job <= 0.02,
        "≤ 8,000 events a run": figures.largest_run <= 8000,
        "≤ 1 GiB a process": max(figures.peak_bytes.values()) <= GIB,
    }
    if figures.recovery is not None and figures.case_answers is not None:
        wanted["goes on within 10 s"] = max(figures.recovery, figures.case_answers) <= 10
    if small is not None:
        wanted["CPU a job ≤ 1.25 × that of the small flow"] = figures.cpu_a_job <= 1.25 * small.cpu_a_job
    return wanted


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument(
        "--beside", type=int, default=0, help="first a flow of so many jobs, to compare the CPU per job"
    )
    parser.add_argument("--rounds", type=int, default=1, help="of the small flow; the median counts")
    parser.add_argument("--store", default="postgres", choices=["postgres", "opensearch", "sqlite"])
    parser.add_argument("--over", type=float, default=0.0, help="seconds over which the jobs end evenly")
    parser.add_argument("--pilots", type=int, default=24, help="in each process")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--orchestrators", type=int, default=1)
    parser.add_argument("--no-kill", dest="kill", action="store_false")
    parser.add_argument(
        "--shared", action="store_true", help="PostgreSQL and Temporal of the environment, not own ones"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    small: list[Figures] = []
    async with whole_site(own=not args.shared, store=args.store) as site:
        say(f"logs in {site.folder}")
        await site.start(servers=args.servers, orchestrators=args.orchestrators, lease=LEASE)
        for _ in range(args.rounds if args.beside else 0):
            small.append(await run(site, args.beside, args, dying=False))
            say("\n".join(lines(small[-1])))
        large = await run(site, args.jobs, args, dying=args.kill)
    report(small, large, as_json=args.json)


def report(small: list[Figures], large: Figures, *, as_json: bool) -> None:
    middle = sorted(small, key=lambda figures: figures.cpu_a_job)[len(small) // 2] if small else None
    goals = judge(large, middle)
    figures: dict[str, Any] = {
        "large": asdict(large),
        "small": [asdict(other_figures) for other_figures in small],
        "goals": goals,
    }
    keep(f"flow_scale_{large.jobs}", [], figures)
    if as_json:
        print(orjson.dumps(figures).decode())
    else:
        for other_figures in [*small, large]:
            print("\n".join(lines(other_figures)))
        if middle is not None:
            cost = large.cpu_a_job / statistics.median(other_figures.cpu_a_job for other_figures in small)
            print(f"CPU a job at {large.jobs} is {cost:.2f} × that at {middle.jobs} (goal ≤ 1.25)")
    missed = [name for name, reached in goals.items() if not reached]
    print(
        f"flow_scale: {'reached' if not missed else 'not reached: ' + '; '.join(missed)}",
        file=sys.stderr if as_json else sys.stdout,
    )
    leave(reached=not missed)


if __name__ == "__main__":
    uvloop.run(main())
