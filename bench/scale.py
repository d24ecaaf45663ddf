"""What a job costs as the queue grows and as servers are added: CPU-seconds of store and servers, per job.

Real server processes on a real OpenSearch; simulated pilots speak the real protocol over HTTP (claims of 32, ends of 32) and
their own CPU is not counted. Two laws, each measured with its arms interleaved:
  depth     one server, with few and with many jobs queued: goal ≤ 1.25 × from 10⁴ to 10⁶
  servers   one and four servers on the same queue: goal within 15 %
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import orjson
import uvloop

from bench.claim_efficiency import fresh
from bench.harness import Run, keep, leave, measure, opensearch_pid
from forestay.adapters.opensearch.job_store import OpenSearchJobStore
from forestay.apps.config.settings import Settings
from forestay.apps.operations.tokens import make_token
from forestay.domain.jobs.hash_slots import SLOTS
from forestay.domain.jobs.specification import Specification
from forestay.ports.jobs.job_store import DocumentChange, Written

TENANT = "bench"
OWNERS = 20
PILOTS = 32
BATCH = 32


def free_port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        port: int = own.getsockname()[1]
    return port


@dataclass(slots=True)
class Domain:
    """Some servers on one prefix of the store."""

    url: str
    prefix: str
    state: Path
    servers: list[tuple[subprocess.Popen[bytes], str]] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        return Settings(state=self.state)

    def token(self, role: str) -> str:
        return make_token(self.settings, subject="bench", tenant=TENANT, roles=[role], seconds=86_400)

    async def start(self, count: int, session: aiohttp.ClientSession) -> None:
        store = f"opensearch://{self.url.removeprefix('http://')}/{self.prefix}?timeout=30"
        for _ in range(count):
            port = free_port()
            environment = os.environ | {"FORESTAY_STORE": store, "FORESTAY_STATE": str(self.state)}
            command = [sys.executable, "-m", "forestay", "server", "--port", str(port)]
            log = (self.state / f"server-{port}.log").open("wb")
            started = subprocess.Popen(command, env=environment, stderr=log)  # noqa: ASYNC220 - before anything is timed
            self.servers.append((started, f"http://127.0.0.1:{port}"))
        headers = {"Authorization": f"Bearer {self.token('viewer')}"}
        for _ in range(600):
            if await self._shared_out(session, headers):
                return
            await asyncio.sleep(0.2)
        raise SystemExit(f"the servers did not become ready; see {self.state}")

    async def _shared_out(self, session: aiohttp.ClientSession, headers: dict[str, str]) -> bool:
        """Whether every server has seen all its peers and serves its share of the slots."""
        served = 0
        for _, url in self.servers:
            try:
                async with session.get(f"{url}/v1/status", headers=headers) as answer:
                    known = await answer.json()
            except aiohttp.ClientError:
                return False
            if answer.status != 200 or len(known["servers"]) != len(self.servers):
                return False
            served += known["slots_served"]
        return served == SLOTS

    def processes(self, store: int) -> dict[str, int]:
        return {"store": store} | {f"server {number}": process.pid for number, (process, _) in enumerate(self.servers)}

    def stop(self) -> None:
        for process, _ in self.servers:
            process.send_signal(signal.SIGTERM)
        for process, _ in self.servers:
            process.wait(30)
        self.servers.clear()


async def fill(store: OpenSearchJobStore, count: int) -> None:
    """Queue so many jobs, in as many lanes as there are owners."""
    began = time.perf_counter()
    for start in range(0, count, 10_000):
        size = min(10_000, count - start)
        documents = [
            document for owner in range(OWNERS) for document in fresh(size // OWNERS, f"owner-{owner}", tenant=TENANT)
        ]
        results = await store.write([DocumentChange(document, None) for document in documents])
        assert all(isinstance(write_result, Written) for write_result in results)
        if start and start % 100_000 == 0:
            rate = start / (time.perf_counter() - began)
            print(f"  queued {start} of {count} ({rate:.0f}/s)", file=sys.stderr)
    await store.refresh()


class Pilots:
    """Simulated pilots: the real protocol, no payloads."""

    def __init__(self, domain: Domain, session: aiohttp.ClientSession) -> None:
        self.domain = domain
        self.session = session
        self.waits: list[float] = []

    async def drive(self, jobs: int) -> int:
        """Claim and end so many jobs."""
        self.left = jobs
        self.ended = 0
        urls = [url for _, url in self.domain.servers]
        await asyncio.gather(*(self._pilot(urls[number % len(urls)]) for number in range(PILOTS)))
        return self.ended

    async def _post(self, url: str, token: str, body: object) -> dict[str, list[dict[str, object]]]:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        async with self.session.post(url, data=orjson.dumps(body), headers=headers) as answer:
            if answer.status >= 300:
                raise SystemExit(f"{url}: {answer.status} {await answer.text()}")
            read: dict[str, list[dict[str, object]]] = orjson.loads(await answer.read())
        return read

    async def _pilot(self, url: str) -> None:
        me = await self._post(f"{url}/v1/pilots", self.domain.token("enrol"), {"host": "bench", "slots": BATCH})
        base, token = f"{url}/v1/pilots/{me['pilot']}", str(me["token"])
        while self.left > 0:
            most = min(BATCH, self.left)
            self.left -= most
            asked = {"max": most, "wait": 5, "resources": {"cpus": BATCH, "memory": 1 << 40}}
            began = time.perf_counter()
            claims = (await self._post(f"{base}/claims", token, asked))["claims"]
            self.waits.append(time.perf_counter() - began)
            self.left += most - len(claims)
            if not claims:
                continue
            ends = [
                {name: claim[name] for name in ("job", "generation", "attempt", "claim")}
                | {"outcome": "ok", "exit_code": 0, "wall": 0.01, "cpu": 0.01, "peak_memory": 1 << 20, "host": "bench"}
                for claim in claims
            ]
            results = (await self._post(f"{base}/completions", token, {"completions": ends}))["results"]
            assert all(result["result"] == "committed" for result in results), results
            self.ended += len(claims)


async def law(
    domains: dict[str, tuple[Domain, OpenSearchJobStore]], store_pid: int, jobs: int, rounds: int
) -> list[Run]:
    """Drive each domain in turn, forwards and backwards, and put back what was taken."""
    runs: list[Run] = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=256)) as session:
        pilots = {arm: Pilots(domain, session) for arm, (domain, _) in domains.items()}
        for arm, (domain, store) in domains.items():
            print(f"warming {arm}", file=sys.stderr)
            await pilots[arm].drive(jobs // 2)
            await fill(store, jobs // 2)
            del domain
        for number in range(rounds):
            order = list(domains) if number % 2 == 0 else list(domains)[::-1]
            for arm in order:
                domain, store = domains[arm]
                pilots[arm].waits.clear()
                run = await measure(arm, lambda p=pilots[arm]: p.drive(jobs), domain.processes(store_pid))  # type: ignore[misc]
                waits = sorted(pilots[arm].waits)
                run.facts["claim p50"] = statistics.median(waits)
                run.facts["claim p99"] = waits[int(0.99 * len(waits))]
                runs.append(run)
                await fill(store, jobs)
    return runs


def each(runs: list[Run], arm: str) -> float:
    return statistics.median(run.cpu_each for run in runs if run.arm == arm)


async def depth(url: str, few: int, many: int, jobs: int, rounds: int) -> tuple[float, list[Run]]:
    """One server: the same work with few and with many jobs queued."""
    jobs = min(jobs, few // 2)  # more than are queued would never end
    pid = opensearch_pid(int(url.rpartition(":")[2]))
    domains: dict[str, tuple[Domain, OpenSearchJobStore]] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with aiohttp.ClientSession() as session:
            try:
                for arm, count in ((f"{few} queued", few), (f"{many} queued", many)):
                    domains[arm] = await _domain(url, Path(folder), count, 1, session)
                runs = await law(domains, pid, jobs, rounds)
            finally:
                for domain, store in domains.values():
                    domain.stop()
                    await store.close()
    return each(runs, f"{many} queued") / each(runs, f"{few} queued"), runs


async def servers(url: str, queued: int, jobs: int, rounds: int, most: int) -> tuple[float, list[Run]]:
    """The same queue behind one server and behind several."""
    pid = opensearch_pid(int(url.rpartition(":")[2]))
    domains: dict[str, tuple[Domain, OpenSearchJobStore]] = {}
    with tempfile.TemporaryDirectory() as folder:
        async with aiohttp.ClientSession() as session:
            try:
                for arm, count in (("1 server", 1), (f"{most} servers", most)):
                    domains[arm] = await _domain(url, Path(folder), queued, count, session)
                runs = await law(domains, pid, jobs, rounds)
            finally:
                for domain, store in domains.values():
                    domain.stop()
                    await store.close()
    return each(runs, f"{most} servers") / each(runs, "1 server"), runs


async def _domain(
    url: str, folder: Path, queued: int, count: int, session: aiohttp.ClientSession
) -> tuple[Domain, OpenSearchJobStore]:
    prefix = f"bench-{secrets.token_hex(4)}"
    state = folder / prefix
    state.mkdir()
    store = OpenSearchJobStore([url], prefix=prefix, timeout=60)
    await store.open()
    await store.put_specifications([Specification("0" * 32, TENANT, "noop", ("true",))])
    await fill(store, queued)
    domain = Domain(url, prefix, state)
    await domain.start(count, session)
    return domain, store


async def run(args: argparse.Namespace) -> bool:
    lines = []
    good = True
    all_runs: list[Run] = []
    if args.law in ("depth", "both"):
        ratio, runs = await depth(args.url, args.few, args.many, args.jobs, args.rounds)
        all_runs += runs
        good &= ratio <= 1.25
        lines.append(f"CPU per job at {args.many} queued is {ratio:.2f} × that at {args.few} (goal ≤ 1.25)")
    if args.law in ("servers", "both"):
        ratio, runs = await servers(args.url, args.queued, args.jobs, args.rounds, args.servers)
        all_runs += runs
        good &= 0.85 <= ratio <= 1.15
        lines.append(f"with {args.servers} servers {ratio:.2f} × that with one (goal 0.85 to 1.15)")
    path = keep(f"scale_{args.law}", all_runs, {})
    print(f"raw runs in {path}", file=sys.stderr)
    print(f"scale: {'; '.join(lines)}: {'reached' if good else 'not reached'}")
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("law", choices=["depth", "servers", "both"], nargs="?", default="both")
    parser.add_argument("--url", default=os.environ.get("FORESTAY_TEST_OPENSEARCH", "http://127.0.0.1:9200"))
    parser.add_argument("--few", type=int, default=10_000)
    parser.add_argument("--many", type=int, default=1_000_000)
    parser.add_argument("--queued", type=int, default=50_000)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    leave(reached=uvloop.run(run(parser.parse_args())))


if __name__ == "__main__":
    main()
