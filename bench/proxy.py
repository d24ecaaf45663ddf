"""The proxy beside the bare task server: what a call costs more, and what is left of the throughput.

    just bench proxy
    just bench proxy --server http://127.0.0.1:8000 --name funnel

Without `--server` a second Forestay, with a store, server, reconciler and pilot of its own, is the task server. Another one must be running already, with a
fresh database, and run tasks at once; any TES server will do, and it is told nothing of the proxy. The figures beside Funnel are of its local compute
and BoltDB (`funnel server run -c config.yml`), where a script called `docker` that runs the command on the host stood in for containers. Both arms take turns in one run: call by call for the cost of a call, round by round for throughput.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from tests.unit.apps.server.processes import Processes, processes
from tests.unit.apps.server.running import Domain

from bench.harness import Run, keep, leave, paired, pressure, rates
from forestay.adapters.private_file import write_private

ADDED_GOAL, KEPT_GOAL = 5.0, 0.9
TENANT = "bench"
OVER = frozenset({"COMPLETE", "EXECUTOR_ERROR", "SYSTEM_ERROR", "CANCELED"})
PATH = "/ga4gh/tes/v1/tasks"


class Arm(NamedTuple):
    """One way to the task server."""

    name: str
    client: httpx.AsyncClient

    async def create(self, command: str) -> str:
        executor = {"image": "alpine", "command": ["sh", "-c", command]}
        answer = await self.client.post(PATH, json={"name": "bench", "executors": [executor]})
        answer.raise_for_status()
        return str(answer.json()["id"])

    async def state(self, task: str) -> str:
        answer = await self.client.get(f"{PATH}/{task}", params={"view": "MINIMAL"})
        answer.raise_for_status()
        return str(answer.json()["state"])

    async def ended(self, tasks: list[str]) -> list[str]:
        """Poll those that are left, as clients do, until all have ended."""
        ends: dict[str, str] = {}
        while len(ends) < len(tasks):
            for task in [end for end in tasks if end not in ends]:
                state = await self.state(task)
                if state not in OVER:
                    break  # they end about in the order in which they were made
                ends[task] = state
            else:
                break
            await asyncio.sleep(0.1)
        return list(ends.values())


async def calls(arms: list[Arm], many: int) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of each call, the arms in turns."""
    calls: dict[str, dict[str, list[float]]] = {arm.name: {"create": [], "get": []} for arm in arms}
    for turn in range(many):
        for arm in arms if turn % 2 else arms[::-1]:
            since = time.perf_counter()
            task = await arm.create("true")
            calls[arm.name]["create"].append(1000 * (time.perf_counter() - since))
            since = time.perf_counter()
            await arm.state(task)
            calls[arm.name]["get"].append(1000 * (time.perf_counter() - since))
            await asyncio.sleep(0.02)
    return calls


async def crowd(arm: Arm, what: str, many: int, at_once: int, known: list[str]) -> Run:
    """Many calls, several at once."""
    gate = asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        async with gate:
            if what == "create":
                known.append(await arm.create("true"))
            else:
                await arm.state(known[number % len(known)])

    since = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(many)))
    return _run(f"{arm.name} {what}", many, time.perf_counter() - since)


async def whole(arm: Arm, many: int, seconds: float) -> Run:
    """Tasks from their creation to the end that the client sees."""
    since = time.perf_counter()
    tasks = [await arm.create(f"sleep {seconds}") for _ in range(many)]
    ends = await arm.ended(tasks)
    if set(ends) != {"COMPLETE"}:
        raise SystemExit(f"{arm.name}: tasks ended as {set(ends)}")
    return _run(f"{arm.name} whole", many, time.perf_counter() - since)


def _run(arm: str, many: int, seconds: float) -> Run:
    run = Run(arm, many, seconds, {}, pressure(), os.getloadavg()[0])
    print(f"  {arm:<20} {run.rate:>8.1f}/s   (load {run.load:.1f})", file=sys.stderr)
    return run


async def second_forestay(stack: AsyncExitStack, folder: Path, slots: int) -> tuple[str, str]:
    """A domain of its own as the task server: its address, and a token for it."""
    domain = Domain(f"sqlite:///{folder}/inner.db", folder)
    running: Processes = await stack.enter_async_context(
        processes(domain, folder, lease=60, tes_containers="host-paths")
    )
    server = await running.server()
    running.reconciler()
    running.pilot(TENANT, server, slots=slots)
    return server.url, domain.token("submitter", tenant=TENANT)


