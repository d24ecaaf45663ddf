"""Benchmark 5: from submission to start on an idle system, beside a bare Temporal activity, in turn.

    just bench start_latency --rounds 50
    just bench start_latency --rounds 50 --peers parsl --name start_latency_parsl   # Parsl is fetched into an environment of its own

Both begin with the request of a client. Bare: a workflow with one activity, until the activity's function begins. Forestay: one job by POST /v1/jobs, durable in
PostgreSQL, until a waiting pilot has its claim, durable too; and with a real pilot, until the job's own process writes its first byte, which the bare
activity, a function in a running process, does not need. Parsl: one call of a function through its HighThroughputExecutor, in memory, until its result is back.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import orjson
import uvloop

from bench.bare_temporal import bare_temporal
from bench.harness import keep, leave, paired
from bench.peers.peer import Peer
from bench.whole_site import WholeSite, whole_site
from forestay.adapters.private_file import write_private

GOAL = 0.15
BESIDE_PARSL = 4.0
PATIENCE = 60.0
CLAIM = {"max": 1, "wait": 30, "resources": {"cpus": 1, "memory": 1 << 40}}


class OnePilot:
    """A simulated pilot with one slot: always asking, in this process, so that both moments are read from one clock."""

    def __init__(self, site: WholeSite) -> None:
        self.site = site
        self.base = ""
        self.token = ""

    async def register(self) -> None:
        body = {"host": "bench", "slots": 1}
        known = await self.site.post("/v1/pilots", body, "enrol")
        self.base, self.token = f"{self.site.urls[0]}/v1/pilots/{known['pilot']}", known["token"]

    async def _post(self, what: str, body: object) -> list[dict[str, object]]:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        async with self.site.session.post(f"{self.base}/{what}", data=orjson.dumps(body), headers=headers) as answer:
            if answer.status >= 300:
                raise SystemExit(f"{what}: {answer.status} {await answer.text()}")
            document: dict[str, list[dict[str, object]]] = orjson.loads(await answer.read())
        return next(iter(document.values()))

    async def claimed(self) -> tuple[float, dict[str, object]]:
        while True:
            if claims := await self._post("claims", CLAIM):
                return time.perf_counter(), claims[0]

    async def end(self, claim: dict[str, object]) -> None:
        known = {name: claim[name] for name in ("job", "generation", "attempt", "claim")}
        await self._post("completions", {"completions": [known | {"outcome": "ok", "exit_code": 0}]})


async def to_claim(site: WholeSite, pilot: OnePilot, pause: float) -> float:
    waiting = asyncio.create_task(pilot.claimed())
    await asyncio.sleep(pause)
    since = time.perf_counter()
    await site.post("/v1/jobs", {"specification": {"name": "no-op", "command": ["true"]}, "jobs": [{}]})
    at, claim = await waiting
    await pilot.end(claim)
    return at - since


class RealPilot:
    """A real pilot process. The jobs write into a pipe, whose other end is here."""

    def __init__(self, site: WholeSite) -> None:
        self.site = site
        self.pipe = site.folder / "started"
        os.mkfifo(self.pipe)
        self.end = os.open(self.pipe, os.O_RDWR)
        secret = site.folder / "enrol"
        write_private(secret, site.token("enrol"))
        words = [sys.executable, "-m", "forestay", "pilot", "--server", site.urls[0], "--token-file", str(secret)]
        words += ["--slots", "1", "--outputs", str(site.folder / "outputs"), "--work", str(site.folder / "work")]
        with Path(site.folder / "pilot.log").open("wb") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)

    async def to_start(self, pause: float) -> float:
        await asyncio.sleep(pause)
        waiting = asyncio.get_running_loop().run_in_executor(None, self._read)
        since = time.perf_counter()
        # sh is the smallest program that is everywhere.
        wanted = {"name": "no-op", "command": ["sh", "-c", f"echo >{self.pipe}"]}
        await self.site.post("/v1/jobs", {"specification": wanted, "jobs": [{}]})
        return await waiting - since

    def _read(self) -> float:
        """A pipe that stays silent must not keep the benchmark from ending."""
        if not select.select([self.end], [], [], PATIENCE)[0]:
            raise SystemExit(f"no job began within {PATIENCE} s; see {self.site.folder}")
        os.read(self.end, 1)
        return time.perf_counter()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        os.close(self.end)


async def run(site: WholeSite, args: argparse.Namespace, parsl: Peer | None) -> dict[str, list[float]]:
    """One of each in turn: for each pilot a phase of its own, since a second pilot would take the first one's jobs."""
    took: dict[str, list[float]] = {"bare, beside claim": [], "claim": [], "bare, beside process": [], "process": []}
    async with bare_temporal(site.temporal, site.namespace) as bare:
        pilot = OnePilot(site)
        await pilot.register()
        for number in range(-3, args.rounds):
            pair = await bare.run(1), await to_claim(site, pilot, args.pause)
            if parsl is not None:
                await asyncio.sleep(args.pause)
                trip = float(await asyncio.to_thread(parsl.ask, "map", 1, 0))
                if number >= 0:
                    took.setdefault("parsl", []).append(trip)
            if number >= 0:
                took["bare, beside claim"].append(pair[0])
                took["claim"].append(pair[1])
        real = RealPilot(site)
        try:
            for number in range(-3, args.rounds):
                pair = await bare.run(1), await real.to_start(args.pause)
                if number >= 0:
                    took["bare, beside process"].append(pair[0])
                    took["process"].append(pair[1])
        finally:
            real.stop()
    return took


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--pause", type=float, default=0.3, help="seconds of idleness before each")
    parser.add_argument("--peers", default="", choices=("", "parsl"))
    parser.add_argument("--name", default="start_latency", help="of the result")
    parser.add_argument(
        "--shared", action="store_true", help="PostgreSQL and Temporal of the environment, not own ones"
    )
    args = parser.parse_args()
    async with whole_site(own=not args.shared) as site:
        await site.start()
        with Peer("parsl", "parsl_calls", "1") if args.peers == "parsl" else nullcontext() as parsl:
            took = await run(site, args, parsl)
    figures: dict[str, object] = {"load": os.getloadavg()[0], "seconds": took}
    lines = []
    reached = False
    for arm in ("claim", "process"):
        bare, ours = took[f"bare, beside {arm}"], took[arm]
        ratio = paired([statistics.median(ours)], [statistics.median(bare)]).median
        each = paired(ours, bare)
        last = [sorted(values)[int(0.99 * (len(values) - 1))] for values in (ours, bare)]
        lines.append(
            f"to the {arm} p50 {1000 * statistics.median(ours):.1f} ms (p99 {1000 * last[0]:.0f}), bare {1000 * statistics.median(bare):.1f} ms "
            f"(p99 {1000 * last[1]:.0f}): {ratio:.2f} ×, in pairs {each}"
        )
        reached = reached or (arm == "claim" and each.high <= GOAL)
    if "parsl" in took:
        trip, each = statistics.median(took["parsl"]), paired(took["claim"], took["parsl"])
        lines.append(f"Parsl's round trip {1000 * trip:.1f} ms: to the claim {each} × (goal ≤ {BESIDE_PARSL:g})")
    path = keep(args.name, [], figures)
    print(f"raw runs in {path}", file=sys.stderr)
    print(f"start_latency: {'; '.join(lines)} (goal ≤ {GOAL} to the claim): {'reached' if reached else 'not reached'}")
    leave(reached=reached)


if __name__ == "__main__":
    uvloop.run(main())
