"""A pilot that speaks the real protocol through kills of its server, and writes down every payload that it would have run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx
from tests.system.chaos.runs.flows import Fates
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.scripted_pilot import PLENTY, end_of

Facts = Callable[[Mapping[str, Any]], dict[str, Any]]
"""What a pilot says of the end of a claimed job."""
AGAIN = 0.1
"""Seconds before a server that did not answer is asked again."""


class Effect(NamedTuple):
    """A payload ran."""

    job: str
    attempt: int
    claim: str
    name: str
    element: int | None
    command: tuple[str, ...]


async def persist(client: httpx.AsyncClient, method: str, path: str, **request: Any) -> Any:
    """Ask until there is an answer; only for what may be repeated."""
    while True:
        try:
            answer = await client.request(method, path, **request)
            if answer.status_code < 500:
                assert answer.is_success, answer.text
                return answer.json()
        except httpx.HTTPError:
            pass
        await asyncio.sleep(AGAIN)


@dataclass(eq=False)
class Pilot:
    """One registered pilot and what it did."""

    client: httpx.AsyncClient
    name: str
    heartbeat_every: float
    facts: Facts = field(default_factory=lambda: Fates().facts)
    effects: list[Effect] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)
    """What the server said of each claim's end."""
    _held: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    async def fly(self) -> None:
        """Claim and run and end, for ever."""
        while True:
            body = {"max": 32, "wait": 5, "resources": PLENTY}
            try:
                answer = await self.client.post(f"/v1/pilots/{self.name}/claims", json=body)
                claims = answer.json()["claims"] if answer.status_code == 200 else []
            except httpx.HTTPError:
                claims = []  # if any were given, they are not named in the next heartbeats and so given back
            if not claims:
                await asyncio.sleep(AGAIN)
                continue
            self._held |= {claim["claim"]: claim for claim in claims}
            self.effects += [
                Effect(
                    claim["job"], claim["attempt"], claim["claim"], claim["name"], claim.get("index"),
                    tuple(claim["specification"]["command"]),
                )
                for claim in claims
            ]  # fmt: skip
            await self._end(claims)

    async def _end(self, claims: list[dict[str, Any]]) -> None:
        waiting = {claim["claim"]: end_of(claim, **self.facts(claim)) for claim in claims}
        while waiting:
            body = {"completions": list(waiting.values())}
            value = await persist(self.client, "POST", f"/v1/pilots/{self.name}/completions", json=body)
            for result in value["results"]:
                if result["result"] != "unknown":
                    self.results[result["claim"]] = result["result"]
                    self._held.pop(result["claim"], None)
                    waiting.pop(result["claim"], None)
            if waiting:
                await asyncio.sleep(AGAIN)

    async def heartbeat(self) -> None:
        """Name the claims that are held, for ever."""
        counter = 0
        while True:
            counter += 1
            body = {"counter": counter, "session": 0, "claims": list(self._held)}
            await persist(self.client, "POST", f"/v1/pilots/{self.name}/heartbeat", json=body)
            await asyncio.sleep(self.heartbeat_every)


@asynccontextmanager
async def flying(url: str, enrol: str, facts: Facts | None = None) -> AsyncIterator[Pilot]:
    """A pilot that flies while the block lasts."""
    async with http_client(url, enrol) as client:
        body = {"host": "node1", "slots": 32, "resources": PLENTY}
        value = await persist(client, "POST", "/v1/pilots", json=body)
    async with http_client(url, value["token"]) as client:
        pilot = Pilot(client, value["pilot"], value["heartbeat_every"], facts or Fates().facts)
        tasks = [asyncio.create_task(pilot.fly()), asyncio.create_task(pilot.heartbeat())]
        try:
            yield pilot
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
