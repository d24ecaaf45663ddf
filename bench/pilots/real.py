"""Real runs at a small size, held against the clairvoyant bound and against the simulation.

    just bench pilots real                       # every arm and workload under d3f3, look-ahead under d2f2 too
    just bench pilots real --arms look-ahead --workloads W3 --seeds 1

Real pilots on three hosts of four (as names: the machine is one), files of 7 MB, payloads that sleep instead of computing. Transfers that fail are tried again by the pilots. Each
run measures what its jobs cost beside computing and writing; with that and the same luck the simulation says how long it should have taken.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from bench.harness import keep
from bench.pilots.arms import ARMS, Arm
from bench.pilots.bound import clairvoyant
from bench.pilots.desk import colocate
from bench.pilots.draws import CONDITIONS, WRITE, Draws
from bench.pilots.draws import Storage as Model
from bench.pilots.real_site import REAL_ARMS, RealArm, RealSite, Storage, real_site
from bench.pilots.simulation import Costs, Simulation
from bench.pilots.storage_server import drawn
from bench.pilots.workloads import Workload, chain, merge, split

HOSTS, SLOTS, PAIRS = 3, 4, 4
FILE = 7_000_000
GOAL, AGREEMENT = 1.15, 0.10
LOOK = 0.05
ORDERS = 40
RETRY = 0.15
"""Mean seconds that a pilot waits after its first failed try; twice as long after each further one."""
PAYLOAD = 'cat in* > /dev/null 2>&1; sleep "$FORESTAY_PARAM_SECONDS"; head -c {size} /dev/urandom > "out-$FORESTAY_PARAM_NUMBER.bin"'
MADE = {"W1": chain, "W2": split, "W3": merge}


def small(name: str) -> Workload:
    """A tenth of the paper's workload."""
    return replace(MADE[name](1, PAIRS), size=FILE)


@dataclass(frozen=True)
class RealLuck(Draws):
    """The luck of the real storage element, for the simulation: by file and number of the access, as the element draws it."""

    workload: Workload | None = None
    counts: Counter[str] | None = None
    luck: int = 1
    """The seed of computing and storage; `seed` is that of the order in which pilots come."""

    def compute(self, job: int, mean: float | None = None) -> float:
        return Draws(self.luck, self.storage, self.computing, self.spread).compute(job, mean)

    def access(self, job: int, what: int, again: int, size: int) -> tuple[float, bool]:
        assert self.workload is not None
        assert self.counts is not None
        way, file = ("PUT", job) if what == WRITE else ("GET", self.workload.reads(job)[what - 2])
        name = f"out-{file}.bin"
        if way == "GET":  # several jobs may read it
            again = self.counts[name]
            self.counts[name] += 1
        storage = self.storage
        longer, well = drawn(self.luck, way, name, again, storage.delay * self.computing, storage.failure, self.spread)
        return longer + size / storage.rate, well

    def until_well(self, job: int, what: int, size: int) -> tuple[float, int]:
        total, again, wait = 0.0, 0, RETRY
        while True:
            took, well = self.access(job, what, again, size)
            total += took
            again += 1
            if well:
                return total, again
            total += wait
            wait *= 2


@dataclass(slots=True)
class RealOutcome:
    """What one run came to, and what was expected."""

    workload: str
    condition: str
    arm: str
    seed: int
    makespan: float
    bound: float
    expected: float
    """By the simulation, with the same luck and what the machine added in this run: the median of several orders in which pilots may come."""
    least: float
    most: float
    """By the luckiest and the unluckiest of these orders."""
    claim: float
    """Seconds that a job took beside computing and writing: claim, start, end."""
    release: float
    """Seconds from the end of a job to the submission of those that read its file."""
    reads: int = 0
    storage_reads: int = 0
    failed_accesses: int = 0
    load: float = 0.0

    @property
    def over_bound(self) -> float:
        return self.makespan / self.bound

    @property
    def off(self) -> float:
        """How far the run is outside of what the simulation holds possible, as a share of it."""
        if self.makespan > self.most:
            return self.makespan / self.most - 1.0
        return min(0.0, self.makespan / self.least - 1.0)


def luck_of(workload: Workload, condition: str, seed: int, computing: float, order: int = 1) -> RealLuck:
    known = CONDITIONS[condition]
    # A local read is a hard link, and the bound counts it as nothing.
    storage = Model(known.delay if condition != "d1f1" else 0.0, known.failure, rate=200e6, local=1e12, peer=200e6)
    return RealLuck(order, storage, computing, workload=workload, counts=Counter(), luck=seed)


async def run(arm: RealArm, workload: Workload, condition: str, seed: int, computing: float) -> RealOutcome:
    """One run on a site of its own."""
    luck = luck_of(workload, condition, seed, computing)
    storage = Storage(luck.storage.delay * computing, luck.storage.failure, seed=seed)
    bound = clairvoyant(workload, luck, HOSTS * SLOTS).synchronous
    async with real_site(arm, storage, hosts=HOSTS, slots=SLOTS) as site:
        since = time.monotonic()
        names = await _play(site, workload, luck)
        makespan = time.monotonic() - since
        counts = await site.counts()
        costs = await _costs(site, workload, luck, names)
    data = expected(arm.name, workload, condition, seed, computing, costs)
    reads = sum(len(workload.reads(job)) for job in range(workload.jobs))
    return RealOutcome(
        workload.name, condition, arm.name, seed, round(makespan, 3), round(bound, 3),
        reads=reads,
        storage_reads=counts.get("GET", 0),
        failed_accesses=counts.get("failed GET", 0) + counts.get("failed PUT", 0),
        load=round(os.getloadavg()[0], 1),
        claim=round(costs.claim, 3),
        release=round(costs.release, 3),
        expected=round(statistics.median(data), 3), least=round(data[0], 3), most=round(data[-1], 3),
    )  # fmt: skip


