"""Warm functions: calls a second through the executor, on a real server and pilot, beside other executors.

    just bench executor --rounds 7
    just bench executor --peers parsl,dask,celery,dbos --rounds 7      # each is fetched into an environment of its own
    just bench executor --peers parsl,dask,celery,dbos --calls 100000 --rounds 1 --within 900 --name executor_100000
    just bench executor --peers parsl,dask,celery,dbos --seconds 0.1 --calls 100 --rounds 3 --name executor_naps

Forestay stores every call and its result, and so does DBOS (on PostgreSQL, with Forestay on PostgreSQL beside it); Parsl, Dask and Celery (on a Redis that keeps
nothing on disk) have theirs in memory. Two workers each. The arms take turns, in another order each round. Some arms are there for honesty: a job for each call, which may be tried
again (`retried`), with a request for each too (`one each`), a store on a disk that is memory (`not durable`), and, by `--seconds`, tasks of a length at which all should be alike.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from unittest import mock

from tests.unit.apps.server.processes import Processes, processes
from tests.unit.apps.server.running import Domain

from bench.harness import Run, keep, leave, paired, pressure
from bench.peers.calls import check, nap, plus
from bench.peers.peer import Peer, TooLong
from bench.whole_site import cpu_of, new_database
from forestay.client import Executor, ForestayClient
from forestay.client.executor import executor as executors

WORKERS = 2
GOAL = 3.0
OWN = "forestay"
ON_POSTGRES, NOT_DURABLE = "forestay on postgres", "forestay, not durable"
RETRIED, ONE_EACH = "forestay, retried", "forestay, one each"
PEERS = ("parsl", "dask", "celery", "dbos")
LIKE = {"dbos": ON_POSTGRES}
"""The arm of ours that a peer is held against, where it is not the first."""


class Arm:
    """One executor that is measured."""

    def __init__(
        self, name: str, mapped: Callable[[int, float], float], cpu: Callable[[], float], share: int = 1
    ) -> None:
        self.name, self.mapped, self.cpu, self.share = name, mapped, cpu, share

    def run(self, calls: int, seconds: float) -> Run:
        calls = max(1, calls // self.share)
        before = self.cpu()
        took = self.mapped(calls, seconds)
        spent = max(0.0, self.cpu() - before)
        run = Run(self.name, calls, took, {"all": spent}, pressure(), round(os.getloadavg()[0], 1))
        if seconds:
            run.facts["utilisation"] = calls * seconds / WORKERS / took
        text = f", utilisation {run.facts['utilisation']:.3f}" if seconds else ""
        print(
            f"{self.name}: {run.rate:.0f} calls/s, {run.cpu_each * 1e3:.2f} ms of CPU each{text}, load {run.load}",
            flush=True,
        )
        return run


@contextmanager
def pool_of(server: str, token: str, max_attempts: int = 1) -> Iterator[Callable[[int, float], float]]:
    with ForestayClient(server, token) as client, Executor(client, max_attempts=max_attempts) as pool:

        def mapped(calls: int, seconds: float) -> float:
            since = time.perf_counter()
            results = pool.map(nap, [seconds] * calls) if seconds else pool.map(plus, range(calls))
            check(results, calls, seconds)
            return time.perf_counter() - since

        yield mapped


def one_each(mapped: Callable[[int, float], float]) -> Callable[[int, float], float]:
    """The same with one call in each request; its executor is one whose calls share no job."""

    def alone(calls: int, seconds: float) -> float:
        with mock.patch.object(executors, "MOST_IN_A_REQUEST", 1):
            return mapped(calls, seconds)

    return alone


@asynccontextmanager
async def scenario(store: str, folder: Path) -> AsyncIterator[tuple[Processes, str, str]]:
    """A server and a pilot of two slots on a store; with where it is, and a token for it."""
    domain = Domain(store, folder)
    async with processes(domain, folder, lease=60) as running:
        server = await running.server()
        running.pilot("bench", server, slots=WORKERS)
        yield running, server.url, domain.token("submitter", tenant="bench", seconds=86_400)


def _spent(running: Processes) -> Callable[[], float]:
    """Of server and pilot with all they started, and of this process, which is the client."""
    return lambda: sum(cpu_of(started.process.pid) for started in running.started) + time.process_time()


@asynccontextmanager
async def arms_of(asked: argparse.Namespace) -> AsyncIterator[list[Arm]]:
    """Everything that takes turns, running."""
    peers = [name for name in asked.peers.split(",") if name]
    async with AsyncExitStack() as stack:

        async def ours(name: str, store: str, folder: Path, max_attempts: int = 1) -> tuple[Processes, str, str]:
            running, url, token = await stack.enter_async_context(
                scenario(store or f"sqlite:///{folder}/jobs.db", folder)
            )
            mapped = stack.enter_context(pool_of(url, token, max_attempts=max_attempts))
            arms.append(Arm(name, mapped, _spent(running)))
            return running, url, token

        def folder(place: str | None = None) -> Path:
            made = Path(tempfile.mkdtemp(prefix="forestay-bench-", dir=place))
            stack.callback(shutil.rmtree, made, ignore_errors=True)
            return made

        arms: list[Arm] = []
        running, url, token = await ours(OWN, asked.store, folder())
        if asked.honest:
            # A call that may be tried again shares its job with no other.
            mapped = stack.enter_context(pool_of(url, token, max_attempts=2))
            arms.append(Arm(RETRIED, mapped, _spent(running)))
            arms.append(Arm(ONE_EACH, one_each(mapped), _spent(running), share=10))  # slow: a tenth of the calls
            await ours(NOT_DURABLE, "", folder("/dev/shm"))  # noqa: S108 - a disk that is memory is what is wanted
        if "dbos" in peers:
            await ours(ON_POSTGRES, await stack.enter_async_context(new_database()), folder())
        for name in peers:
            words = [await stack.enter_async_context(new_database())] if name == "dbos" else []
            peer = stack.enter_context(Peer(name, f"{name}_calls", str(WORKERS), *words))
            arms.append(Arm(name, _asking(peer, asked.within), peer.cpu))
        yield arms


def _asking(peer: Peer, within: float) -> Callable[[int, float], float]:
    return lambda calls, seconds: float(peer.ask("map", calls, seconds, within=within))


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default="", help=f"of {','.join(PEERS)}")
    parser.add_argument("--honest", action="store_true", help="with the arms that show what bundles and the disk cost")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long each call takes; nothing unless given")
    parser.add_argument(
        "--within", type=float, default=600.0, help="seconds after which a peer is no longer waited for"
    )
    parser.add_argument("--store", default="", help="a store's URL; a new SQLite file unless named")
    parser.add_argument("--name", default="executor", help="of the result")
    asked = parser.parse_args()
    async with arms_of(asked) as arms:
        runs, late = await asyncio.to_thread(measure, asked, arms)
    report(asked, runs, late)


def measure(asked: argparse.Namespace, arms: list[Arm]) -> tuple[list[Run], dict[str, float]]:
    """All rounds; and which arms were given up, each with how long it was waited for."""
    late: dict[str, float] = {}
    runs: list[Run] = []
    for arm in arms:
        arm.run(2 if asked.seconds else min(asked.calls, 500), asked.seconds)  # warm
    for number in range(asked.rounds):
        for place in range(len(arms)):
            arm = arms[(place + number) % len(arms)]
            if arm.name in late:
                continue
            try:
                runs.append(arm.run(asked.calls, asked.seconds))
            except TooLong as error:
                print(error, flush=True)
                late[arm.name] = asked.within
    return runs, late


def report(asked: argparse.Namespace, runs: list[Run], late: dict[str, float]) -> None:
    names = list(dict.fromkeys(run.arm for run in runs))
    rates = {name: [run.rate for run in runs if run.arm == name] for name in names}
    ratios = {
        name: paired(rates[LIKE.get(name, OWN)][: len(each)], each) for name, each in rates.items() if name != OWN
    }
    figures: dict[str, object] = {
        "calls": asked.calls, "seconds": asked.seconds, "workers": WORKERS, "rates": rates, "given up after": late,
        "load": [run.load for run in runs],
        "CPU ms a call": {name: statistics.median(r.cpu_each * 1e3 for r in runs if r.arm == name) for name in names},
        "pressure": {name: statistics.median(r.pressure for r in runs if r.arm == name) for name in names},
    }  # fmt: skip
    if asked.seconds:
        figures["utilisation"] = {
            name: statistics.median(r.facts["utilisation"] for r in runs if r.arm == name) for name in names
        }
    path = keep(
        asked.name, runs, figures | {f"{LIKE.get(name, OWN)} over {name}": ratio for name, ratio in ratios.items()}
    )
    print(f"raw runs in {path}", file=sys.stderr)
    reached = asked.seconds > 0 or all(ratio.low >= GOAL for name, ratio in ratios.items() if name in PEERS)
    text = "".join(f"; {ratio} × {name}, {statistics.median(rates[name]):.0f}" for name, ratio in ratios.items())
    goal = f" (goal ≥ {GOAL:g}): {'reached' if reached else 'not reached'}" if ratios and not asked.seconds else ""
    print(f"executor: {statistics.median(rates[OWN]):.0f} calls/s{text}{goal}")
    leave(reached=reached)


if __name__ == "__main__":
    asyncio.run(main())
