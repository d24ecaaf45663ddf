"""Benchmark 6: a worker is lost with its task; how long until the task runs again elsewhere, beside Dask and Parsl.

    just bench lost_pilots                       # Forestay alone
    just bench lost_pilots --peers dask,parsl    # each is fetched into an environment of its own
    just bench lost_pilots --peers dask,parsl --silence 60 --rounds 3 --no-defaults --name lost_pilots_60

Real pilots and workers, two of each, one of them idle. The one that runs the task is lost with everything it started: killed (SIGKILL), or silent (SIGSTOP), as a host is
that hangs or is cut off. Timed is from the signal to the first line of the task's second run. The trials of all systems take turns with equal settings: a lease of ours,
Dask's `worker-ttl` and Parsl's `heartbeat_threshold` of as many seconds. Then once each with the defaults of all, side by side, and no longer waited for than `--within`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from tests.unit.apps.server.processes import Processes, Started, processes
from tests.unit.apps.server.running import Domain, until

from bench.harness import keep, leave, pressure
from bench.peers.peer import Peer
from bench.whole_site import family

SIGNALS = {"killed": signal.SIGKILL, "silent": signal.SIGSTOP}
GOALS = {"killed, seconds": 1.0, "silent, leases": 1.25}
PATIENCE = 120.0
"""Seconds until the task has begun for the first time."""
SETTLES = 20.0
"""Seconds that a server is left alone for after its start: one that was just busy with that doubts what it sees."""
# What the others run as a function (bench/peers/losing.py), as a program.
TASK = 'echo "$(date +%s.%N) $$" >>"$0"; if [ "$(wc -l <"$0")" = 1 ]; then exec sleep 3600; fi'
Trial = Callable[[Path, str, float], Awaitable[float | None]]


class NotBegun(Exception):
    """The machine is so busy that there was nothing to lose."""


def lines(path: Path) -> list[tuple[float, int]]:
    """Whole lines of the runs so far: when, and in which process."""
    if not path.exists():
        return []
    return [(float(at), int(pid)) for at, pid in (part.split() for part in path.read_text().split("\n")[:-1])]


async def lose(path: Path, how: str, top: Callable[[int], int], within: float) -> float | None:
    """Send the signal to everything below the worker; seconds until the task runs again, or None."""
    loop_end = time.monotonic() + PATIENCE
    while not lines(path):
        if time.monotonic() > loop_end:
            raise NotBegun
        await asyncio.sleep(0.02)
    lost = family(top(lines(path)[0][1]))
    await asyncio.sleep(1.0)  # it runs, and is known to
    at = time.time()
    for child in lost:
        with contextlib.suppress(OSError):
            os.kill(child, SIGNALS[how])
    try:
        while time.time() < at + within:
            if len(lines(path)) > 1:
                return lines(path)[1][0] - at
            await asyncio.sleep(0.02)
        return None
    finally:
        for child in lost:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)


class Scenario:
    """A server and a reconciler that stay; each trial has two pilots of its own."""

    def __init__(self, running: Processes, server: Started, folder: Path) -> None:
        self.running, self.server, self.folder = running, server, folder
        self.client = running.client(server, "submitter", "viewer", tenant="bench")

    async def known(self) -> set[str]:
        return {pilot["id"] for pilot in (await self.client.get("/v1/pilots")).json()["pilots"]}

    async def trial(self, folder: Path, how: str, within: float) -> float | None:
        before = await self.known()
        pilots = [self.running.pilot("bench", self.server) for _ in range(2)]

        async def both() -> bool:
            return len(await self.known() - before) == 2

        def pilot_of(pid: int) -> int:
            return next(pilot.process.pid for pilot in pilots if pid in family(pilot.process.pid))

        await until(both, "two pilots", patience=PATIENCE)
        path = folder / "runs"
        job = {"specification": {"name": "lost", "command": ["sh", "-c", TASK, str(path)]}, "jobs": [{}]}
        (await self.client.post("/v1/jobs", json=job)).raise_for_status()
        try:
            return await lose(path, how, pilot_of, within)
        finally:
            for pilot in pilots:
                if pilot.process.poll() is None:
                    pilot.kill()


@asynccontextmanager
async def scenario(silence: int | None) -> AsyncIterator[Trial]:
    with tempfile.TemporaryDirectory(prefix="forestay-lost-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        domain = Domain(f"sqlite:///{folder}/jobs.db", folder)
        async with processes(domain, folder, **({"lease": silence} if silence else {})) as running:
            server = await running.server()
            running.reconciler()
            await asyncio.sleep(SETTLES)
            yield Scenario(running, server, folder).trial


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def dask(folder: Path, how: str, within: float, silence: int | None) -> float | None:
    with Peer("dask", "dask_losing", str(silence or "")) as peer:
        path = folder / "runs"
        await asyncio.to_thread(peer.ask, "begin", str(path))
        return await lose(path, how, lambda pid: pid, within)


async def parsl(folder: Path, how: str, within: float, silence: int | None) -> float | None:
    with Peer("parsl", "parsl_losing", str(silence or "")) as peer:

        async def both() -> bool:
            return int(await asyncio.to_thread(peer.ask, "ready")) == 2

        await until(both, "two managers", patience=PATIENCE)
        path = folder / "runs"
        await asyncio.to_thread(peer.ask, "begin", str(path))
        return await lose(path, how, _parent, within)  # a worker's parent is its manager


@asynccontextmanager
async def arms(names: list[str], silence: int | None) -> AsyncIterator[dict[str, Trial]]:
    """How each system's task is lost, with so many seconds of silence allowed; none: their defaults."""
    peers = {"dask": partial(dask, silence=silence), "parsl": partial(parsl, silence=silence)}
    async with scenario(silence) as ours:
        yield {"forestay": ours, **{name: peers[name] for name in names if name in peers}}


