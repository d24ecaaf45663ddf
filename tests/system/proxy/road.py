"""A road between the proxy and a real task server, on which things go wrong when a test says so: the server itself stays as it is."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.unit.apps.server.running import until

from forestay.apps.uvicorn_signals import UvicornWithoutSignals


@dataclass(eq=False)
class Road:
    """What passes, and what is done to it. Tasks are named by what their clients call them."""

    to: str
    url: str = ""
    lost_answers: set[str] = field(default_factory=set)
    """The first creation of these reaches the server, and its answer does not come back."""
    ended_as: dict[str, str] = field(default_factory=dict)
    """The first task of these is shown to have ended so, once it has ended."""
    spoiled: dict[str, int] = field(default_factory=dict)
    """How many tasks of these are shown so, if it is more than the first."""
    forgotten: set[str] = field(default_factory=set)
    """The first task of these is not known any more, once it was made."""
    made: list[tuple[str, str]] = field(default_factory=list)
    """Every creation that the server took: name and id."""
    calls: list[tuple[str, str]] = field(default_factory=list)

    def first(self, name: str) -> str | None:
        return next((task for known, task in self.made if known == name), None)

    def tasks(self, name: str) -> list[str]:
        return [task for known, task in self.made if known == name]

    async def pass_on(self, request: Request) -> Response:
        body = await request.body()
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        headers = {
            name: value
            for name, value in request.headers.items()
            if name in ("authorization", "content-type", "idempotency-key")
        }
        self.calls.append((request.method, request.url.path))
        try:
            async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
                answer = await client.request(request.method, self.to + path, content=body, headers=headers)
        except httpx.HTTPError:
            return Response("the server is away", status_code=502)
        status, content = answer.status_code, answer.content
        if request.method == "POST" and request.url.path.endswith("/tasks") and answer.is_success:
            name = orjson.loads(body).get("name", "")
            first = self.first(name) is None
            self.made.append((name, orjson.loads(content)["id"]))
            if first and name in self.lost_answers:
                return Response("the answer is lost", status_code=504)
        elif request.method == "GET" and answer.is_success:
            status, content = self._spoil(request.url.path, orjson.loads(content), content)
        return Response(content, status_code=status, media_type="application/json")

    def _spoil(self, path: str, shown: dict[str, Any], content: bytes) -> tuple[int, bytes]:
        gone = {self.first(name) for name in self.forgotten}
        if "tasks" in shown:
            shown["tasks"] = [task for task in shown["tasks"] if task["id"] not in gone]
            return 200, orjson.dumps(shown)
        if path.rpartition("/")[2] in gone:
            return 404, b"{}"
        for name, state in self.ended_as.items():
            if shown.get("id") in self.tasks(name)[: self.spoiled.get(name, 1)] and shown.get("state") == "COMPLETE":
                shown["state"] = state
                shown["logs"] = [{"logs": [], "outputs": [], "system_logs": ["the node went away"]}]
                return 200, orjson.dumps(shown)
        return 200, content


@asynccontextmanager
async def open_road(to: str) -> AsyncIterator[Road]:
    """A road to a server; closed at the end."""
    road = Road(to)
    app = Starlette(routes=[Route("/{rest:path}", road.pass_on, methods=["GET", "POST"])])
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        road.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = UvicornWithoutSignals(uvicorn.Config(app, log_config=None, access_log=False))
        task = asyncio.create_task(server.serve(sockets=[listener]))

        async def started() -> bool:
            return server.started

        await until(started, "the road")
        try:
            yield road
        finally:
            server.should_exit = True
            await task
