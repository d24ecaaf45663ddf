"""Real runs at a small size, held against the clairvoyant bound and against the simulation.

    just bench pilots real                       # every arm and workload under d3f3, look-ahead under d2f2 too
    just bench pilots real --arms look-ahead --workloads W3 --seeds 1

Real pilots on three hosts of four (as names: the machine is one), files of 7 MB, payloads that sleep instead of computing. Transfers that fail are tried again by the pilots. A
run without delays and failures measures what a job costs beside them; with that and the same luck the simulation says how long each run should take.
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
from typing import Any

from bench.harness import keep
from bench.pilots.arms import ARMS, Arm
from bench.pilots.bound import clairvoyant
from bench.pilots.desk import meet
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
RETRY = 0.15
"""Mean seconds that a pilot waits after its first failed try; twice as long after each further one."""
PAYLOAD = 'cat in* > /dev/null 2>&1; sleep "$HOLDFAST_PARAM_SECONDS"; head -c {size} /dev/urandom > "out-$HOLDFAST_PARAM_NUMBER.bin"'
MADE = {"W1": chain, "W2": split, "W3": merge}


def small(name: str) -> Workload:
    """A tenth of the paper's workload."""
    return replace(MADE[name](1, PAIRS), size=FILE)


@dataclass(frozen=True)
class RealLuck(Draws):
    """The luck of the real storage element, for the simulation: by file and number of the access, as the element draws it."""

    workload: Workload | None = None
    counts: Counter[str] | None = None
    rate: float = 200e6

    def access(self, job: int, what: int, again: int, size: int) -> tuple[float, bool]:
        assert self.workload is not None
        assert self.counts is not None
        way, file = ("PUT", job) if what == WRITE else ("GET", self.workload.reads(job)[what - 2])
        name = f"out-{file}.bin"
        if way == "GET":  # several jobs may read it
            again = self.counts[name]
            self.counts[name] += 1
        storage = self.storage
        longer, well = drawn(self.seed, way, name, again, storage.delay * self.computing, storage.failure, self.spread)
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
    expected: float = 0.0
    """By the simulation."""
    reads: int = 0
    storage_reads: int = 0
    failed_accesses: int = 0
    load: float = 0.0

    @property
    def over_bound(self) -> float:
        return self.makespan / self.bound

    @property
    def off(self) -> float:
        return self.makespan / self.expected - 1.0


def luck_of(workload: Workload, condition: str, seed: int, computing: float) -> RealLuck:
    known = CONDITIONS[condition]
    # A local read is a hard link, and the bound counts it as nothing.
    storage = Model(known.delay if condition != "d1f1" else 0.0, known.failure, rate=200e6, local=1e12, peer=200e6)
    return RealLuck(seed, storage, computing=computing, workload=workload, counts=Counter())


async def run(arm: RealArm, workload: Workload, condition: str, seed: int, computing: float) -> RealOutcome:
    """One run on a site of its own."""
    luck = luck_of(workload, condition, seed, computing)
    storage = Storage(luck.storage.delay * computing, luck.storage.failure, seed=seed)
    bound = clairvoyant(workload, luck, HOSTS * SLOTS).synchronous
    async with real_site(arm, storage, hosts=HOSTS, slots=SLOTS) as site:
        since = time.monotonic()
        await _play(site, workload, luck)
        makespan = time.monotonic() - since
        counts = await site.counts()
    reads = sum(len(workload.reads(job)) for job in range(workload.jobs))
    return RealOutcome(
        workload.name, condition, arm.name, seed, round(makespan, 3), round(bound, 3),
        reads=reads,
        storage_reads=counts.get("GET", 0),
        failed_accesses=counts.get("failed GET", 0) + counts.get("failed PUT", 0),
        load=round(os.getloadavg()[0], 1),
    )  # fmt: skip


async def _play(site: RealSite, workload: Workload, luck: Draws) -> None:
    """Submit jobs as their data appear, until the last has ended."""
    names: dict[int, str] = {}
    numbers: dict[str, int] = {}

    async def send(jobs: list[int]) -> None:
        body = _body(jobs, workload, luck, names)
        for job, told in zip(jobs, (await site.post("/v1/jobs", body))["jobs"], strict=True):
            names[job], numbers[told["id"]] = told["id"], job

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


