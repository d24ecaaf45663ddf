"""The sbatch shim beside the bare command with Forestay killed: what a call costs more, whether anything is different, and what is learnt afterwards.

    just bench shim
    just bench shim --calls 200

A server and an acting watcher run, and are killed with -9. Then sbatch is called bare and through the shim in turns, call by call; every job is submitted held, so that only
sbatch is measured. Output is compared word for word, each id must follow on the one before, and every job must be in Slurm's queue. Then some of the shim's jobs
are let go and fail, the others are cancelled, and Forestay is started again: it must find every job of the shim's in the spool, settle it, and have an incident of each that failed.
Status calls are measured in the same way as if a watcher acted, and so is a sacct that prints 10,000 rows, of which one in twenty failed; the rows come from a file, so that what is
measured is the shim alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from tests.unit.apps.server.processes import Processes, Started, processes
from tests.unit.apps.server.running import Domain, until

from bench.harness import keep, leave

SHIM = Path(__file__).parent.parent / "shim" / "forestay-shim"
CPU_GOAL, WALL_GOAL = 2.5, 20.0
STATUS_GOAL = 1.5
STATUS = (("squeue",), ("squeue", "-h", "-o", "%i %T"), ("sacct", "-X", "-n", "-P", "-o", "JobID,State"))
"""What engines ask; while a watcher acts, so that the shim looks at each line."""
ROWS = 10_000
JOB = ("--hold", "--mem=10", "-o", "/dev/null", "--wrap", "exit 3")
FAILING = 20
"""Jobs that fail while nobody watches."""
TENANT = "bench"


class Call(NamedTuple):
    """One sbatch."""

    wall: float
    """Milliseconds."""
    cpu: float
    output: str

    @property
    def job(self) -> int:
        return int(self.output.split()[-1])


def call(known: dict[str, str], words: tuple[str, ...] = ("sbatch", *JOB)) -> Call:
    before, since = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    result = subprocess.run(words, env=known, capture_output=True, text=True, check=True)
    wall, after = time.perf_counter() - since, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Call(wall * 1000, cpu * 1000, result.stdout + result.stderr)


def slurm(*words: str) -> str:
    """What a command says."""
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=1000)
    asked = parser.parse_args()
    if "SLURM_CONF" not in os.environ:
        sys.exit('SLURM_CONF is not set: start Slurm (scripts/servers start slurm), then eval "$(scripts/servers env)"')
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        slurm(str(SHIM), "--install", f"{folder}/bin")
        domain = Domain(f"sqlite:///{folder}/jobs.db", folder)
        running = await stack.enter_async_context(processes(domain, folder))
        for started in await start(running, folder / "spool"):
            started.kill()
        calls = measure(asked.calls, folder)
        status = measure_status(max(10, asked.calls // 20), folder)
        long = measure_listing(20, folder)
        jobs = {arm: [other_call.job for other_call in call] for arm, call in calls.items()}
        queued = {int(part) for part in slurm("squeue", "-h", "-o", "%i").split()}
        spooled = {int(path.name.partition(".")[0]) for path in (folder / "spool" / "new").iterdir()}
        failing = jobs["shim"][:: max(1, asked.calls // FAILING)][:FAILING]
        await end(failing, sorted({*jobs["bare"], *jobs["shim"]} - {*failing}))
        since = time.monotonic()
        server, _ = await start(running, folder / "spool")
        await until(lambda: settled(folder / "spool"), "every job to be settled", 300)
        learnt = time.monotonic() - since
        body = (await running.client(server, "viewer", tenant=TENANT).get("/v1/incidents?limit=500")).json()
    incidents = {int(incident["task"].rpartition(":")[2]) for incident in body["incidents"]}
    report(asked.calls, calls, jobs, queued, spooled, learnt, set(failing), incidents, status, long)


async def start(running: Processes, spool: Path) -> tuple[Started, Started]:
    """A server, and a watcher that acts."""
    server = await running.server()
    watcher = running.watcher(TENANT, server, spool, "--act", "--every", "1")
    await until(lambda: asyncio.to_thread((spool / "watch").exists), "the watcher's word", 60)
    return server, watcher


def measure(count: int, folder: Path) -> dict[str, list[Call]]:
    bare = dict(os.environ)
    through = bare | {"PATH": f"{folder / 'bin'}:{bare['PATH']}", "FORESTAY_SHIM_SPOOL": str(folder / "spool")}
    arms: dict[str, list[Call]] = {"bare": [], "shim": []}
    for number in range(count):
        order = (("bare", bare), ("shim", through))
        for arm, known in order if number % 2 else reversed(order):
            arms[arm].append(call(known))
    return arms


def promise(spool: Path) -> None:
    """As a watcher that acts writes it."""
    now = int(time.time())
    (spool / "new").mkdir(parents=True, exist_ok=True)
    (spool / "watch").write_text(f"{now + 3600}\n{now}.000\n180\n")


def measure_status(count: int, folder: Path) -> dict[str, dict[str, float]]:
    """The CPU time of status calls, bare and through the shim."""
    promise(folder / "acting")
    bare = dict(os.environ)
    through = bare | {"PATH": f"{folder / 'bin'}:{bare['PATH']}", "FORESTAY_SHIM_SPOOL": str(folder / "acting")}
    spent = {}
    for words in STATUS:
        pairs = [(call(bare, words).cpu, call(through, words).cpu) for _ in range(count)]
        spent[" ".join(words[:2])] = {"bare": sum(plain for plain, _ in pairs), "shim": sum(shim for _, shim in pairs)}
    return spent


def measure_listing(count: int, folder: Path) -> float:
    """Milliseconds of CPU that the shim adds to a sacct of many rows."""
    promise(folder / "acting")
    states = ["FAILED", *["COMPLETED"] * 19]
    rows = (f"{100_000 + row}|wrap|main|pilots|1|{states[row % 20]}|0:0\n" for row in range(ROWS))
    (folder / "rows").write_text("".join(rows))
    real = folder / "stand-in"
    real.mkdir()
    (real / "sacct").write_text(f"#!/bin/sh\nexec cat {folder}/rows\n")
    (real / "sacct").chmod(0o755)
    through = dict(os.environ) | {"FORESTAY_SHIM_REAL": str(real), "FORESTAY_SHIM_SPOOL": str(folder / "acting")}
    pairs = []
    for _ in range(count):
        before, after = (call(through, (str(place / "sacct"), "-X", "-n", "-P")) for place in (real, folder / "bin"))
        if before.output != after.output:
            sys.exit("a listing through the shim is another one")
        pairs.append(after.cpu - before.cpu)
    return statistics.fmean(pairs)


async def end(failing: list[int], others: list[int]) -> None:
    """Nobody looks after them meanwhile."""
    for start in range(0, len(others), 500):
        slurm("scancel", *map(str, others[start : start + 500]))
    slurm("scontrol", "release", ",".join(map(str, failing)))
    wanted = ",".join(map(str, failing))

    async def over() -> bool:
        states = await asyncio.to_thread(slurm, "squeue", "-h", "-t", "all", "-j", wanted, "-o", "%T")
        return set(states.split()) == {"FAILED"}

    await until(over, "the jobs that are let go to fail", 120)


async def settled(spool: Path) -> bool:
    return not any((spool / "new").iterdir())


def report(
    count: int,
    calls: dict[str, list[Call]],
    jobs: dict[str, list[int]],
    queued: set[int],
    spooled: set[int],
    learnt: float,
    failing: set[int],
    incidents: set[int],
    spent: dict[str, dict[str, float]],
    long: float,
) -> None:
    every = sorted(jobs["bare"] + jobs["shim"])
    same = all(
        call.output == f"Submitted batch job {call.job}\n" for other_calls in calls.values() for call in other_calls
    )
    in_order = all(job == sorted(job) for job in jobs.values()) and len(set(every)) == 2 * count
    wall = sorted(call.wall - other.wall for call, other in zip(calls["shim"], calls["bare"], strict=True))
    status = {name: each["shim"] / each["bare"] for name, each in spent.items()}
    facts: dict[str, Any] = {
        "calls": count,
        "wall_p50": statistics.median(wall),
        "wall_p99": percentile(calls["shim"]) - percentile(calls["bare"]),
        "paired_p99": wall[len(wall) * 99 // 100],
        "cpu": statistics.fmean(call.cpu for call in calls["shim"])
        - statistics.fmean(call.cpu for call in calls["bare"]),
        "queued": len(queued & set(every)),
        "foreign_ids_between": every[-1] - every[0] + 1 - len(every),
        "spooled": len(spooled & set(jobs["shim"])),
        "incidents": len(incidents & failing),
        "learnt_seconds": learnt,
        "listing_cpu": long,
        "status calls, CPU": spent,
        "load": os.getloadavg()[0],
    }
    print(
        f"{count} calls each with Forestay killed: the shim adds {facts['wall_p50']:.1f} ms (p50) and {facts['wall_p99']:.1f} ms (p99; {facts['paired_p99']:.1f} ms call by call) of wall"
        f" time and {facts['cpu']:.2f} ms of CPU; {facts['queued']} of {2 * count} queued, ids in order: {in_order} ({facts['foreign_ids_between']} of others between), said the"
        f" same: {same}; afterwards all {facts['spooled']} of {count} were learnt from the spool and settled in {learnt:.1f} s, {facts['incidents']} of {len(failing)} that had"
        f" failed are incidents; status calls cost {', '.join(f'{ratio:.2f} times ({name})' for name, ratio in status.items())} the CPU of bare ones; {long:.0f} ms for"
        f" {ROWS} rows; load {facts['load']:.1f}"
    )
    print(f"raw figures in {keep('shim', [], facts)}", file=sys.stderr)
    whole = facts["queued"] == 2 * count and facts["spooled"] == count and same and in_order
    learnt_all = facts["incidents"] == len(failing)
    leave(
        reached=whole
        and learnt_all
        and facts["cpu"] <= CPU_GOAL
        and max(status.values()) <= STATUS_GOAL
        and facts["wall_p99"] <= WALL_GOAL
    )


def percentile(calls: list[Call]) -> float:
    """The 99th of a hundred."""
    return sorted(call.wall for call in calls)[len(calls) * 99 // 100]


if __name__ == "__main__":
    asyncio.run(main())
