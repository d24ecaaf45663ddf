"""What one real job costs: a server, a reconciler and a pilot with two slots, each a process of its own, beside a bare spawn loop.

    just bench one_job                                       # SQLite and, where it runs, PostgreSQL
    just bench one_job --seconds 0.1,1 --rounds 3            # and how busy tasks of these lengths keep two slots
    just bench one_job --beside ../before                    # and what the processes of another clone cost in turns with these
    just bench one_job --profile server --stores sqlite      # the budget by step; py-spy is fetched

Jobs are submitted in one request and nothing shares them: each is claimed, started as a process, and completed by itself. The bare loop starts the same program
from two processes by `posix_spawn` and waits for it, on the same two cores; it keeps nothing. The arms take turns, in another order each round. The processor
time of a process is what /proc says of it, for the pilot with its guard and the payloads, whose time the bare loop has too; the end is seen in the store itself,
so that asking costs the server nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from tests.unit.apps.server.processes import Processes, Started, processes
from tests.unit.apps.server.running import Domain

from bench.harness import Run, keep, leave, paired, pressure
from bench.whole_site import cpu_of, new_database
from forestay.adapters.sql.job_store import SqlJobStore
from forestay.domain.jobs.job_document import State
from forestay.ports.jobs.job_store import JobQuery

SLOTS = 2
BARE = "bare loop"
MOST_SERVER_MS = 2.0
LEAST_RATE = 0.35
MOST_PILOT = 1.5
PATIENCE = 900.0
IDLE = 5.0
LOOK = 0.05
STARTING = 0.2
"""CPU-seconds in a second: more than any of the processes uses without jobs."""
SPAWNS = """
import os, sys, time
many, words = int(sys.argv[1]), sys.argv[2:]
since = time.perf_counter()
for _ in range(many):
    os.waitpid(os.posix_spawnp(words[0], words, os.environ), 0)