def _body(jobs: list[int], workload: Workload, luck: Draws, names: dict[int, str]) -> dict[str, Any]:
    many = len(workload.reads(jobs[0]))
    together = [meet(workload, job, SLOTS) for job in jobs]
    first = together[0]
    assert first is not None
    specification = {
        "name": workload.name,
        "command": ["sh", "-c", PAYLOAD.format(size=workload.size)],
        "inputs": [{"name": f"in{at}", "source": f"job:{{from{at}}}/out-{{file{at}}}.bin"} for at in range(many)],
        "outputs": ["out-*.bin"],
        "meet": {"key": "m{meet}", "room": first.room, "of": first.of},
    }
    given = []
    for job, meeting in zip(jobs, together, strict=True):
        assert meeting is not None
        parameters: dict[str, object] = {"number": job, "seconds": round(luck.compute(job), 3), "meet": meeting.key}
        for at, file in enumerate(workload.reads(job)):
            parameters |= {f"from{at}": names[file], f"file{at}": file}
        given.append({"parameters": parameters})
    return {"specification": specification, "jobs": given}


def expected(arm: str, workload: Workload, condition: str, seed: int, computing: float, costs: Costs) -> float:
    """What the simulation says of a run, with what was measured of the machine."""
    model: Arm = replace(ARMS[arm], barrier=False, poll=0.0, resubmit=0.0, restage=True)
    luck = luck_of(workload, condition, seed, computing)
    return Simulation(workload, luck, model, hosts=HOSTS, slots=SLOTS, costs=costs).run().makespan


async def calibrate(computing: float) -> Costs:
    """What a job costs beside computing and delays: from a run of W1 without either delay or failure."""
    workload = small("W1")
    one = await run(REAL_ARMS["look-ahead"], workload, "d1f1", 1, computing)
    each = (one.makespan - one.bound) / 2
    print(f"  calibration: {one.makespan:.2f} s, bound {one.bound:.2f} s, {each * 1000:.0f} ms a job", file=sys.stderr)
    return Costs(claim=max(0.0, each - LOOK / 2), release=LOOK / 2)


async def measure(given: argparse.Namespace) -> bool:
    """All runs that were asked for; whether they keep to the goals."""
    found: list[RealOutcome] = []
    costs = await calibrate(given.computing)
    wanted = [
        (arm, name, condition)
        for condition in given.conditions.split(",")
        for name in given.workloads.split(",")
        for arm in given.arms.split(",")
        if condition == "d3f3" or arm == "look-ahead"
    ]
    for seed in range(1, given.seeds + 1):
        for arm, name, condition in wanted:
            workload = small(name)
            one = await run(REAL_ARMS[arm], workload, condition, seed, given.computing)
            one.expected = round(expected(arm, workload, condition, seed, given.computing, costs), 3)
            found.append(one)
            print(
                f"  {name} {condition} {arm:<11} seed {seed}: {one.makespan:6.2f} s, × {one.over_bound:.3f} of the bound, expected {one.expected:6.2f} s"
                f" ({one.off:+.1%}); {one.storage_reads} of {one.reads} reads from storage, {one.failed_accesses} failed accesses (load {one.load})",
                file=sys.stderr,
            )
    ours = [one for one in found if one.arm == "look-ahead"]
    told = {
        "pilots": HOSTS * SLOTS, "hosts": HOSTS, "file": FILE, "computing": given.computing, "costs": asdict(costs),
        "over bound, look-ahead": round(statistics.median(one.over_bound for one in ours), 3) if ours else None,
        "worst over bound, look-ahead": round(max(one.over_bound for one in ours), 3) if ours else None,
        "worst off the simulation": round(max(abs(one.off) for one in found), 3),
        "median off the simulation": round(statistics.median(abs(one.off) for one in found), 3),
        "rows": [asdict(one) for one in found],
    }  # fmt: skip
    if not given.no_keep:
        keep("pilots_real", [], told)
    print({name: value for name, value in told.items() if name != "rows"})
    good = all(one.over_bound <= GOAL and one.storage_reads == 0 for one in ours)
    return good and all(abs(one.off) <= AGREEMENT for one in found)