async def _costs(site: RealSite, workload: Workload, luck: RealLuck, names: dict[int, str]) -> Costs:
    """What the machine added in a run: to a job beside computing and writing, by those of the first step, and between an end and the readers' submission."""
    submitted, ended = {}, {}
    for job, name in names.items():
        story = (await site.client.get(f"/v1/jobs/{name}/story")).json()["story"]
        submitted[job] = _seconds(story[0])
        ended[job] = max(_seconds(line) for line in story if line["event"] == "complete")
    first = workload.steps[0]
    added = [
        ended[job] - submitted[job] - round(luck.compute(job), 3) - luck.until_well(job, WRITE, workload.size)[0]
        for job in first
    ]
    waits = [submitted[job] - max(ended[file] for file in workload.reads(job)) for job in names if workload.reads(job)]
    return Costs(claim=max(0.0, statistics.fmean(added)), release=max(0.0, statistics.fmean(waits)))


def _seconds(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["at"]).timestamp()


async def _play(site: RealSite, workload: Workload, luck: Draws) -> dict[int, str]:
    """Submit jobs as their data appear, until the last has ended."""
    names: dict[int, str] = {}
    numbers: dict[str, int] = {}

    async def send(jobs: list[int]) -> None:
        body = _body(jobs, workload, luck, names)
        for job, other_job in zip(jobs, (await site.post("/v1/jobs", body))["jobs"], strict=True):
            names[job], numbers[other_job["id"]] = other_job["id"], job

    await send([job for job in range(workload.jobs) if not workload.reads(job)])
    ended: set[int] = set()
    while len(ended) < workload.jobs:
        ended = {numbers[name] for name in await site.completed() if name in numbers}
        ready = [
            job
            for job in range(workload.jobs)
            if job not in names and workload.reads(job) and all(file in ended for file in workload.reads(job))
        ]
        if ready:
            await send(ready)
        else:
            await asyncio.sleep(LOOK)
    return names


def _body(jobs: list[int], workload: Workload, luck: Draws, names: dict[int, str]) -> dict[str, Any]:
    many = len(workload.reads(jobs[0]))
    together = [colocate(workload, job, SLOTS) for job in jobs]
    first = together[0]
    assert first is not None
    specification = {
        "name": workload.name,
        "command": ["sh", "-c", PAYLOAD.format(size=workload.size)],
        "inputs": [{"name": f"in{at}", "source": f"job:{{from{at}}}/out-{{file{at}}}.bin"} for at in range(many)],
        "outputs": ["out-*.bin"],
        "colocate": {"key": "m{colocate}", "room": first.room, "of": first.of},
    }
    given_jobs = []
    for job, colocation in zip(jobs, together, strict=True):
        assert colocation is not None
        parameters: dict[str, object] = {
            "number": job,
            "seconds": round(luck.compute(job), 3),
            "colocate": colocation.key,
        }
        for at, file in enumerate(workload.reads(job)):
            parameters |= {f"from{at}": names[file], f"file{at}": file}
        given_jobs.append({"parameters": parameters})
    return {"specification": specification, "jobs": given_jobs}


def expected(arm: str, workload: Workload, condition: str, seed: int, computing: float, costs: Costs) -> list[float]:
    """What the simulation says of a run, with what was measured of the machine, for several orders in which pilots may come; sorted."""
    model: Arm = replace(ARMS[arm], barrier=False, poll=0.0, resubmit=0.0, restage=True, parallel=True)
    return sorted(
        Simulation(
            workload, luck_of(workload, condition, seed, computing, order), model, hosts=HOSTS, slots=SLOTS, costs=costs
        ).run().makespan
        for order in range(ORDERS)
    )  # fmt: skip


async def measure(args: argparse.Namespace) -> bool:
    """All runs that were asked for; whether they keep to the goals."""
    outcomes: list[RealOutcome] = []
    wanted = [
        (arm, name, condition)
        for condition in args.conditions.split(",")
        for name in args.workloads.split(",")
        for arm in args.arms.split(",")
        if condition == "d3f3" or arm == "look-ahead"
    ]
    for seed in range(1, args.seeds + 1):
        for arm, name, condition in wanted:
            workload = small(name)
            outcome = await run(REAL_ARMS[arm], workload, condition, seed, args.computing)
            outcomes.append(outcome)
            print(
                f"  {name} {condition} {arm:<11} seed {seed}: {outcome.makespan:6.2f} s, × {outcome.over_bound:.3f} of the bound, expected {outcome.expected:.2f} s ({outcome.least:.2f} to {outcome.most:.2f})"
                f" ({outcome.off:+.1%}, {outcome.claim * 1000:.0f} ms a job); {outcome.storage_reads} of {outcome.reads} reads from storage, {outcome.failed_accesses} failed accesses (load {outcome.load})",
                file=sys.stderr,
            )
    ours = [outcome for outcome in outcomes if outcome.arm == "look-ahead"]
    figures = {
        "pilots": HOSTS * SLOTS, "hosts": HOSTS, "file": FILE, "computing": args.computing,
        "worst off the simulation": round(max(abs(real_outcome.off) for real_outcome in outcomes), 3),
        "median off the simulation": round(statistics.median(abs(real_outcome.off) for real_outcome in outcomes), 3),
        "rows": [asdict(real_outcome) for real_outcome in outcomes],
    }  # fmt: skip
    if not args.no_keep:
        keep(args.name, [], figures)
    print({name: value for name, value in figures.items() if name != "rows"})
    good = all(outcome.over_bound <= GOAL and outcome.storage_reads == 0 for outcome in ours)
    return good and all(abs(outcome.off) <= AGREEMENT for outcome in outcomes)