times = os.times()
print(time.perf_counter() - since, sum(times[:4]))
"""


@dataclass(slots=True)
class Arm:
    """One store with the processes that run on it."""

    name: str
    store: SqlJobStore
    client: httpx.AsyncClient
    running: dict[str, Started]
    done: int = 0
    idle: dict[str, float] = field(default_factory=dict)
    """CPU-seconds a second of each process without jobs."""

    def cpu(self) -> dict[str, float]:
        return {name: cpu_of(started.process.pid) for name, started in self.running.items()}

    async def warm(self, jobs: int) -> None:
        """Run some jobs, wait until no process is still at its start, and see what each uses without any."""
        await self.run(max(20, jobs // 5))
        before, starting = self.cpu(), True
        while starting:
            await asyncio.sleep(1.0)
            after = self.cpu()
            starting = any(used - before[name] > STARTING for name, used in after.items())
            before = after
        since = time.perf_counter()
        await asyncio.sleep(IDLE)
        took = time.perf_counter() - since
        self.idle = {name: (used - before[name]) / took for name, used in self.cpu().items()}

    async def run(self, jobs: int, seconds: float = 0.0) -> Run:
        """Submit so many jobs in one request and wait for all of them."""
        before = self.cpu()
        since = time.perf_counter()
        command = ["sleep", f"{seconds:g}"] if seconds else ["true"]
        body = {"specification": {"name": "no-op", "command": command}, "jobs": [{}] * jobs}
        (await self.client.post("/v1/jobs", json=body)).raise_for_status()
        self.done += jobs
        while await self._completed() < self.done:
            if time.perf_counter() - since > PATIENCE:
                raise SystemExit(f"{self.name}: not all of {jobs} jobs have completed after {PATIENCE:g} s")
            await asyncio.sleep(LOOK)
        took = time.perf_counter() - since
        cpu = {name: used - before[name] for name, used in self.cpu().items()}
        run = Run(self.name, jobs, took, cpu, pressure(), round(os.getloadavg()[0], 1))
        # What background loops use is by the second; on a machine with other work a job takes more seconds, and no more work.
        idle = sum(self.idle.get(name, 0.0) for name in ("server", "reconciler"))
        run.facts = {"idle, ms a job": 1e3 * idle * took / jobs}
        if seconds:
            run.facts |= {"seconds": seconds, "utilisation": jobs * seconds / SLOTS / took}
        _show(run)
        return run

    async def _completed(self) -> int:
        states = await self.store.count(JobQuery(states=frozenset({State.COMPLETED})), by="state")
        return sum(states.values())


def _show(run: Run) -> None:
    spent = ", ".join(f"{name} {used / run.operations * 1e3:.2f}" for name, used in run.cpu.items())
    busy = f", utilisation {run.facts['utilisation']:.3f}" if "utilisation" in run.facts else ""
    print(f"  {run.arm}: {run.rate:.1f} jobs/s, ms of CPU a job: {spent}{busy} (load {run.load})", flush=True)


def bare(jobs: int) -> Run:
    """The program alone, from two processes; their own start is not counted, their waiting is."""
    words = [sys.executable, "-I", "-S", "-c", SPAWNS, str(jobs // SLOTS), "true"]
    loops = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(SLOTS)]
    answers = [[float(word) for word in loop.communicate()[0].split()] for loop in loops]
    started = jobs // SLOTS * SLOTS
    cpu = {"loop": sum(spent for _, spent in answers)}
    run = Run(BARE, started, max(took for took, _ in answers), cpu, pressure(), round(os.getloadavg()[0], 1))
    _show(run)
    return run


@asynccontextmanager
async def arms_of(stores: Sequence[str], beside: Path | None = None) -> AsyncIterator[list[Arm]]:
    """Each store with its own processes, and once more with those of another clone of the repository."""
    async with AsyncExitStack() as stack:
        arms = []
        for name, clone in (
            (store, clone) for store in stores for clone in (None, beside)[: 1 if beside is None else 2]
        ):
            folder = Path(tempfile.mkdtemp(prefix="forestay-bench-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            postgres = name == "postgres"
            url = await stack.enter_async_context(new_database()) if postgres else f"sqlite:///{folder}/jobs.db"
            running = await stack.enter_async_context(processes(Domain(url, folder), folder, lease=60))
            if clone is not None:
                running.environment["PYTHONPATH"] = str(clone.resolve() / "src")
            arms.append(await _arm(stack, name if clone is None else f"{name}, {clone.name}", url, running))
        yield arms


async def _arm(stack: AsyncExitStack, name: str, url: str, running: Processes) -> Arm:
    server = await running.server()
    started = {"server": server, "reconciler": running.reconciler()}
    started["pilot"] = running.pilot("bench", server, slots=SLOTS)
    store = SqlJobStore(url, connections=1)
    await store.open()
    stack.push_async_callback(store.close)
    token = running.domain.token("submitter", tenant="bench", seconds=86_400)
    headers = {"Authorization": f"Bearer {token}"}
    client = await stack.enter_async_context(httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60))
    return Arm(name, store, client, started)


async def measure(asked: argparse.Namespace, arms: list[Arm]) -> list[Run]:
    """All rounds, the arms in turns."""
    for arm in arms:
        await arm.warm(asked.jobs)
    runs: list[Run] = []
    for number in range(asked.rounds):
        for place in range(len(arms) + 1):
            turn = (place + number) % (len(arms) + 1)
            runs.append(
                await arms[turn].run(asked.jobs) if turn < len(arms) else await asyncio.to_thread(bare, asked.jobs)
            )
    for seconds in asked.seconds:
        many = max(SLOTS, int(SLOTS * asked.busy / seconds))
        runs += [await arm.run(many, seconds) for _ in range(asked.rounds) for arm in arms]
    return runs


# -- the budget by step --------------------------------------------------------------------------------------------

STEPS: dict[str, tuple[tuple[str, str], ...]] = {
    "server": (
        ("store: driver and its threads", r"sqlite3|aiosqlite|asyncpg"),
        ("store: SQLAlchemy", r"sqlalchemy|greenlet"),
        ("store: rows and documents", r"adapters/sql|formats/jobs/job_json"),
        ("matching, claim, completion", r"services/|domain/"),
        ("validation", r"pydantic"),
        ("our routes", r"apps/server/(pilots|jobs)"),
        ("limits, tokens, bodies", r"apps/server/http|identity|jwt|joserfc|json/"),
        ("FastAPI, Starlette, contexts", r"fastapi|starlette|anyio|contextlib|exceptiongroup"),
        ("uvicorn", r"uvicorn|httptools"),
        ("metrics", r"prometheus"),
        ("event loop", r"uvloop|asyncio|threading|concurrent"),
    ),
    "pilot": (
        ("guard and payloads", r"process/guard\.py|payload_start|guarded_payload|process_tree|kernel_kills"),
        ("guard link", r"guard_link"),
        ("HTTP", r"server_link|http/client|socket|ssl|email/"),
        ("completion on disk", r"completion_queue"),
        ("claims", r"claims/claim_loop|held_claims"),
        ("slot, folders, payload", r"claims/slot|work_folder|process/"),
        ("threads", r"threading|queue"),
    ),
}
"""The steps of a process by the files in a stack; the innermost file that names a step decides."""


def step_of(stack: str, steps: Sequence[tuple[str, str]]) -> str:
    """The step that a collapsed stack belongs to."""
    for frame in reversed(stack.split(";")):
        for name, words in steps:
            if re.search(words, frame):
                return name
    return "other"


async def profile(what: str, arm: Arm, jobs: int, kept: Path | None) -> None:
    """Sample one process while jobs run, and print its share by step.

    Only what holds the interpreter's lock is sampled, since a thread that waits looks like one at work; the shares are of that.
    """
    pid = arm.running[what].process.pid
    with tempfile.TemporaryDirectory() as folder:
        path = kept or Path(folder) / "stacks"
        words = [
            "uv",
            "tool",
            "run",
            "py-spy",
            "record",
            "--pid",
            str(pid),
            "--format",
            "raw",
            "--rate",
            "250",
            "--gil",
        ]
        words += ["--subprocesses", "--full-filenames", "--output", str(path), "--duration", "100000"]
        spy = await asyncio.create_subprocess_exec(*words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await asyncio.sleep(3.0)  # until it is attached
        run = await arm.run(jobs)
        spy.send_signal(signal.SIGINT)
        await spy.wait()
        samples: Counter[str] = Counter()
        for line in path.read_text().splitlines():
            stack, _, count = line.rpartition(" ")
            samples[step_of(stack, STEPS[what if what in STEPS else "server"])] += int(count)
    total = sum(samples.values()) or 1
    spent = run.cpu[what] / run.operations * 1e3
    print(f"{what} on {arm.name}: {spent:.2f} ms of CPU a job while sampled")
    for name, many in samples.most_common():
        print(f"  {name:<34} {many / total:>6.1%}  {spent * many / total:.2f} ms")


# -- what came out -------------------------------------------------------------------------------------------------


def report(asked: argparse.Namespace, runs: Sequence[Run]) -> bool:
    """Keep and print the figures; whether all goals are reached."""
    loops = [run for run in runs if run.arm == BARE]
    figures: dict[str, object] = {"jobs": asked.jobs, "bare loop/s": statistics.median(run.rate for run in loops)}
    reached = True
    for name in dict.fromkeys(run.arm for run in runs if run.arm != BARE):
        mine = [run for run in runs if run.arm == name and "seconds" not in run.facts]
        server = [1e3 * (run.cpu["server"] + run.cpu["reconciler"]) / run.operations for run in mine]
        rate = paired([run.rate for run in mine], [run.rate for run in loops])
        pilot = paired([run.cpu["pilot"] / run.operations for run in mine], [run.cpu_each for run in loops])
        background = statistics.median(run.facts["idle, ms a job"] for run in mine)
        by_process = {
            part: statistics.median(1e3 * run.cpu[part] / run.operations for run in mine) for part in mine[0].cpu
        }
        figures[name] = {
            "server and reconciler, ms a job": statistics.median(server),
            "of all runs": [min(server), max(server)],
            "of that by background loops, as without jobs": background,
            "ms a job": by_process,
            "jobs/s": statistics.median(run.rate for run in mine),
        }
        figures |= {f"{name}, rate over bare loop": rate, f"{name}, pilot over bare loop": pilot}
        print(
            f"one_job on {name}: server and reconciler {statistics.median(server):.2f} ms a job ({min(server):.2f} to "
            f"{max(server):.2f}; {background:.2f} of it by background loops; goal ≤ {MOST_SERVER_MS:g}); {rate} of the bare loop's rate (goal ≥ {LEAST_RATE:g}); "
            f"pilot and payloads {pilot} × the loop's CPU (goal ≤ {MOST_PILOT:g})"
        )
        reached &= max(server) <= MOST_SERVER_MS and rate.low >= LEAST_RATE and pilot.high <= MOST_PILOT
        for seconds in asked.seconds:
            busy = [run.facts["utilisation"] for run in runs if run.arm == name and run.facts.get("seconds") == seconds]
            figures[f"{name}, utilisation by {seconds:g} s"] = busy
            print(f"  tasks of {seconds:g} s keep {SLOTS} slots busy {statistics.median(busy):.3f} of the time")
    path = keep(asked.name, runs, figures)
    print(f"raw runs in {path}", file=sys.stderr)
    return reached


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stores", default="", help="sqlite, postgres; both unless named, where the second runs")
    parser.add_argument(
        "--beside", type=Path, help="another clone of the repository, whose processes take turns with these"
    )
    parser.add_argument("--seconds", default="", help="lengths of tasks whose utilisation is measured too")
    parser.add_argument("--busy", type=float, default=10.0, help="seconds for which such tasks fill the slots")
    parser.add_argument("--profile", default="", help="sample this process: server, reconciler or pilot")
    parser.add_argument("--stacks", type=Path, help="where the sampled stacks go")
    parser.add_argument("--name", default="one_job", help="of the result")
    asked = parser.parse_args()
    asked.seconds = [float(word) for word in asked.seconds.split(",") if word]
    stores = asked.stores or ("sqlite,postgres" if os.environ.get("FORESTAY_TEST_POSTGRES") else "sqlite")
    async with arms_of(stores.split(","), asked.beside) as arms:
        if asked.profile:
            for arm in arms:
                await arm.warm(asked.jobs)
                await profile(asked.profile, arm, asked.jobs, asked.stacks)
            return
        runs = await measure(asked, arms)
    leave(reached=report(asked, runs))


if __name__ == "__main__":
    asyncio.run(main())
