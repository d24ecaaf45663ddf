"""A server that was started without Temporal says so once: it is not asked again."""

from __future__ import annotations

import pytest
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.running import RunningServer


@pytest.mark.finding("F-D14")
async def test_flows_are_not_available_and_waiting_does_not_help(server: RunningServer) -> None:
    person = server.person("submitter", tenant="default")
    for answer in (
        await person.get("/v1/runs"),
        await person.get("/v1/runs/4f1c9d2a"),
        await person.post("/v1/runs", json={"flow": "f" * 64}),
    ):
        assert "without Temporal" in problem(answer, 501)["detail"]
        assert "Retry-After" not in answer.headers
    assert (await person.get("/v1/inbox")).json()["held_runs"] == 0