async def trial(name: str, work: Trial, how: str, silence: int | None, within: float) -> float | None:
    with tempfile.TemporaryDirectory(prefix="forestay-lost-", ignore_cleanup_errors=True) as folder:
        try:
            took = await work(Path(folder), how, within)
        except (NotBegun, AssertionError) as error:
            print(f"{name}, {how}: nothing was lost, the task did not begin ({error}); once more", flush=True)
            took = await work(Path(folder), how, within)
    settings = f"{silence} s" if silence else "defaults"
    text = f"not within {within:.0f} s" if took is None else f"{took:.2f} s"
    print(f"{name}, {how}, {settings}: runs again after {text} (load {os.getloadavg()[0]:.1f})", flush=True)
    return took


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peers", default="")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--silence", type=int, default=10, help="seconds without a word that all allow, in the equal part"
    )
    parser.add_argument("--within", type=float, default=330.0)
    parser.add_argument("--name", default="lost_pilots", help="of the result")
    parser.add_argument("--no-defaults", dest="defaults", action="store_false", help="the equal part alone")
    parser.add_argument("--no-equal", dest="equal", action="store_false", help="the part with the defaults alone")
    asked = parser.parse_args()
    names = ["forestay", *filter(None, asked.peers.split(","))]
    equal: dict[str, dict[str, list[float | None]]] = {name: {how: [] for how in SIGNALS} for name in names}
    loads, pressures = [], []
    async with arms(names, asked.silence) as works:
        for _ in range(asked.rounds if asked.equal else 0):
            for how in SIGNALS:
                for name in names:
                    equal[name][how].append(await trial(name, works[name], how, asked.silence, asked.within))
                    loads.append(round(os.getloadavg()[0], 1))
                    pressures.append(pressure())
    defaults: dict[tuple[str, str], float | None] = {}
    if asked.defaults:
        async with arms(names, None) as works:
            for how in SIGNALS:  # side by side: they only wait
                values = await asyncio.gather(*(trial(name, works[name], how, None, asked.within) for name in names))
                defaults |= {(name, how): took for name, took in zip(names, values, strict=True)}
    report(asked, equal, defaults, loads, pressures)


def report(
    asked: argparse.Namespace,
    equal: dict[str, dict[str, list[float | None]]],
    defaults: dict[tuple[str, str], float | None],
    loads: list[float],
    pressures: list[float],
) -> None:
    ours = {how: [asked.within if value is None else value for value in equal["forestay"][how]] for how in SIGNALS}
    worst: dict[str, float] = {}
    if asked.equal:
        worst = {"killed, seconds": max(ours["killed"]), "silent, leases": max(ours["silent"]) / asked.silence}
    figures = {
        "silence, seconds": asked.silence, "within": asked.within, "equal": equal, "worst": worst,
        "defaults": {name: {how: took for (who, how), took in defaults.items() if who == name} for name in equal},
        "load": loads, "pressure": pressures,
    }  # fmt: skip
    print(f"raw trials in {keep(asked.name, [], figures)}", file=sys.stderr)
    if not asked.equal:
        return  # nothing to hold the defaults to
    reached = all(worst[name] <= goal for name, goal in GOALS.items())
    print(
        f"lost_pilots: killed, runs again after {statistics.median(ours['killed']):.2f} s ({worst['killed, seconds']:.2f} at most, goal ≤ 1); "
        f"silent, after {statistics.median(ours['silent']) / asked.silence:.2f} leases ({worst['silent, leases']:.2f} at most, goal ≤ 1.25): "
        f"{'reached' if reached else 'not reached'}"
    )
    leave(reached=reached)


if __name__ == "__main__":
    asyncio.run(main())