async def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reading.add_argument("--server", default="", help="a TES server that runs already; unset: a second Forestay")
    reading.add_argument("--name", default="forestay", help="what the results are called")
    reading.add_argument("--calls", type=int, default=200)
    reading.add_argument("--rounds", type=int, default=5)
    reading.add_argument("--crowd", type=int, default=300, help="calls of a round of throughput")
    reading.add_argument("--at-once", type=int, default=8)
    reading.add_argument("--tasks", type=int, default=40, help="tasks of a round from creation to end")
    reading.add_argument("--seconds", type=float, default=1.0, help="how long each of them sleeps")
    reading.add_argument("--slots", type=int, default=8, help="of the second Forestay's pilot")
    args = reading.parse_args()
    runs: list[Run] = []
    async with AsyncExitStack() as stack:
        folder, inner, outer = (Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(3))
        url, token = args.server, ""
        if not url:
            url, token = await second_forestay(stack, inner, args.slots)
        secret = folder / "token"
        write_private(secret, token or "none")
        table: dict[str, Any] = {"name": "bench", "url": url, "tenants": [TENANT], "default": True}
        table |= {"token": f"file:{secret}"} if token else {}
        domain = Domain(f"sqlite:///{outer}/outer.db", outer)
        running = await stack.enter_async_context(processes(domain, outer, lease=60, downstreams=json.dumps([table])))
        server = await running.server()
        running.reconciler()
        arms = [
            Arm("bare", await stack.enter_async_context(_client(url, token))),
            Arm(
                "proxy",
                await stack.enter_async_context(_client(server.url, domain.token("submitter", tenant=TENANT))),
            ),
        ]
        await calls(arms, 10)  # both are warm
        returned_calls = await calls(arms, args.calls)
        for number in range(args.rounds):
            for arm in arms if number % 2 else arms[::-1]:
                known: list[str] = []
                runs.append(await crowd(arm, "create", args.crowd, args.at_once, known))
                runs.append(await crowd(arm, "get", args.crowd, args.at_once, known))
                await arm.ended(known)
        for number in range(args.rounds):
            for arm in arms if number % 2 else arms[::-1]:
                runs += [await whole(arm, args.tasks, args.seconds)]
    added = {
        what: statistics.median(returned_calls["proxy"][what]) - statistics.median(returned_calls["bare"][what])
        for what in ("create", "get")
    }
    kept = {
        what: paired(rates(runs, f"proxy {what}"), rates(runs, f"bare {what}")) for what in ("create", "get", "whole")
    }
    fastest = {
        what: _tenth(returned_calls["proxy"][what]) - _tenth(returned_calls["bare"][what]) for what in ("create", "get")
    }
    medians = {
        f"{arm}_{what}_p50": statistics.median(returned_calls[arm][what])
        for arm in returned_calls
        for what in returned_calls[arm]
    }
    figures: dict[str, object] = {**{f"added_{what}_p50": value for what, value in added.items()}, **medians}
    figures |= {f"added_{what}_p10": value for what, value in fastest.items()}
    figures |= {f"kept_{what}": value for what, value in kept.items()} | {"load": os.getloadavg()[0]}
    print(
        f"{args.name}: a call costs {added['create']:+.1f} ms (create, p50) and {added['get']:+.1f} ms (get, p50) beside bare"
        f" ({medians['bare_create_p50']:.1f} and {medians['bare_get_p50']:.1f} ms; of the fastest tenth, which a busy machine spoils least,"
        f" {fastest['create']:+.1f} and {fastest['get']:+.1f} ms); of the throughput is kept: create {kept['create']}, get {kept['get']},"
        f" whole tasks {kept['whole']}; load {os.getloadavg()[0]:.1f}"
    )
    print(f"raw figures in {keep(f'proxy_{args.name}', runs, figures)}", file=sys.stderr)
    leave(reached=max(added.values()) <= ADDED_GOAL and min(ratio.median for ratio in kept.values()) >= KEPT_GOAL)


def _tenth(values: list[float]) -> float:
    return sorted(values)[len(values) // 10]


def _client(url: str, token: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=30, trust_env=False)


if __name__ == "__main__":
    asyncio.run(main())
