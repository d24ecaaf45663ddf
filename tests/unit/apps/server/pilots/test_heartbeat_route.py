"""Heartbeats as pilots send them, also as bytes on one connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.running import RunningServer
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

from forestay.ports.errors import Transient


async def test_a_heartbeat_is_stored_and_answered(server: RunningServer, tenant: str) -> None:
    pilot = await ScriptedPilot.register(server, tenant)
    answer = await pilot.post("heartbeat", {"counter": 3, "claims": ["c-1"], "session": 2})
    assert answer.status_code == 200
    assert answer.json() == {"token": None, "token_seconds": 0, "cancel": [], "drain": False}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    heartbeat = server.services.heartbeats.last_heartbeat(pilot.name)
    assert heartbeat is not None
    assert (heartbeat.counter, heartbeat.session, heartbeat.claims) == (3, 2, ("c-1",))


@pytest.mark.parametrize(
    "body",
    [
        {}, {"counter": -1}, {"counter": 1, "claims": "c"}, {"counter": 1, "claims": [""]},
        {"counter": 1, "claims": ["a b"]}, {"counter": 1, "more": 1}, {"counter": 2**64}, [], {"counter": 1, "session": -1},
    ],
)  # fmt: skip
async def test_what_is_wrong_is_refused_and_not_stored(server: RunningServer, tenant: str, body: Any) -> None:
    pilot = await ScriptedPilot.register(server, tenant)
    problem(await pilot.post("heartbeat", body), 422)
    assert server.services.heartbeats.last_heartbeat(pilot.name) is None


async def test_only_the_pilot_itself_heartbeats(server: RunningServer, tenant: str) -> None:
    pilot, other = await ScriptedPilot.register(server, tenant), await ScriptedPilot.register(server, tenant)
    async with http_client(server.url, other.token) as client:
        problem(await client.post(f"/v1/pilots/{pilot.name}/heartbeat", json={"counter": 1}), 403)
    async with http_client(server.url, "nonsense") as client:
        problem(await client.post(f"/v1/pilots/{pilot.name}/heartbeat", json={"counter": 1}), 401)
    submitter = server.person("submitter", tenant=tenant, subject=pilot.name)
    problem(await submitter.post(f"/v1/pilots/{pilot.name}/heartbeat", json={"counter": 1}), 403)


def asked(pilot: ScriptedPilot, counter: int, *more: str) -> bytes:
    body = b'{"counter":%d}' % counter
    lines = [
        f"POST /v1/pilots/{pilot.name}/heartbeat HTTP/1.1", "Host: here", f"Authorization: Bearer {pilot.token}",
        "Content-Type: application/json", f"Content-Length: {len(body)}", *more,
    ]  # fmt: skip
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Wire:
    """A connection on which requests are sent as bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, Any]]:
        async with asyncio.timeout(20):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
            return int(head.split()[1]), json.loads(await self.reader.readexactly(length))


@asynccontextmanager
async def wire(server: RunningServer) -> AsyncIterator[Wire]:
    at = urlsplit(server.url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


async def test_answers_keep_the_order_of_the_requests(server: RunningServer, tenant: str) -> None:
    """Good and bad ones, all sent before the first answer."""
    pilot = await ScriptedPilot.register(server, tenant)
    async with wire(server) as line:
        bad = asked(pilot, 4).replace(b'{"counter":4}', b'{"counter":"}')
        for request in (asked(pilot, 1), asked(pilot, 2), asked(pilot, 3, "X-More: 1"), bad, asked(pilot, 5)):
            await line.send(request)
            await asyncio.sleep(0)
        statuses = [(await line.answer())[0] for _ in range(5)]
        assert statuses == [200, 200, 200, 422, 200]
        await line.send(asked(pilot, 6))
        assert (await line.answer())[0] == 200
    heartbeat = server.services.heartbeats.last_heartbeat(pilot.name)
    assert heartbeat is not None
    assert heartbeat.counter == 6


@pytest.mark.parametrize("cut", [1, 12, 40, -1, -9])
async def test_a_heartbeat_may_come_in_pieces(server: RunningServer, tenant: str, cut: int) -> None:
    pilot = await ScriptedPilot.register(server, tenant)
    async with wire(server) as line:
        request = asked(pilot, 1)
        await line.send(request[:cut])
        await asyncio.sleep(0.02)
        await line.send(request[cut:])
        assert (await line.answer())[0] == 200
        await line.send(asked(pilot, 2))
        assert (await line.answer())[0] == 200


async def test_a_heartbeat_that_cannot_be_stored_is_not_acknowledged(
    server: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pilot = await ScriptedPilot.register(server, tenant)

    async def put_heartbeat_page(_heartbeat_page: object) -> None:
        raise Transient("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(server.services.components.pilots, "put_heartbeat_page", put_heartbeat_page)
        async with wire(server) as line:
            await line.send(asked(pilot, 1))
            status, body = await line.answer()
            assert status == 503, body
    async with wire(server) as line:
        await line.send(asked(pilot, 2))
        assert (await line.answer())[0] == 200
