"""Warm functions: calls a second through the executor, on a real server and pilot, beside other executors.

    just bench executor --calls 2000 --rounds 3
    just bench executor --peers parsl,dask     # where these are installed

Holdfast stores every call and its result; the others keep theirs in memory. Two workers each. The arms take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.server.processes import processes
from tests.server.running import Domain

from bench.harness import keep, leave, paired
from holdfast.client import Executor, HoldfastClient

WORKERS = 2
GOAL = 3.0
Mapped = Callable[[int], None]


def plus(number: int) -> int:
    """The function: nothing but the way there and back."""
    return number + 1


def _check(results: list[int], calls: int) -> None:
    assert results == list(range(1, calls + 1))


@contextmanager
def holdfast(server: str, token: str) -> Iterator[Mapped]:
    from bench.executor import plus as named

    with HoldfastClient(server, token) as client, Executor(client) as pool:
        yield lambda calls: _check(list(pool.map(named, range(calls))), calls)


@contextmanager
def parsl() -> Iterator[Mapped]:
    library: Any = importlib.import_module("parsl")
    executors: Any = importlib.import_module("parsl.executors")
    configs: Any = importlib.import_module("parsl.config")
    providers: Any = importlib.import_module("parsl.providers")
    one = executors.HighThroughputExecutor(
        label="htex", max_workers_per_node=WORKERS, address="127.0.0.1", encrypted=False,
        provider=providers.LocalProvider(init_blocks=1, max_blocks=1),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, library.load(configs.Config([one], run_dir=folder)):
        app = library.python_app(plus)

        def mapped(calls: int) -> None:
            _check([future.result() for future in [app(number) for number in range(calls)]], calls)

        yield mapped


@contextmanager
def dask() -> Iterator[Mapped]:
    library: Any = importlib.import_module("distributed")
    with library.LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster:  # noqa: SIM117
        with library.Client(cluster) as client:

            def mapped(calls: int) -> None:
                _check(client.gather(client.map(plus, range(calls), pure=False)), calls)

            yield mapped


PEERS = {"parsl": parsl, "dask": dask}


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default="")
    parser.add_argument("--store", default="", help="a store's URL; a new SQLite file unless named")
    asked = parser.parse_args()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        domain = Domain(asked.store or f"sqlite:///{folder}/jobs.db", folder)
        running = await stack.enter_async_context(processes(domain, folder, lease=60))
        server = await running.server()
        running.pilot("bench", server, slots=WORKERS)
        token = domain.token("submitter", tenant="bench")
        rates = await asyncio.to_thread(_measure, asked, server.url, token)
    report(rates)


def report(rates: dict[str, list[float]]) -> None:
    middle = {name: round(statistics.median(each)) for name, each in rates.items()}
    ratios = {name: paired(rates["holdfast"], each) for name, each in rates.items() if name != "holdfast"}
    path = keep("executor", [], {"rates": rates, **{f"holdfast over {name}": one for name, one in ratios.items()}})
    print(f"raw runs in {path}", file=sys.stderr)
    reached = all(ratio.low >= GOAL for ratio in ratios.values())
    said = "".join(f"; {ratio} × {name}, {middle[name]}" for name, ratio in ratios.items())
    goal = f" (goal ≥ {GOAL:g}): {'reached' if reached else 'not reached'}" if ratios else ""
    print(f"executor: {middle['holdfast']} calls/s{said}{goal}")
    leave(reached=reached)


def _measure(asked: argparse.Namespace, server: str, token: str) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {}
    with ExitStack() as stack:
        arms = {"holdfast": stack.enter_context(holdfast(server, token))}
        for name in filter(None, asked.peers.split(",")):
            arms[name] = stack.enter_context(PEERS[name]())
        for mapped in arms.values():
            mapped(min(asked.calls, 500))  # warm
        for _ in range(asked.rounds):
            for name, mapped in arms.items():
                since = time.perf_counter()
                mapped(asked.calls)
                rate = asked.calls / (time.perf_counter() - since)
                rates.setdefault(name, []).append(rate)
                print(f"{name}: {rate:.0f} calls/s, load {os.getloadavg()[0]:.1f}", flush=True)
    return rates


if __name__ == "__main__":
    asyncio.run(main())
