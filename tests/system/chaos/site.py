"""Where a campaign takes place: store, gate, ledger, servers, reconcilers, pilots and the submitter, all real processes."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tests.system.chaos.faults import FaultLog
from tests.system.chaos.ledger import read_ledger
from tests.system.chaos.processes import Child, Crew, free_port
from tests.system.chaos.sizes import Size
from tests.system.chaos.store_cluster import NODES, StoreCluster
from tests.system.chaos.submitter import Submitter

from forestay.adapters.private_file import write_private
from forestay.apps.config.settings import load
from forestay.apps.operations.tokens import make_token
from forestay.domain.jobs.claim import SUSPECTED
from forestay_pilot.process import libc

ROOT = Path(__file__).resolve().parents[3]
DAY = 86_400


def say(text: str) -> None:
    sys.stderr.write(f"chaos {time.strftime('%H:%M:%S')}  {text}\n")
    sys.stderr.flush()


@dataclass(slots=True)
class Site:
    """Everything that runs; `folder` keeps what is left of it."""

    size: Size
    seed: int
    folder: Path
    chance: random.Random = field(init=False)
    faults: FaultLog = field(init=False)
    crew: Crew = field(init=False)
    store: StoreCluster = field(init=False)
    submitter: Submitter = field(init=False)
    gate: subprocess.Popen[bytes] = field(init=False)
    ledger: subprocess.Popen[bytes] = field(init=False)
    ports: dict[str, int] = field(default_factory=dict)
    """Of the gate."""
    tokens: dict[str, str] = field(default_factory=dict)
    let_through: int = 0
    """How often a person let a storm's group through."""
    suspects: int = 0
    """How many jobs a person let run again that were suspected of killing their pilots."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        for name in ("logs", "outputs", "tokens", "state"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.faults = FaultLog(self.folder / "faults.jsonl")
        self.crew = Crew(self.faults)
        self.store = StoreCluster(self.faults, heap=self.size.heap, prefix=f"chaos-{int(time.time())}")

    async def start(self) -> None:
        say("starting three OpenSearch nodes")
        await self.store.start()
        server_ports = {f"server-{number + 1}": free_port() for number in range(self.size.servers)}
        self._start_ledger()
        behind = server_ports | {f"store-{place + 1}": port for place, port in enumerate(self.store.ports)}
        self._start_gate(behind)
        self._write_tokens()
        for name, port in server_ports.items():
            self._add_server(name, port)
        for number in range(self.size.reconcilers):
            self._add(
                Child("reconciler", f"reconciler-{number + 1}", self._reconciler_words, self._settings(), self._logs)
            )
        for child in self.crew.children:
            child.start()
        await self._until_servers_answer()
        for number in range(self.size.pilots):
            self._add_pilot(number)
        for child in self.crew.of("pilot"):
            child.start()
        self.submitter = Submitter(
            size=self.size,
            servers=self.urls(),
            tokens=self.tokens,
            journal=self.folder / "journal.jsonl",
            ledger_port=self.ledger_port,
            chance=random.Random(self.seed + 1),
        )

    @property
    def _logs(self) -> Path:
        return self.folder / "logs"

    @property
    def ledger_path(self) -> Path:
        return self.folder / "ledger.jsonl"

    @property
    def ledger_port(self) -> int:
        return self.ports["ledger"]

    def _start_ledger(self) -> None:
        self.ledger = _talker(["tests.system.chaos.ledger", str(self.ledger_path)], self._logs / "ledger.log")
        self.ports["ledger"] = int(_first_line(self.ledger))

    def _start_gate(self, behind: dict[str, int]) -> None:
        ways = [f"{name}={port}" for name, port in behind.items()]
        words = ["tests.system.chaos.gate", str(self.folder / "gate.jsonl"), str(self.seed), *ways]
        self.gate = _talker(words, self._logs / "gate.log")
        self.ports |= json.loads(_first_line(self.gate))

    def order(self, **order: Any) -> None:
        """Tell the gate."""
        assert self.gate.stdin is not None
        self.gate.stdin.write(json.dumps(order).encode() + b"\n")
        self.gate.stdin.flush()

    def _settings(self) -> dict[str, str]:
        nodes = ",".join(f"127.0.0.1:{self.ports[f'store-{node + 1}']}" for node in range(NODES))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}
        return kept | {
            "FORESTAY_STORE": f"opensearch://{nodes}/{self.store.prefix}?replicas={self.size.replicas}",
            "FORESTAY_STATE": str(self.folder / "state"),
            "FORESTAY_LEASE": str(self.size.lease),
            "FORESTAY_TOKEN_SECONDS": "120",
        }

    def _write_tokens(self) -> None:
        settings = load(self._settings())
        for number in range(self.size.tenants):
            tenant = f"tenant-{number + 1}"
            roles = ["submitter", "operator"]
            self.tokens[tenant] = make_token(settings, subject="chaos", tenant=tenant, roles=roles, seconds=DAY)
            enrol = make_token(settings, subject="site", tenant=tenant, roles=["enrol"], seconds=DAY)
            write_private(self.folder / "tokens" / tenant, enrol)

    def _add(self, child: Child) -> None:
        self.crew.children.append(child)

    def _add_server(self, name: str, port: int) -> None:
        url = f"http://127.0.0.1:{self.ports[name]}"
        environment = self._settings() | {"FORESTAY_PORT": str(port), "FORESTAY_URL": url}
        self._add(Child("server", name, lambda _who: [_forestay(), "server"], environment, self._logs))

    def _reconciler_words(self, _who: str) -> Sequence[str]:
        return [_forestay(), "reconciler"]

    def _add_pilot(self, number: int) -> None:
        tenant = f"tenant-{number % self.size.tenants + 1}"
        slots = 2 if number % 8 == 0 else 1
        environment = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}

        def words(who: str) -> Sequence[str]:
            urls = self.urls()
            self.chance.shuffle(urls)
            return [
                sys.executable, "-m", "forestay_pilot",
                *(word for url in urls for word in ("--server", url)),
                "--token-file", str(self.folder / "tokens" / tenant),
                "--outputs", str(self.folder / "outputs"),
                "--work", str(self.folder / "work" / tenant),
                "--slots", str(slots), "--cpus", str(slots), "--memory", str(1 << 30), "--disk", str(1 << 30),
                "--host", who, "--claim-wait", "10",
            ]  # fmt: skip

        self._add(Child("pilot", f"pilot-{number + 1:02}", words, environment, self._logs))

    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{self.ports[f'server-{number + 1}']}" for number in range(self.size.servers)]

    async def _until_servers_answer(self) -> None:
        give_up = time.monotonic() + 120
        async with httpx.AsyncClient(timeout=5) as client:
            for url in self.urls():
                while True:
                    with suppress(httpx.HTTPError):
                        if (await client.get(f"{url}/v1/status")).status_code == 401:
                            break
                    if time.monotonic() > give_up:
                        raise TimeoutError(f"the server at {url} does not answer")
                    await asyncio.sleep(0.2)

    async def end(self) -> None:
        await self.crew.end()

    def abandon(self) -> None:
        """End everything that is left, whatever happened."""
        self.crew.abandon()
        for name in ("gate", "ledger"):
            process = getattr(self, name, None)
            if process is not None:
                process.kill()
                process.wait()

    async def states(self) -> dict[str, int]:
        """How many jobs are in which state, as the servers say."""
        total: dict[str, int] = {}
        async with httpx.AsyncClient(timeout=10) as client:
            for token in self.tokens.values():
                for url in self.urls():
                    headers = {"Authorization": f"Bearer {token}"}
                    with suppress(httpx.HTTPError):
                        answer = await client.get(f"{url}/v1/jobs/counts?by=state", headers=headers)
                        if answer.status_code == 200:
                            for state, count in answer.json()["counts"].items():
                                total[state] = total.get(state, 0) + count
                            break
        return total

    async def operate(self) -> None:
        """What an operator does here: jobs that fail once by design come in numbers that look like a storm, and pilots are killed by others than their jobs; whatever waits for a person is let through."""
        async with httpx.AsyncClient(timeout=20) as client:
            for token in self.tokens.values():
                url, headers = self.chance.choice(self.urls()), {"Authorization": f"Bearer {token}"}
                with suppress(httpx.HTTPError):
                    answer = await client.get(f"{url}/v1/safeguards", headers=headers)
                    groups = answer.json()["groups"] if answer.status_code == 200 else ()
                    for name, entry in ((group["id"], value) for group in groups for value in group["tried"]):
                        if entry["state"] == "held":
                            order = {"group": name, "rule": entry["rule"], "do": "all", "reason": "they fail once"}
                            done = await client.post(f"{url}/v1/safeguards/groups", json=order, headers=headers)
                            self.let_through += done.status_code == 200
                    answer = await client.get(f"{url}/v1/jobs?state=faulted", headers=headers)
                    for job in answer.json()["jobs"] if answer.status_code == 200 else ():
                        path = f"{url}/v1/jobs/{job['id']}"
                        story = (await client.get(f"{path}/story", headers=headers)).json().get("story")
                        if story and SUSPECTED in story[-1]["words"]:
                            order = {"reason": "the campaign kills pilots"}
                            done = await client.post(f"{path}/retry", json=order, headers=headers)
                            self.suspects += done.is_success

    async def stories(self, most: int = 50) -> dict[str, list[tuple[str, int]]]:
        """The stories of jobs that ran more than once, as the servers tell them."""
        starts = Counter(mark.job for mark in read_ledger(self.ledger_path) if mark.word == "START")
        tenants = {job.id: job.tenant for job in self.submitter.accepted}
        stories: dict[str, list[tuple[str, int]]] = {}
        async with httpx.AsyncClient(timeout=30) as client:
            for job, count in starts.most_common(most):
                if count < 2:
                    break
                headers = {"Authorization": f"Bearer {self.tokens[tenants[job]]}"}
                answer = await client.get(f"{self.urls()[0]}/v1/jobs/{job}/story", headers=headers)
                stories[job] = [(line["event"], line["attempt"]) for line in answer.raise_for_status().json()["story"]]
        return stories


def _forestay() -> str:
    return str(Path(sys.executable).with_name("forestay"))


def _talker(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """A process of the harness itself, which says one line when it is ready."""
    with log.open("ab") as sink:
        return subprocess.Popen(
            [sys.executable, "-m", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            cwd=ROOT,
            preexec_fn=libc.die_with_parent,
        )


def _first_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    if not line:
        raise RuntimeError("a process of the harness did not start; see its log")
    return line
