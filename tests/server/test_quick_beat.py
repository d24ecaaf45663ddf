"""Beats by the short way: the same answers as by the long one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.asks import problem
from tests.server.http_client import http_client
from tests.server.running import RunningServer
from tests.server.scripted_pilot import ScriptedPilot


async def test_a_beat_is_stored_and_answered(server: RunningServer, tenant: str) -> None:
    pilot = await ScriptedPilot.register(server, tenant)
    answer = await pilot.post("beat", {"counter": 3, "claims": ["c-1"], "session": 2})
    assert answer.status_code == 200
    assert answer.json() == {"token": None, "token_seconds": 0, "cancel": [], "drain": False}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    beat = server.services.beats.last_beat(pilot.name)
    assert beat is not None
    assert (beat.counter, beat.session, beat.claims) == (3, 2, ("c-1",))


@pytest.mark.parametrize(
    "body",
    [
        {}, {"counter": -1}, {"counter": 1, "claims": "c"}, {"counter": 1, "claims": [""]},
        {"counter": 1, "claims": ["a b"]}, {"counter": 1, "more": 1}, {"counter": 2**64}, [], {"counter": 1, "session": -1},
    ],
)  # fmt: skip
async def test_what_is_wrong_gets_the_usual_answer(server: RunningServer, tenant: str, body: Any) -> None:
    pilot = await ScriptedPilot.register(server, tenant)
    problem(await pilot.post("beat", body), 422)
    assert server.services.beats.last_beat(pilot.name) is None


async def test_only_the_pilot_itself_beats(server: RunningServer, tenant: str) -> None:
    pilot, other = await ScriptedPilot.register(server, tenant), await ScriptedPilot.register(server, tenant)
    async with http_client(server.url, other.token) as client:
        problem(await client.post(f"/v1/pilots/{pilot.name}/beat", json={"counter": 1}), 403)
    async with http_client(server.url, "nonsense") as client:
        problem(await client.post(f"/v1/pilots/{pilot.name}/beat", json={"counter": 1}), 401)
    submitter = server.person("submitter", tenant=tenant, subject=pilot.name)
    problem(await submitter.post(f"/v1/pilots/{pilot.name}/beat", json={"counter": 1}), 403)
