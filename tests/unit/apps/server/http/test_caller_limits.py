"""What one caller may have of a server at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx
import pytest
from tests.unit.apps.server.http_client import http_client
from tests.unit.apps.server.running import RunningServer, until

from forestay.apps.server.http import caller_limits, event_stream
from forestay.apps.server.http.caller_limits import CALLER, CallerLimits
from forestay.apps.server.http.problems import HttpProblem

pytestmark = pytest.mark.finding("F-B4")


async def _opened(stack: AsyncExitStack, client: httpx.AsyncClient, path: str = "/v1/events") -> int:
    return (await stack.enter_async_context(client.stream("GET", path))).status_code


async def test_the_streams_of_one_caller_are_bounded(
    local: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "REFUSED_AFTER", 0.1)
    async with local.domain.server(caller_streams=3) as server, AsyncExitStack() as stack:
        first = local.domain.token("viewer", tenant=tenant, subject="ada")
        second = local.domain.token("viewer", tenant=tenant, subject="ada", seconds=1800)
        async with http_client(server.url, first) as ada, http_client(server.url, second) as also_ada:
            async with AsyncExitStack() as some:
                for path in ("/v1/events", "/v1/inbox/changes", "/v1/events"):
                    assert await _opened(some, ada, path) == 200, path
                assert await _opened(stack, ada) == 429
                assert await _opened(stack, also_ada) == 429, "another token of the same person"
                assert (await ada.get("/v1/status")).status_code == 200
                async with http_client(server.url, local.domain.token("viewer", tenant=tenant, subject="bob")) as bob:
                    assert await _opened(some, bob) == 200
            callers = server.app.state.context.callers

            async def nobody() -> bool:
                return not callers._callers

            await until(nobody, "the streams' ends")
            assert await _opened(stack, ada) == 200


async def test_the_bytes_of_one_caller_are_bounded(local: RunningServer, tenant: str) -> None:
    async with local.domain.server(caller_bytes=100_000) as server:
        token = local.domain.token("submitter", tenant=tenant)
        go = asyncio.Event()

        async def slowly() -> AsyncIterator[bytes]:
            yield b" " * 80_000
            await go.wait()
            yield b"{}"

        headers = {"Content-Type": "application/json"}
        async with http_client(server.url, token) as ada:
            first = asyncio.create_task(ada.post("/v1/jobs", content=slowly(), headers=headers))
            callers = server.app.state.context.callers

            async def received() -> bool:
                return any(caller.bytes == 80_000 for caller in callers._callers.values())

            await until(received, "the first part of the body")
            assert (await ada.post("/v1/jobs", content=b" " * 30_000, headers=headers)).status_code == 429
            async with http_client(server.url, local.domain.token("submitter", tenant=tenant, subject="bob")) as bob:
                assert (await bob.post("/v1/jobs", content=b" " * 30_000 + b"{}", headers=headers)).status_code == 422
            go.set()
            assert (await first).status_code == 422
            assert (await ada.post("/v1/jobs", content=b" " * 30_000 + b"{}", headers=headers)).status_code == 422


async def test_large_bodies_of_one_caller_are_parsed_one_by_one_with_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = CallerLimits(1, 1)
    monkeypatch.setattr(caller_limits, "PATIENCE", 0.05)
    ada, bob = {CALLER: "t:ada"}, {CALLER: "t:bob"}
    async with limits.large_body(ada) as turn:
        with pytest.raises(HttpProblem) as refused:
            async with limits.large_body(ada):
                pass
        assert refused.value.status_code == 429
        turn.parsed(longest=2.0, total=2.0)
    with pytest.raises(HttpProblem):
        async with limits.large_body(ada):
            pass
    async with limits.large_body(bob):
        assert set(limits._callers) == {"t:ada", "t:bob"}
    assert set(limits._callers) == {"t:ada"}, "only who rests is remembered"


async def test_requests_with_one_token_take_turns() -> None:
    limits = CallerLimits(10, 1, most_at_work=2)
    at_work: list[str] = []
    go = asyncio.Event()

    async def request(name: str, token: bytes, *, wait: bool = False) -> None:
        scope = {"headers": [(b"authorization", token)], CALLER: token.decode()}
        async with limits.at_work(scope):
            at_work.append(name)
            if wait:
                with limits.waiting(scope):
                    await go.wait()
            await go.wait()

    async def settled() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(request(f"ada {n}", b"ada")) for n in range(5)]
    tasks += [asyncio.create_task(request("bob", b"bob"))]
    await settled()
    assert at_work == ["ada 0", "ada 1", "bob"]
    tasks += [asyncio.create_task(request(f"stream {n}", b"eve", wait=True)) for n in range(5)]
    await settled()
    assert [name for name in at_work if name.startswith("stream")] == [f"stream {n}" for n in range(5)]
    go.set()
    await asyncio.gather(*tasks)
    assert len(at_work) == 11
    assert not limits._at_work
    assert not limits._callers
