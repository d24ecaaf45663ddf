"""One campaign: starts everything, hurts it act by act, waits for quiet."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tests.chaos.faults import FaultLog
from tests.chaos.ledger import read_ledger
from tests.chaos.processes import Child, Crew, free_port
from tests.chaos.sizes import Act, Size
from tests.chaos.store_cluster import NODES, StoreCluster
from tests.chaos.submitter import Submitter

from holdfast.apps.settings import load
from holdfast.apps.tokens import make_token, write_private
from holdfast_pilot import libc

ROOT = Path(__file__).resolve().parent.parent.parent
DAY = 86_400
FINAL = ("completed", "failed", "cancelled", "forced_complete")


def say(text: str) -> None:
    sys.stderr.write(f"chaos {time.strftime('%H:%M:%S')}  {text}\n")
    sys.stderr.flush()


@dataclass(slots=True)
class Campaign:
    """Everything that one run needs; `folder` keeps what is left of it."""

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
    act: str = "start"
    asides: set[asyncio.Task[None]] = field(default_factory=set)
    """Pauses that end by themselves."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        for name in ("logs", "outputs", "tokens", "state"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.faults = FaultLog(self.folder / "faults.jsonl")
        self.crew = Crew(self.faults)
        self.store = StoreCluster(self.faults, heap=self.size.heap, prefix=f"chaos-{int(time.time())}")

    # -- start and end -----------------------------------------------------------------------------------------

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
        for number in range(self.size.keepers):
            self._add(Child("keeper", f"keeper-{number + 1}", self._keeper_words, self._settings(), self._logs))
        for child in self.crew.children:
            child.start()
        await self._until_servers_answer()
        for number in range(self.size.pilots):
            self._add_pilot(number)
        for child in self.crew.of("pilot"):
            child.start()
        self.submitter = Submitter(
            size=self.size,
            servers=self._urls(),
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
        self.ledger = _talker(["tests.chaos.ledger", str(self.ledger_path)], self._logs / "ledger.log")
        self.ports["ledger"] = int(_first_line(self.ledger))

    def _start_gate(self, behind: dict[str, int]) -> None:
        ways = [f"{name}={port}" for name, port in behind.items()]
        words = ["tests.chaos.gate", str(self.folder / "gate.jsonl"), str(self.seed), *ways]
        self.gate = _talker(words, self._logs / "gate.log")
        self.ports |= json.loads(_first_line(self.gate))

    def order(self, **order: Any) -> None:
        """Tell the gate."""
        assert self.gate.stdin is not None
        self.gate.stdin.write(json.dumps(order).encode() + b"\n")
        self.gate.stdin.flush()

    def _settings(self) -> dict[str, str]:
        nodes = ",".join(f"127.0.0.1:{self.ports[f'store-{node + 1}']}" for node in range(NODES))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        return kept | {
            "HOLDFAST_STORE": f"opensearch://{nodes}/{self.store.prefix}?replicas={self.size.replicas}",
            "HOLDFAST_STATE": str(self.folder / "state"),
            "HOLDFAST_LEASE": str(self.size.lease),
            "HOLDFAST_TOKEN_SECONDS": "120",
        }

    def _write_tokens(self) -> None:
        settings = load(self._settings())
        for number in range(self.size.tenants):
            tenant = f"tenant-{number + 1}"
            roles = ["submitter", "viewer"]
            self.tokens[tenant] = make_token(settings, subject="chaos", tenant=tenant, roles=roles, seconds=DAY)
            enrol = make_token(settings, subject="site", tenant=tenant, roles=["enrol"], seconds=DAY)
            write_private(self.folder / "tokens" / tenant, enrol)

    def _add(self, child: Child) -> None:
        self.crew.children.append(child)

    def _add_server(self, name: str, port: int) -> None:
        url = f"http://127.0.0.1:{self.ports[name]}"
        environment = self._settings() | {"HOLDFAST_PORT": str(port), "HOLDFAST_URL": url}
        self._add(Child("server", name, lambda _who: [_holdfast(), "server"], environment, self._logs))

    def _keeper_words(self, _who: str) -> Sequence[str]:
        return [_holdfast(), "keeper"]

    def _add_pilot(self, number: int) -> None:
        tenant = f"tenant-{number % self.size.tenants + 1}"
        slots = 2 if number % 8 == 0 else 1
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}

        def words(who: str) -> Sequence[str]:
            urls = self._urls()
            self.chance.shuffle(urls)
            return [
                sys.executable, "-m", "holdfast_pilot",
                *(word for url in urls for word in ("--server", url)),
                "--token-file", str(self.folder / "tokens" / tenant),
                "--outputs", str(self.folder / "outputs"),
                "--work", str(self.folder / "work" / tenant),
                "--slots", str(slots), "--cpus", str(slots), "--memory", str(1 << 30), "--disk", str(1 << 30),
                "--host", who, "--claim-wait", "10",
            ]  # fmt: skip

        self._add(Child("pilot", f"pilot-{number + 1:02}", words, environment, self._logs))

    def _urls(self) -> list[str]:
        return [f"http://127.0.0.1:{self.ports[f'server-{number + 1}']}" for number in range(self.size.servers)]

    async def _until_servers_answer(self) -> None:
        give_up = time.monotonic() + 120
        async with httpx.AsyncClient(timeout=5) as client:
            for url in self._urls():
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

    # -- the acts ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """All acts, while jobs are submitted; then quiet."""
        watch = asyncio.create_task(self.crew.watch())
        progress = asyncio.create_task(self._progress())
        length = sum(act.seconds + act.rest for act in self.size.acts)
        submitting = asyncio.create_task(self.submitter.run(length * 0.9))
        acts: dict[str, Callable[[Act], Awaitable[None]]] = {
            "pilots": self._pilots,
            "services": self._services,
            "nodes": self._nodes,
            "store frozen": self._store_frozen,
            "store cut off": self._store_cut_off,
            "no server": self._no_server,
            "storm": self._storm,
        }
        try:
            await self._until_work_runs()
            for act in self.size.acts:
                self.act = act.name
                say(f"act: {act.name}, {act.seconds:.0f} s")
                await acts[act.name](act)
                self.act = "rest"
                await asyncio.sleep(act.rest)
            self.act = "quiet"
            self._heal()
            say("the faults are over; waiting until every job is final")
            await submitting
            await asyncio.gather(*self.asides)
            await self._until_final()
        finally:
            for task in (progress, submitting, *self.asides):
                task.cancel()
            await asyncio.gather(progress, submitting, *self.asides, return_exceptions=True)
            self.crew.ending = True
            await watch
            self.crew.ending = False

    async def _until_work_runs(self) -> None:
        """Until every twentieth job is done: a store that has just started is not what is judged."""
        while sum(count for state, count in (await self.states()).items() if state in FINAL) < self.size.jobs / 20:  # noqa: ASYNC110
            await asyncio.sleep(0.5)

    async def _pilots(self, act: Act) -> None:
        """Deaths and silences of pilots, and nothing else: here the figures are taken."""
        until = time.monotonic() + act.seconds
        await asyncio.gather(
            self._every(until, self.size.kill_every, self._kill, "pilot"),
            self._every(until, 9.0, self._short_pause, "pilot"),
            self._silences(until),
        )

    async def _services(self, act: Act) -> None:
        """Servers and keepers die and stop; answers are lost; pilots' connections are cut."""
        until = time.monotonic() + act.seconds
        await self._losing(
            0.01,
            0.005,
            self._every(until, 2 * self.size.kill_every, self._kill, "pilot"),
            self._every(until, 15.0, self._kill, "server"),
            self._every(until, 25.0, self._short_pause, "server"),
            self._every(until, 20.0, self._kill, "keeper"),
            self._every(until, 35.0, self._short_pause, "keeper"),
            self._every(until, 7.0, self._cut),
            self._every(until, 11.0, self._short_pause, "pilot"),
        )

    async def _nodes(self, act: Act) -> None:
        """Nodes of the store die, one at a time; the next when all copies are there again."""
        until = time.monotonic() + act.seconds

        async def nodes() -> None:
            while time.monotonic() < until:
                await self.store.kill(self.chance.randint(1, NODES), down=self.chance.uniform(5.0, 15.0))
                await asyncio.sleep(5.0)

        self._aside(nodes())
        await asyncio.gather(
            self._every(until, 2 * self.size.kill_every, self._kill, "pilot"),
            self._every(until, 40.0, self._kill, "server"),
            self._every(until, 45.0, self._kill, "keeper"),
        )

    async def _store_frozen(self, act: Act) -> None:
        await asyncio.gather(*self.asides)  # all nodes are there again
        await asyncio.gather(self.store.freeze(act.seconds), self._during_outage(act.seconds))

    async def _store_cut_off(self, act: Act) -> None:
        fault = self.faults.begin("down", "store", "cut off")
        self.order(do="shut", way="store-")
        await self._during_outage(act.seconds)
        self.order(do="open", way="store-")
        self.faults.end(fault)

    async def _during_outage(self, seconds: float) -> None:
        """While the store is away pilots die too, and a server starts in vain."""
        until = time.monotonic() + seconds
        await asyncio.sleep(seconds / 3)
        self._kill("pilot")
        self._kill("server")
        await asyncio.sleep(max(0.0, until - time.monotonic()))

    async def _no_server(self, act: Act) -> None:
        for server in self.crew.of("server"):
            self.crew.kill(server, restart_after=act.seconds)
        await asyncio.sleep(act.seconds)

    async def _storm(self, act: Act) -> None:
        """Everything at once, with every tenth answer lost."""
        until = time.monotonic() + act.seconds
        await asyncio.gather(*self.asides)  # all nodes are there again
        self._aside(self.store.kill(self.chance.randint(1, NODES), down=10.0))
        await self._losing(
            0.1,
            0.05,
            self._every(until, self.size.kill_every, self._kill, "pilot"),
            self._every(until, 6.0, self._short_pause, "pilot"),
            self._every(until, 20.0, self._kill, "server"),
            self._every(until, 30.0, self._short_pause, "server"),
            self._every(until, 25.0, self._kill, "keeper"),
            self._every(until, 5.0, self._cut),
        )

    # -- single faults -----------------------------------------------------------------------------------------

    async def _every(self, until: float, mean: float, do: Callable[..., None], *words: Any) -> None:
        """Do something again and again, about so many seconds apart."""
        while True:
            wait = self.chance.uniform(0.5, 1.5) * mean
            if time.monotonic() + wait >= until:
                await asyncio.sleep(max(0.0, until - time.monotonic()))
                return
            do(*words)
            await asyncio.sleep(wait)

    async def _losing(self, of_pilots: float, of_servers: float, *work: Awaitable[None]) -> None:
        """Lose this share of the answers to pilots and to servers while the work goes on."""
        faults = [
            self.faults.begin("lose", "server", str(of_pilots)),
            self.faults.begin("lose", "store", str(of_servers)),
        ]
        self.order(do="lose", way="server-", rate=of_pilots)
        self.order(do="lose", way="store-", rate=of_servers)
        try:
            await asyncio.gather(*work)
        finally:
            self.order(do="lose", rate=0.0)
            for fault in faults:
                self.faults.end(fault)

    def _kill(self, what: str) -> None:
        ready = self.crew.ready(what)
        if ready and (what != "server" or len(ready) > 1):
            self.crew.kill(self.chance.choice(ready), restart_after=self.chance.uniform(0.5, 3.0))

    def _short_pause(self, what: str) -> None:
        """SIGSTOP for less than the lease: nothing may come of it."""
        ready = self.crew.ready(what)
        if ready and (what != "server" or len(ready) > 1):
            longest = min(20.0, 0.6 * self.size.lease) if what == "pilot" else 20.0
            self._aside(self.crew.pause(self.chance.choice(ready), self.chance.uniform(1.0, longest)))

    async def _silences(self, until: float) -> None:
        """SIGSTOP of some pilots for longer than anyone waits; they come back as zombies. Then some others."""
        seconds = max(1.2 * self.size.lease, self.size.lease + 10.0) + 10.0
        while time.monotonic() + seconds < until:
            ready = self.crew.ready("pilot")
            some = self.chance.sample(ready, min(self.size.stopped_at_once, len(ready) // 2))
            await asyncio.gather(*(self.crew.pause(child, seconds) for child in some))

    def _cut(self) -> None:
        self.order(do="cut", way="server-")

    def _aside(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.asides.add(task)
        task.add_done_callback(self._aside_done)

    def _aside_done(self, task: asyncio.Task[None]) -> None:
        """One that failed stays, so that whoever waits for it learns why."""
        if task.cancelled() or task.exception() is None:
            self.asides.discard(task)

    def _heal(self) -> None:
        self.order(do="open")
        self.order(do="lose", rate=0.0)
        for child in self.crew.children:
            self.crew.go_on(child)

    # -- looking -----------------------------------------------------------------------------------------------

    async def states(self) -> dict[str, int]:
        """How many jobs are in which state, as the servers say."""
        total: dict[str, int] = {}
        async with httpx.AsyncClient(timeout=10) as client:
            for token in self.tokens.values():
                for url in self._urls():
                    headers = {"Authorization": f"Bearer {token}"}
                    with suppress(httpx.HTTPError):
                        answer = await client.get(f"{url}/v1/jobs/counts?by=state", headers=headers)
                        if answer.status_code == 200:
                            for state, count in answer.json()["counts"].items():
                                total[state] = total.get(state, 0) + count
                            break
        return total

    async def stories(self, most: int = 50) -> dict[str, list[tuple[str, int]]]:
        """The stories of jobs that ran more than once, as the servers tell them."""
        starts = Counter(mark.job for mark in read_ledger(self.ledger_path) if mark.word == "START")
        tenants = {job.id: job.tenant for job in self.submitter.accepted}
        told: dict[str, list[tuple[str, int]]] = {}
        async with httpx.AsyncClient(timeout=30) as client:
            for job, count in starts.most_common(most):
                if count < 2:
                    break
                headers = {"Authorization": f"Bearer {self.tokens[tenants[job]]}"}
                answer = await client.get(f"{self._urls()[0]}/v1/jobs/{job}/story", headers=headers)
                told[job] = [(line["event"], line["attempt"]) for line in answer.raise_for_status().json()["story"]]
        return told

    async def _until_final(self) -> None:
        """Wait for the end, or for so long that something must be stuck."""
        give_up = time.monotonic() + self.size.quiet
        while time.monotonic() < give_up:
            states = await self.states()
            if sum(states.get(state, 0) for state in FINAL) >= self.size.jobs and set(states) <= set(FINAL):
                return
            await asyncio.sleep(1.0)
        say("not every job became final in time")

    async def _progress(self) -> None:
        while True:
            await asyncio.sleep(10.0)
            states = await self.states()
            told = " ".join(f"{state} {count}" for state, count in sorted(states.items())) or "no answer"
            pilots = self.crew.of("pilot")
            say(
                f"[{self.act}] accepted {len(self.submitter.accepted)}, {told}; "
                f"pilots {sum(one.up and one.pause is None for one in pilots)}/{len(pilots)}, "
                f"faults {len(self.faults.faults)}"
            )


def _holdfast() -> str:
    return str(Path(sys.executable).with_name("holdfast"))


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
