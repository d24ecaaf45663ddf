"""A pilot that does what a test tells it, and speaks the real protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from tests.unit.apps.server.event_reader import EventReader, read_events
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.running import RunningServer

PLENTY = {"cpus": 64, "memory": 1 << 40, "disk": 1 << 40, "gpus": 8}


@dataclass(eq=False)
class ScriptedPilot:
    """One registered pilot."""

    name: str
    token: str
    home: RunningServer
    counter: int = 0
    session: int = 0

    @classmethod
    async def register(cls, server: RunningServer, tenant: str, **body: Any) -> ScriptedPilot:
        enrol = server.person("enrol", tenant=tenant, subject="enroller")
        answer = await enrol.post("/v1/pilots", json={"host": "node1", "slots": 4, "resources": PLENTY} | body)
        assert answer.status_code == 201, answer.text
        return cls(answer.json()["pilot"], answer.json()["token"], server)

    async def post(self, what: str, body: dict[str, Any], server: RunningServer | None = None) -> httpx.Response:
        async with self._own_client(server) as client:
            return await client.post(f"/v1/pilots/{self.name}/{what}", json=body)

    def _own_client(self, server: RunningServer | None) -> httpx.AsyncClient:
        asked = server or self.home
        return http_client(asked.url, self.token, event_hooks=asked.hooks)

    async def claim(
        self, *, most: int = 1, wait: float = 10, server: RunningServer | None = None, **body: Any
    ) -> list[dict[str, Any]]:
        """Ask for work."""
        answer = await self.post("claims", {"max": most, "wait": wait, "resources": PLENTY} | body, server)
        assert answer.status_code == 200, answer.text
        claims: list[dict[str, Any]] = answer.json()["claims"]
        return claims

    async def claim_many(self, number: int) -> list[dict[str, Any]]:
        """So many claims, by as many requests as it takes: one is answered with what is at hand."""
        claims: list[dict[str, Any]] = []
        while len(claims) < number:
            more = await self.claim(most=number - len(claims))
            assert more, f"{len(claims)} of {number} jobs"
            claims += more
        return claims

    async def renew(self) -> None:
        """Take a new token, as real pilots do long before theirs ends."""
        answer = await self.post("token", {})
        assert answer.status_code == 200, answer.text
        self.token = answer.json()["token"]

    async def claim_one(self, **body: Any) -> dict[str, Any]:
        (claim,) = await self.claim(**body)
        return claim

    async def heartbeat(self, *claims: str, server: RunningServer | None = None) -> dict[str, Any]:
        self.counter += 1
        body = {"counter": self.counter, "session": self.session, "claims": list(claims)}
        answer = await self.post("heartbeat", body, server)
        assert answer.status_code == 200, answer.text
        returned_body: dict[str, Any] = answer.json()
        return returned_body

    async def end(self, *claims: dict[str, Any], server: RunningServer | None = None, **facts: Any) -> list[str]:
        """Bring the ends of claims, good ones unless told otherwise; what became of each."""
        answer = await self.post("completions", {"completions": [end_of(claim, **facts) for claim in claims]}, server)
        assert answer.status_code == 200, answer.text
        return [result["result"] for result in answer.json()["results"]]

    @asynccontextmanager
    async def channel(self, server: RunningServer | None = None) -> AsyncIterator[EventReader]:
        """Hold a channel open; returns when the server says that it is."""
        self.session += 1
        async with (
            self._own_client(server) as client,
            read_events(client, f"/v1/pilots/{self.name}/channel", session=self.session) as reader,
        ):
            await reader.wait_for("open")
            yield reader

    async def bye(self) -> None:
        async with self._own_client(None) as client:
            (await client.delete(f"/v1/pilots/{self.name}")).raise_for_status()


def own_manifest(claim: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """A manifest in the folder of the claimed attempt, as a pilot names it."""
    folder = f"{claim['tenant']}/{claim['job']}/{claim['generation']}.{claim['attempt']}.{claim['claim'][:8]}"
    return {"path": f"/out/{folder}/manifest.json", "sha256": "0" * 64, "files": 1, "bytes": 2} | facts


def end_of(claim: dict[str, Any], **facts: Any) -> dict[str, Any]:
    """The end of a claim as a pilot sends it."""
    known = {name: claim[name] for name in ("job", "generation", "attempt", "claim")}
    return known | {"outcome": "ok", "reason": "exit", "exit_code": 0, "wall": 0.5, "host": "node1"} | facts
