"""Submits the jobs of a campaign, under faults, and keeps its own journal of what was accepted.

Every batch has an idempotency key and is sent until it is acknowledged; some are sent twice at once, some again later, some keys
with another body. The journal is what the auditor holds Forestay to.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tests.system.chaos.sizes import Size

PAYLOAD = Path(__file__).with_name("payload.sh")
ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Accepted:
    """A job that was acknowledged to us."""

    id: str
    tenant: str
    kind: str
    """`short`, `long`, `failing` or `broken`."""


@dataclass(slots=True)
class Submitter:
    """The client of the campaign."""

    size: Size
    servers: list[str]
    tokens: dict[str, str]
    """By tenant."""
    journal: Path
    ledger_port: int
    chance: random.Random
    accepted: list[Accepted] = field(default_factory=list)
    tally: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    """What the idempotency key should have prevented."""

    async def run(self, seconds: float) -> None:
        """Submit everything, spread over so many seconds; a tenth at once, so that there is work from the start."""
        left = self.size.jobs
        batches: list[int] = []
        while left:
            batches.append(min(left, self.size.batch))
            left -= batches[-1]
        at_once = max(self.size.tenants, len(batches) // 10)
        pause = seconds / max(1, len(batches) - at_once)
        tasks: set[asyncio.Task[None]] = set()
        async with httpx.AsyncClient(timeout=30) as client:
            for number, count in enumerate(batches):
                tasks.add(asyncio.create_task(self._submit(client, number, count)))
                if number >= at_once:
                    await asyncio.sleep(pause)
            await asyncio.gather(*tasks)

    async def _submit(self, client: httpx.AsyncClient, number: int, count: int) -> None:
        tenant = f"tenant-{number % self.size.tenants + 1}"
        key = f"batch-{number}"
        body, kinds = self._body(key, count)
        ids = await self._until_accepted(client, tenant, key, body, twice=self.chance.random() < 0.3)
        line = {"at": time.time(), "key": key, "tenant": tenant, "ids": ids, "kinds": kinds}
        with self.journal.open("a") as journal:
            journal.write(json.dumps(line) + "\n")
            journal.flush()
            os.fsync(journal.fileno())
        self.accepted += [Accepted(job, tenant, kind) for job, kind in zip(ids, kinds, strict=True)]
        if self.chance.random() < 0.4:
            await asyncio.sleep(self.chance.uniform(0, 20))
            self.tally["repeated"] += 1
            if await self._until_accepted(client, tenant, key, body, twice=False) != ids:
                self.wrong.append(f"{key}: other ids when it was sent again")
        if self.chance.random() < 0.1:
            await self._misuse(client, tenant, key, body)

    def _body(self, key: str, count: int) -> tuple[dict[str, Any], list[str]]:
        size, chance = self.size, self.chance
        jobs: list[dict[str, Any]] = []
        kinds: list[str] = []
        for index in range(count):
            dice = chance.random()
            kind, span, fails = "short", size.short, 0
            if dice < size.long_share:
                kind, span = "long", size.long
            elif dice < size.long_share + size.failing_share:
                kind, fails = "failing", 1
            elif dice < size.long_share + size.failing_share + size.broken_share:
                kind, fails = "broken", 1000
            seconds = f"{chance.uniform(*span):.2f}"
            kinds.append(kind)
            jobs.append({"index": index, "parameters": {"seconds": seconds, "fails": fails}, "labels": {"batch": key}})
        specification = {
            "name": "chaos",
            "command": ["bash", str(PAYLOAD), "{seconds}", "{fails}"],
            "environment": {"CHAOS_LEDGER": str(self.ledger_port)},
            "outputs": ["result.txt"],
            "max_attempts": ATTEMPTS,
        }
        return {"specification": specification, "jobs": jobs}, kinds

    async def _until_accepted(
        self, client: httpx.AsyncClient, tenant: str, key: str, body: dict[str, Any], *, twice: bool
    ) -> list[str]:
        while True:
            asked = [self._post(client, tenant, key, body) for _ in range(2 if twice else 1)]
            answers = [answer for answer in await asyncio.gather(*asked) if answer is not None]
            if answers:
                if any(answer != answers[0] for answer in answers):
                    self.wrong.append(f"{key}: two requests at once got different ids")
                self.tally["twice at once"] += twice
                return answers[0]
            self.tally["sent again"] += 1
            await asyncio.sleep(self.chance.uniform(0.2, 1.0))

    async def _post(self, client: httpx.AsyncClient, tenant: str, key: str, body: dict[str, Any]) -> list[str] | None:
        """The ids, or none when the outcome is not known."""
        headers = {"Authorization": f"Bearer {self.tokens[tenant]}", "Idempotency-Key": key}
        server = self.chance.choice(self.servers)
        try:
            answer = await client.post(f"{server}/v1/jobs", json=body, headers=headers)
        except httpx.HTTPError:
            return None
        if answer.status_code == 201:
            return [job["id"] for job in answer.json()["jobs"]]
        if answer.status_code < 500 and answer.status_code != 429:
            self.wrong.append(f"{key}: {answer.status_code} {answer.text[:200]}")
        return None

    async def _misuse(self, client: httpx.AsyncClient, tenant: str, key: str, body: dict[str, Any]) -> None:
        """The same key with another body must be refused."""
        headers = {"Authorization": f"Bearer {self.tokens[tenant]}", "Idempotency-Key": key}
        other = body | {"jobs": body["jobs"][:-1] or body["jobs"] * 2}
        try:
            answer = await client.post(f"{self.chance.choice(self.servers)}/v1/jobs", json=other, headers=headers)
        except httpx.HTTPError:
            return
        if answer.status_code != 409 and answer.status_code < 500:
            self.wrong.append(f"{key}: another body with the same key was answered {answer.status_code}")
        self.tally["key misused"] += 1
