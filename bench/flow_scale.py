"""One flow of very many jobs: how long until it is accepted, until it has ended, what it costs, and what a kill -9 of everything costs.

    just bench flow_scale --jobs 100000
    just bench flow_scale --jobs 1000000 --beside 10000     # CPU per job beside that of a small flow
    just bench flow_scale --jobs 100000 --over 600          # the jobs end evenly over ten minutes

A scatter of N no-ops on its own Temporal and PostgreSQL (--store opensearch: the one that runs), one server, worker and keeper as processes, simulated pilots
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
"""Seconds. A pilot whose answer was lost by the kill does not know of those claims; they are released after two of its beats, a third of this apart."""


@dataclass(slots=True)
class Figures:
    """What one flow came to."""

    jobs: int
    accepted_in: float = 0.0
    ended_in: float = 0.0
    """From the start of the case to its end, without the kill's part being taken out."""
    jobs_a_second: float = 0.0
    """While the pilots ran."""
    events: int = 0
    events_a_job: float = 0.0
    runs: int = 0
    largest_run: int = 0
    recovery: float | None = None
    """From kill -9 of everything to the next end that counts."""
    case_answers: float | None = None
    """From kill -9 of everything until the case's state is told again, so until a worker has replayed it."""
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


async def accepted(store: JobStore, case: str, jobs: int, since: float) -> float:
    """When all documents exist; asked so seldom that the question costs little."""
    query = JobQuery(tenant=TENANT, anyof={"case": [case]})
    while True:
        asked = time.monotonic()
        try:
            await store.refresh(only_jobs=True)
            found = sum((await store.count(query, by="state")).values())
        except Transient:
            found = 0
        now = time.monotonic()
        if found >= jobs:
            return (asked + now) / 2 - since
        say(f"  {found} of {jobs} accepted after {now - since:.0f} s")
        left = (jobs - found) * (now - since) / found if found else 1.0
        await asyncio.sleep(max(0.1, 5 * (now - asked), min(left / 2, 10.0)))


