"""A task that is asked for twice because the first answer was lost is made once; two that are meant are two."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

import httpx
import pytest
import tes
from tests.system.tes.conftest import Site, shell
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.fixtures import domain, other, server, store_kind, tenant
from tests.unit.apps.server.running import RunningServer

from forestay.ports.errors import Transient

__all__ = ["domain", "other", "server", "store_kind", "tenant"]

TASK: dict[str, Any] = {"executors": [{"image": "alpine", "command": ["echo", "hello"]}]}


class Gateway:
    """Stands between client and server, and loses the first answer to a POST."""

    def __init__(self, to: str, how: str) -> None:
        self.to, self.how = to, how
        self.lost: list[str] = []
        self.posts: list[str] = []
        self.port = 0


@contextmanager
def gateway(to: str, how: str) -> Iterator[Gateway]:
    state = Gateway(to, how)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
            pass

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            keep = {name: self.headers[name] for name in ("Authorization", "Content-Type") if name in self.headers}
            answer = httpx.request(self.command, state.to + self.path, content=body, headers=keep, timeout=30)
            if self.command == "POST":
                state.posts.append(self.path)
                if not state.lost:
                    state.lost.append(answer.json()["id"])
                    if state.how == "cut":
                        self.connection.shutdown(socket.SHUT_RDWR)
                        return
                    self.send_response(502)
                    self.end_headers()
                    return
            self.send_response(answer.status_code)
            self.send_header("Content-Type", answer.headers["content-type"])
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = _pass  # noqa: N815 - as the library calls them

    service = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.port = service.server_address[1]
    thread = threading.Thread(target=service.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield state
    finally:
        service.shutdown()
        thread.join()
        service.server_close()


@pytest.mark.parametrize("how", ["502", "cut"])
def test_py_tes_posts_again_after_a_lost_answer_and_one_task_is_made(site: Site, how: str) -> None:
    quiet = f"q-{uuid4().hex[:8]}"
    with gateway(site.server.url, how) as between:
        client = tes.HTTPClient(f"http://127.0.0.1:{between.port}", timeout=30, token=site.token(tenant=quiet))
        name = client.create_task(tes.Task(name="once", executors=[shell("true")]))
        assert between.posts == ["/ga4gh/tes/v1/tasks", "/v1/tasks"]
        assert [name] == between.lost
        assert [task.id for task in client.list_tasks().tasks] == [name]
        second = client.create_task(tes.Task(name="once", executors=[shell("true")]))
        assert second != name, "one that is meant is another"


async def test_an_answer_that_says_it_failed_is_followed_by_the_same_task(
    server: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store took the task and did not say so: 503, and the same request again finds it."""
    submit = server.services.task_factory.submit
    real = type(submit).submit_named
    failing = [True]

    async def once(self: Any, *arguments: Any, **more: Any) -> Any:
        made = await real(self, *arguments, **more)
        if failing and self is submit:
            failing.pop()
            raise Transient("the store did not answer")
        return made

    monkeypatch.setattr(type(submit), "submit_named", once)
    ada = server.person("submitter", tenant=tenant)
    problem(await ada.post("/ga4gh/tes/v1/tasks", json=TASK), 503)
    first = (await ada.post("/ga4gh/tes/v1/tasks", json=TASK)).json()["id"]
    await server.refresh()
    assert [task["id"] for task in (await ada.get("/v1/tasks")).json()["tasks"]] == [first]
    assert (await ada.post("/ga4gh/tes/v1/tasks", json=TASK)).json()["id"] != first


async def test_the_same_key_is_the_same_task_at_any_server(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    ada, there = server.person("submitter", tenant=tenant), other.person("submitter", tenant=tenant)
    key = {"Idempotency-Key": "k1"}
    first = (await ada.post("/ga4gh/tes/v1/tasks", json=TASK, headers=key)).json()["id"]
    assert (await there.post("/v1/tasks", json=TASK, headers=key)).json()["id"] == first
    problem(await ada.post("/v1/tasks", json=TASK | {"name": "other"}, headers=key), 409)
    tagged = TASK | {"tags": {"forestay.key": "k2"}}
    second = (await ada.post("/ga4gh/tes/v1/tasks", json=tagged)).json()["id"]
    assert (await there.post("/ga4gh/tes/v1/tasks", json=tagged)).json()["id"] == second != first
    bob = server.person("submitter", tenant=tenant, subject="bob")
    assert (await bob.post("/v1/tasks", json=TASK, headers=key)).json()["id"] != first, "a key is its owner's"


async def test_tasks_that_are_meant_are_as_many_as_were_asked_for_at_any_servers(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    doors = [running_server.person("submitter", tenant=tenant) for running_server in (server, other)]
    names = [(await doors[turn % 2].post("/ga4gh/tes/v1/tasks", json=TASK)).json()["id"] for turn in range(8)]
    assert len(set(names)) == 8
    crowd = await asyncio.gather(*(doors[turn % 2].post("/v1/tasks", json=TASK | {"name": "x"}) for turn in range(20)))
    assert all(response.status_code == 200 for response in crowd)
