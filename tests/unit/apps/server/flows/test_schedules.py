"""Schedules over HTTP on a server without Temporal; tests/live/test_schedules.py has the rest."""

from __future__ import annotations

from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.running import RunningServer


async def test_without_temporal_one_clear_sentence_says_so(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant, subject="ada")
    body = {"flow": "f" * 64, "cron": ["@daily"]}
    for answer in (
        await ada.get("/v1/schedules"),
        await ada.get("/v1/schedules/nightly"),
        await ada.put("/v1/schedules/nightly", json=body),
        await ada.post("/v1/schedules/nightly/run", json={}),
        await ada.delete("/v1/schedules/nightly"),
    ):
        assert "without Temporal" in problem(answer, 501)["detail"]
    viewer = server.person("viewer", tenant=tenant, subject="vera")
    problem(await viewer.put("/v1/schedules/nightly", json=body), 403)
    problem(await viewer.delete("/v1/schedules/nightly"), 403)