async def run(site: WholeSite, jobs: int, given: argparse.Namespace, *, dying: bool) -> Figures:
    figures = Figures(jobs)
    store = open_stores(site.store).jobs
    await store.open()
    before = site.cpu()
    started = time.monotonic()
    case = await site.start_case(FLOW.format(jobs=jobs))
    figures.accepted_in = await accepted(store, case, jobs, started)
    figures.cpu_accept = {name: (spent - before[name]) / jobs * 1e6 for name, spent in site.cpu().items()}
    say(f"  accepted in {figures.accepted_in:.1f} s; CPU a job {_micro(figures.cpu_accept)}")
    rate = jobs / given.over / given.processes if given.over else 0.0
    enrol = site.token("enrol")
    crowd = [PilotProcess(site.urls, enrol, given.pilots, rate) for _ in range(given.processes)]
    try:
        began = time.monotonic()
        await until_ended(crowd, jobs // 2)
        if dying:
            await kill(site, case, crowd, figures)
        await until_ended(crowd, jobs)
        figures.jobs_a_second = jobs / (time.monotonic() - began)
        say(f"  {jobs} jobs ended, {figures.jobs_a_second:.0f}/s")
        await case_ended(site, case)
    finally:
        for one in crowd:
            one.stop()
    figures.ended_in = time.monotonic() - started
    figures.superseded = sum(one.superseded for one in crowd)
    figures.cpu = {name: (spent - before[name]) / jobs * 1e6 for name, spent in site.cpu().items()}
    figures.peak_bytes = site.peaks()
    figures.load = os.getloadavg()[0]
    await histories(site, case, figures)
    states = await store.count(JobQuery(tenant=TENANT, anyof={"case": [case]}), by="state")
    await store.close()
    if dict(states) != {State.COMPLETED.value: jobs}:
        raise SystemExit(f"the jobs are {dict(states)}")
    return figures


async def until_ended(crowd: list[PilotProcess], jobs: int) -> None:
    said = time.monotonic()
    while (ended := sum(one.ended for one in crowd)) < jobs:
        if any(one.process.poll() is not None for one in crowd):
            raise SystemExit("the pilots are gone")
        if time.monotonic() - said > 15:
            said = time.monotonic()
            say(f"  {ended} ended")
        await asyncio.sleep(0.05)


async def kill(site: WholeSite, case: str, crowd: list[PilotProcess], figures: Figures) -> None:
    """kill -9 of everything at once, and how long until it goes on."""
    site.kill_all()
    killed = time.monotonic()
    site.launch()
    launched = time.monotonic()

    async def ends() -> float:
        while True:
            if (last := max(one.last for one in crowd)) > launched + 0.2:
                return last - killed
            await asyncio.sleep(0.02)

    async def answers() -> float:
        await site.get(f"/v1/cases/{case}", "viewer", patience=120)
        return time.monotonic() - killed

    figures.recovery, figures.case_answers = await asyncio.gather(ends(), answers())
    say(
        f"  killed at {sum(one.ended for one in crowd)}; next end after {figures.recovery:.1f} s, case after {figures.case_answers:.1f} s"
    )


async def case_ended(site: WholeSite, case: str) -> None:
    while True:
        found = await site.get(f"/v1/cases/{case}", "viewer")
        if found["ended"] is not None:
            if found["state"] != "completed" or found["items"][0]["well"] == 0:
                raise SystemExit(f"the case is {found['state']}: {found['reason']}")
            return
        await asyncio.sleep(0.1)


async def histories(site: WholeSite, case: str, figures: Figures) -> None:
    """The events of every run of the case and its shards."""
    client = await Client.connect(site.temporal, namespace=site.namespace)
    query = f"WorkflowId STARTS_WITH '{case}'"
    for _ in range(100):
        found = [one async for one in client.list_workflows(query, page_size=1000)]
        if found and all(one.status is not WorkflowExecutionStatus.RUNNING for one in found):
            break
        await asyncio.sleep(0.5)  # what is listed lags
    figures.runs = len(found)
    figures.events = sum(one.history_length for one in found)
    figures.largest_run = max(one.history_length for one in found)
    figures.events_a_job = figures.events / figures.jobs


def _micro(cpu: dict[str, float]) -> str:
    return f"{sum(cpu.values()):.0f} µs (" + ", ".join(f"{name} {spent:.0f}" for name, spent in cpu.items()) + ")"


def lines(one: Figures) -> list[str]:
    out = [
        f"{one.jobs} jobs: accepted in {one.accepted_in:.1f} s, ended after {one.ended_in:.1f} s, {one.jobs_a_second:.0f} jobs/s with pilots, load {one.load:.1f}",
        f"  events {one.events_a_job:.4f} a job ({one.events} in {one.runs} runs, the largest {one.largest_run})",
        "  peak memory " + ", ".join(f"{name} {peak / 2**20:.0f} MiB" for name, peak in one.peak_bytes.items()),
        f"  CPU a job {_micro(one.cpu)}; of it until accepted {_micro(one.cpu_accept)}",
    ]
    if one.recovery is not None:
        out.append(
            f"  after kill -9 of everything the next end counted after {one.recovery:.1f} s, "
            f"the case answered after {one.case_answers:.1f} s; {one.superseded} ends superseded"
        )
    return out


def judge(one: Figures, small: Figures | None) -> dict[str, bool]:
    """The goals, and whether each was reached."""
    wanted = {
        f"accepted in ≤ {120 * one.jobs / 1e6:g} s": one.accepted_in <= 120 * one.jobs / 1e6,
        "≤ 0.02 events a job": one.events_a_job <= 0.02,
        "≤ 8,000 events a run": one.largest_run <= 8000,
        "≤ 1 GiB a process": max(one.peak_bytes.values()) <= GIB,
    }
    if one.recovery is not None and one.case_answers is not None:
        wanted["goes on within 10 s"] = max(one.recovery, one.case_answers) <= 10
    if small is not None:
        wanted["CPU a job ≤ 1.25 × that of the small flow"] = one.cpu_a_job <= 1.25 * small.cpu_a_job
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
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--no-kill", dest="kill", action="store_false")
    parser.add_argument(
        "--shared", action="store_true", help="PostgreSQL and Temporal of the environment, not own ones"
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    small: list[Figures] = []
    async with whole_site(own=not given.shared, store=given.store) as site:
        say(f"logs in {site.folder}")
        await site.start(servers=given.servers, workers=given.workers, lease=LEASE)
        for _ in range(given.rounds if given.beside else 0):
            small.append(await run(site, given.beside, given, dying=False))
            say("\n".join(lines(small[-1])))
        large = await run(site, given.jobs, given, dying=given.kill)
    report(small, large, as_json=given.json)


def report(small: list[Figures], large: Figures, *, as_json: bool) -> None:
    middle = sorted(small, key=lambda one: one.cpu_a_job)[len(small) // 2] if small else None
    goals = judge(large, middle)
    figures: dict[str, Any] = {"large": asdict(large), "small": [asdict(one) for one in small], "goals": goals}
    if middle is not None:
        figures["cost"] = large.cpu_a_job / statistics.median(one.cpu_a_job for one in small)
    keep(f"flow_scale_{large.jobs}", [], figures)
    if as_json:
        print(orjson.dumps(figures).decode())
    else:
        for one in [*small, large]:
            print("\n".join(lines(one)))
        if middle is not None:
            print(f"CPU a job at {large.jobs} is {figures['cost']:.2f} × that at {middle.jobs} (goal ≤ 1.25)")
    missed = [name for name, reached in goals.items() if not reached]
    print(
        f"flow_scale: {'reached' if not missed else 'not reached: ' + '; '.join(missed)}",
        file=sys.stderr if as_json else sys.stdout,
    )
    leave(reached=not missed)


if __name__ == "__main__":
    uvloop.run(main())
