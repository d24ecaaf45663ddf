"""Jobs that are submitted while things break, and an auditor who compares what was accepted, what the store says and what was really run."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from tests.unit.apps.server.processes import Processes, Started, processes
from tests.unit.apps.server.running import Domain, until

TENANT = "physics"
FINAL = ("completed", "failed", "cancelled")


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""


@dataclass(eq=False)
class Load:
    """A client that submits one job after the other and never gives a key up."""

    client: httpx.AsyncClient
    effects: Path
    """One line for each start of a payload, written by the payload."""
    seconds: float = 0.2
    """How long a payload takes."""
    accepted: dict[str, float] = field(default_factory=dict)
    """When each job was acknowledged."""
    refused: Counter[str] = field(default_factory=Counter)
    over: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    """What the auditor counted at the end."""

    async def submit(self, seconds: float | None = None) -> str:
        """One job, sent until it is acknowledged."""
        key = str(uuid4())
        while True:
            if name := await self.once(key, seconds):
                return name
            await asyncio.sleep(0.2)

    async def once(self, key: str, seconds: float | None = None) -> str:
        """Send a job; empty when it was not acknowledged."""
        line = f'echo "$FORESTAY_JOB $FORESTAY_ATTEMPT" >> {self.effects}; sleep {seconds or self.seconds}'
        line += f'; echo "$FORESTAY_JOB" >> {self.ends}'
        body = {"specification": {"name": "load", "command": ["sh", "-c", line]}, "jobs": [{}]}
        try:
            answer = await self.client.post("/v1/jobs", json=body, headers={"Idempotency-Key": key})
        except httpx.HTTPError as error:
            self.refused[type(error).__name__] += 1
            return ""
        if answer.status_code not in (200, 201):
            self.refused[str(answer.status_code)] += 1
            assert answer.status_code in (429, 503), answer.text
            return ""
        name: str = answer.json()["jobs"][0]["id"]
        self.accepted[name] = time.monotonic()
        return name

    async def go_on(self, pause: float = 0.1) -> None:
        while not self.over:
            await self.submit()
            await asyncio.sleep(pause)

    @property
    def ends(self) -> Path:
        """One line for each payload that came to its end."""
        return self.effects.with_name("completions")

    async def more(self, many: int, patience: float = 120) -> None:
        """Wait until so many more jobs are accepted."""
        wanted = len(self.accepted) + many

        async def there() -> bool:
            return len(self.accepted) >= wanted

        await until(there, f"{many} more jobs to be accepted", patience)

    async def begun(self, name: str) -> None:
        await until(self._in(self.effects, f"{name} 1\n"), f"job {name} to begin", 180)

    async def payload_over(self, name: str) -> None:
        await until(self._in(self.ends, f"{name}\n"), f"the payload of {name} to end", 180)

    def _in(self, file: Path, line: str) -> Callable[[], Awaitable[bool]]:
        async def there() -> bool:
            return line in _text(file)

        return there

    def refusals(self) -> int:
        """Answers that say: not now."""
        return self.refused["503"] + self.refused["429"]

    async def refusing(self, many: int = 3, patience: float = 180) -> None:
        """Wait until submissions are refused, so many times more."""
        wanted = self.refusals() + many

        async def there() -> bool:
            return self.refusals() >= wanted

        await until(there, "submissions to be refused", patience)

    async def takes_nothing_through(self, running: str) -> None:
        """Until the payload of a job that runs is over, and then some, not one submission is accepted."""
        known = list(self.accepted)
        await self.payload_over(running)
        await self.refusing()
        assert list(self.accepted) == known, "accepted on a full disk"

    def starts(self) -> Counter[str]:
        return Counter(_text(self.effects).split("\n")[:-1])

    async def done_since(self, moment: float, patience: float) -> float:
        """Seconds from that moment until a job that was accepted after it is over."""

        async def some() -> bool:
            for name, at in list(self.accepted.items()):
                if at > moment and (await self._state(name)) == "completed":
                    return True
            return False

        await until(some, "a job that was submitted since to be over", patience)
        return time.monotonic() - moment

    async def _state(self, name: str) -> str:
        try:
            answer = await self.client.get(f"/v1/jobs/{name}")
        except httpx.HTTPError:
            return ""
        return str(answer.json()["state"]) if answer.status_code == 200 else ""

    async def audit(self, patience: float = 180) -> dict[str, int]:
        """Wait for every accepted job, then compare: none is lost, and no start is unknown to the store."""
        left = dict(self.accepted)

        async def all_over() -> bool:
            for name in list(left):
                if await self._state(name) in FINAL:
                    del left[name]
            return not left

        await until(all_over, "every accepted job to be over", patience)
        starts = self.starts()
        twice = {pair: many for pair, many in starts.items() if many > 1}
        assert not twice, f"attempts that were begun more than once: {twice}"
        begun = Counter(pair.split(" ")[0] for pair in starts)
        extra = 0
        for name in self.accepted:
            body: dict[str, Any] = (await self.client.get(f"/v1/jobs/{name}")).json()
            assert body["state"] == "completed", body
            assert 1 <= begun[name] <= body["attempt"], (name, begun[name], body)
            extra += begun[name] - 1
        unknown = begun.keys() - self.accepted.keys()
        assert not unknown, f"run, and never acknowledged although every key was sent until it was: {unknown}"
        return {"accepted": len(self.accepted), "extra": extra}


@dataclass(eq=False)
class Site:
    """Forestay's processes on a store, under load."""

    running: Processes
    server: Started
    load: Load
    folder: Path
    runs: list[str] = field(default_factory=list)

    @property
    def client(self) -> httpx.AsyncClient:
        return self.load.client

    @property
    def run_effects(self) -> Path:
        return self.folder / "run-effects"

    async def start_run(self, jobs: int, seconds: float = 0.5) -> str:
        """A run of so many jobs and one after them."""
        line = f'echo "$FORESTAY_JOB $FORESTAY_ATTEMPT" >> {self.run_effects}; sleep {seconds}'
        flow = {
            "forestay": 1,
            "name": "many",
            "tasks": {
                "many": {"scatter": {"n": list(range(jobs))}, "command": ["sh", "-c", line]},
                "last": {"after": ["many"], "command": ["sh", "-c", line]},
            },
        }
        stored = await self.client.post("/v1/flows", json={"text": json.dumps(flow)})
        assert stored.status_code in (200, 201), stored.text
        asked, key = {"flow": stored.json()["version"]}, {"Idempotency-Key": str(uuid4())}

        async def taken() -> str | None:
            """Told to come again while Temporal does not know the attributes of a new namespace."""
            answer = await self.client.post("/v1/runs", json=asked, headers=key)
            assert answer.status_code in (200, 201, 503), answer.text
            return None if answer.status_code == 503 else str(answer.json()["id"])

        run: str = await until(taken, "the run to be taken", 120)
        self.runs.append(run)
        return run

    def run_starts(self) -> Counter[str]:
        return Counter(_text(self.run_effects).split("\n")[:-1])

    async def runs_end(self, jobs: int, patience: float = 300) -> None:
        """Every run is completed, and each of its jobs was begun once for each attempt at most."""
        for run in self.runs:

            async def ended(run: str = run) -> bool:
                try:
                    answer = await self.client.get(f"/v1/runs/{run}")
                except httpx.HTTPError:
                    return False
                return answer.status_code == 200 and bool(answer.json()["ended"])

            await until(ended, f"run {run} to end", patience)
            body = (await self.client.get(f"/v1/runs/{run}")).json()
            assert body["state"] == "completed", body
        starts = self.run_starts()
        assert max(starts.values()) == 1, {pair: many for pair, many in starts.items() if many > 1}
        assert len({pair.split(" ")[0] for pair in starts}) == len(self.runs) * (jobs + 1)


@asynccontextmanager
async def site_under_load(
    domain: Domain, folder: Path, *, orchestrator: bool = False, **settings: Any
) -> AsyncIterator[Site]:
    """A server, a reconciler and a pilot; jobs come all the time, until the block ends."""
    async with processes(domain, folder, **{"lease": 30} | settings) as running:
        server = await running.server()
        running.reconciler()
        if orchestrator:
            running.orchestrator()
        running.pilot(TENANT, server, slots=4)
        load = Load(running.client(server, "submitter", "operator", tenant=TENANT), folder / "effects")
        going = asyncio.create_task(load.go_on())
        try:

            async def some() -> bool:
                return sum(load.starts().values()) >= 5

            await until(some, "work to begin", 180)
            yield Site(running, server, load, folder)
            load.over = True
            await asyncio.wait_for(going, 180)
            load.counts = await load.audit()
        finally:
            going.cancel()


def figures(record: Callable[[str, object], None], words: str, load: Load) -> None:
    """What the page says of this run."""
    counts = load.counts
    text = f"{words}; {counts['accepted']} accepted, 0 lost, {counts['extra']} extra attempts, each recorded"
    record("figures", text)
    sys.stderr.write(f"figures: {text}\n")
