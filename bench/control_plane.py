"""Benchmark 12: a hundred thousand pilots on 60-second leases, at one server: what their heartbeats cost, and what claiming is like beside them.

A real server process on a real OpenSearch. The pilots are simulated in processes of their own, which are not counted: all of them heartbeat every 20 seconds (`beating_pilots`), and
some of them claim and end jobs as fast as they can (32 at a time, as `scale` does). Arms, one after the other: few pilots and many. Of each: CPU of the server with heartbeats alone, less what it
takes when idle; claims a second and the time that a request for claims takes, with heartbeats going on.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import orjson
import uvloop

from bench.harness import Run, cpu_seconds, keep, leave, opensearch_pid
from bench.scale import TENANT, Domain, Pilots, fill
from forestay.adapters.joserfc.identity import SignedIdentity, signing_keys
from forestay.adapters.opensearch.job_store import OpenSearchJobStore
from forestay.adapters.system.clock import SystemClock
from forestay.domain.jobs.specification import Specification
from forestay.ports.operations.identity import Role
from forestay_pilot.process import libc

LEASE = 60


class HeartbeatProcess:
    """The process of the pilots that send heartbeats, and what it said last."""

    def __init__(self, url: str, pilots: list[tuple[str, str]], connections: int) -> None:
        words = [sys.executable, "-m", "bench.beating_pilots"]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, preexec_fn=libc.die_with_parent
        )  # fmt: skip
        assert self.process.stdin is not None
        at = urlsplit(url)
        fields = {
            "host": at.hostname,
            "port": at.port,
            "pilots": pilots,
            "every": LEASE / 3,
            "connections": connections,
        }
        self.process.stdin.write(orjson.dumps(fields))
        self.process.stdin.close()
        self.heartbeats = self.bad = 0
        self.worst = 0.0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            document = orjson.loads(line)
            self.heartbeats, self.bad = document["heartbeats"], document["bad"]
            self.worst = max(self.worst, document["worst"])

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


async def cpu_over(pid: int, seconds: float) -> float:
    """Cores that a process takes over a while."""
    before, began = cpu_seconds(pid), time.monotonic()
    await asyncio.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.monotonic() - began)


async def arm(args: argparse.Namespace, many: int, folder: Path, session: aiohttp.ClientSession) -> Run:
    prefix = f"bench-{secrets.token_hex(4)}"
    state = folder / prefix
    state.mkdir()
    store = OpenSearchJobStore([args.url], prefix=prefix, timeout=60)
    await store.open()
    await store.put_specifications([Specification("0" * 32, TENANT, "noop", ("true",))])
    await fill(store, args.jobs)
    domain = Domain(args.url, prefix, state)
    os.environ["FORESTAY_LEASE"] = str(LEASE)
    beating: HeartbeatProcess | None = None
    try:
        await domain.start(1, session)
        process, url = domain.servers[0]
        idle = await cpu_over(process.pid, args.seconds / 4)
        names = [f"p-{number:016x}" for number in range(many)]
        # As the server itself would issue them; a hundred thousand registrations are another matter.
        identity = SignedIdentity(signing_keys(domain.settings.key_file), SystemClock())
        role = frozenset({Role.PILOT})
        tokens = [identity.issue(subject=name, tenant=TENANT, roles=role, seconds=86_400) for name in names]
        beating = HeartbeatProcess(url, list(zip(names, tokens, strict=True)), min(args.connections, many))
        await asyncio.sleep(LEASE / 3 + 4)  # every pilot has beaten once
        store_pid = opensearch_pid(urlsplit(args.url).port or 9200)
        before, began = beating.heartbeats, time.monotonic()
        of_store = asyncio.create_task(cpu_over(store_pid, args.seconds))
        busy = await cpu_over(process.pid, args.seconds)
        rate = (beating.heartbeats - before) / (time.monotonic() - began)
        pilots = Pilots(domain, session)
        pilots.waits.clear()
        before_cpu, began = cpu_seconds(process.pid), time.monotonic()
        ended = await pilots.drive(args.jobs - 2000)
        seconds = time.monotonic() - began
        waits = sorted(pilots.waits)
        facts = {
            "pilots": many, "beats a second": rate, "server cores idle": idle, "server cores with beats": busy,
            "beat cost, cores": busy - idle, "store cores with beats": await of_store,
            "longest beat, seconds": beating.worst, "bad answers": beating.bad,
            "claim p50": waits[len(waits) // 2], "claim p99": waits[int(0.99 * len(waits))],
        }  # fmt: skip
        cpu = {"server": cpu_seconds(process.pid) - before_cpu}
        return Run(f"{many} pilots", ended, seconds, cpu, 0.0, os.getloadavg()[0], facts)
    finally:
        if beating is not None:
            beating.stop()
        domain.stop()
        await store.close()


async def run(args: argparse.Namespace) -> bool:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    runs: list[Run] = []
    timeout = aiohttp.ClientTimeout(total=120)
    with tempfile.TemporaryDirectory() as folder:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
            for many in (args.few, args.many):
                run = await arm(args, many, Path(folder), session)
                runs.append(run)
                facts = ", ".join(f"{name} {value:.3g}" for name, value in run.facts.items())
                print(f"  {run.arm}: {run.rate:.0f} claims/s; {facts} (load {run.load:.1f})", file=sys.stderr)
    few, many_run = runs
    ratio = many_run.facts["claim p99"] / few.facts["claim p99"]
    cost = many_run.facts["beat cost, cores"]
    path = keep("control_plane", runs, {})
    print(f"raw runs in {path}; open files {soft} to {hard}", file=sys.stderr)
    good = cost <= 0.25 and many_run.rate >= 2000 and ratio <= 2 and not many_run.facts["bad answers"]
    print(
        f"control plane at {args.many} pilots: heartbeats cost {cost:.2f} core at {many_run.facts['beats a second']:.0f}/s, "
        f"{many_run.rate:.0f} claims/s, claim p99 {ratio:.2f} × that at {args.few}: {'reached' if good else 'not reached'} "
        "(goal ≤ 0.25 core, ≥ 2,000/s, ≤ 2 ×)"
    )
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default=os.environ.get("FORESTAY_TEST_OPENSEARCH", "http://127.0.0.1:9200"))
    parser.add_argument("--few", type=int, default=1000)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=40_000)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--connections", type=int, default=4000)
    leave(reached=uvloop.run(run(parser.parse_args())))


if __name__ == "__main__":
    main()
