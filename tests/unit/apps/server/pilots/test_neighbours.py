"""Pilots of one host are told of each other: at registration, and with every heartbeat."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot


def area(name: str) -> dict[str, Any]:
    return {"path": f"/scratch/cache/area-{name}", "space": 10**10}


def names(answer: dict[str, Any]) -> dict[str, str]:
    return {neighbour["pilot"]: neighbour["cache"] for neighbour in answer["neighbours"]}


async def register(server: RunningServer, tenant: str, **body: Any) -> dict[str, Any]:
    answer = await server.person("enrol", tenant=tenant).post("/v1/pilots", json={"host": "node1", **body})
    assert answer.status_code == 201, answer.text
    returned_body: dict[str, Any] = answer.json()
    return returned_body


@pytest.mark.ledger("P3-08")
async def test_a_pilot_learns_of_the_others_on_its_host(server: RunningServer, tenant: str) -> None:
    first = await ScriptedPilot.register(server, tenant, host="node1", cache=area("1"))
    second = await register(server, tenant, cache=area("2"))
    assert names(second) == {first.name: "/scratch/cache/area-1"}
    for elsewhere in (
        await register(server, tenant, host="node2", cache=area("3")),
        await register(server, tenant, site="another", cache=area("4")),
        await register(server, f"{tenant}x", cache=area("5")),
        await register(server, tenant),
    ):
        assert elsewhere["neighbours"] == []
    assert names(await first.heartbeat()) == {second["pilot"]: "/scratch/cache/area-2"}


@pytest.mark.ledger("P3-08", "P3-09")
async def test_heartbeats_tell_who_came_and_went(server: RunningServer, tenant: str) -> None:
    first = await ScriptedPilot.register(server, tenant, host="node1", cache=area("1"))
    assert (await first.heartbeat())["neighbours"] == []
    second = await ScriptedPilot.register(server, tenant, host="node1", cache=area("2"))
    await second.heartbeat()
    assert list(names(await first.heartbeat())) == [second.name]
    await second.bye()
    assert (await first.heartbeat())["neighbours"] == []


async def test_a_pilot_without_a_cache_is_told_of_nobody(server: RunningServer, tenant: str) -> None:
    await register(server, tenant, cache=area("1"))
    pilot = await ScriptedPilot.register(server, tenant, host="node1")
    assert (await pilot.heartbeat()).get("neighbours") is None


async def test_another_server_knows_the_neighbours_too(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    first = await ScriptedPilot.register(server, tenant, host="node1", cache=area("1"))
    second = await ScriptedPilot.register(other, tenant, host="node1", cache=area("2"))
    server.services.neighbours.again = 0.1

    async def told() -> bool:
        return list(names(await first.heartbeat())) == [second.name]

    try:
        await until(told, "what was registered at the other server")
    finally:
        server.services.neighbours.again = 15.0


async def test_a_server_that_is_new_learns_when_the_pilot_asks_for_work(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    first = await ScriptedPilot.register(server, tenant, host="node1", cache=area("1"))
    second = await ScriptedPilot.register(server, tenant, host="node1", cache=area("2"))
    assert (await first.heartbeat(server=other)).get("neighbours") is None, "it keeps the list it has"
    await first.claim(server=other, wait=0)

    async def told() -> bool:
        answer = await first.heartbeat(server=other)
        return bool(answer.get("neighbours")) and list(names(answer)) == [second.name]

    await until(told, "the list from the store")


@pytest.mark.ledger("P3-08")
async def test_a_heartbeat_reads_nothing_from_the_store(
    server: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pilot = await ScriptedPilot.register(server, tenant, host="node1", cache=area("1"))
    asked: list[str] = []
    documents = server.services.components.documents
    read = documents.get

    async def get(*names: Any, **more: Any) -> Any:
        # The server's own loops read the store beside it: only what a request asks for counts.
        asked.extend(frame.filename for frame in traceback.extract_stack() if "forestay/apps/server" in frame.filename)
        return await read(*names, **more)

    monkeypatch.setattr(documents, "get", get)
    for _ in range(5):
        assert (await pilot.heartbeat())["neighbours"] == []
    assert asked == []


@pytest.mark.parametrize(
    "cache", [{"path": "relative"}, {"path": "/a", "space": -1}, {"path": ""}, {"path": "/a", "x": 1}]
)
async def test_an_odd_cache_is_refused(server: RunningServer, tenant: str, cache: dict[str, Any]) -> None:
    answer = await server.person("enrol", tenant=tenant).post("/v1/pilots", json={"host": "node1", "cache": cache})
    assert answer.status_code == 422
