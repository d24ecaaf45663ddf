"""What a tenant's jobs came to in a span of time, counted from the jobs and incidents in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.unit.apps.server.asks import problem, steer, submit, submit_one
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

from forestay.domain.jobs.job_document import FINAL
from forestay.ports.jobs.job_store import JobQuery
from forestay.services.operations import usage_history

pytestmark = pytest.mark.every_store

FAILURE: dict[str, Any] = {"outcome": "failure", "exit_code": 1}


async def _overview(server: RunningServer, tenant: str, span: str = "hour") -> dict[str, Any]:
    """As it is now: what was seen before is forgotten."""
    await server.refresh()
    for history_span in usage_history.HistorySpan:
        server.services.usage_history._looks.forget((tenant, history_span))
    answer = await server.person("viewer", tenant=tenant).get("/v1/overview", params={"span": span})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


@pytest.mark.parametrize("span", list(usage_history.STEPS))
async def test_nothing_has_happened(server: RunningServer, tenant: str, span: str) -> None:
    overview = await _overview(server, tenant, span)
    steps = usage_history.STEPS[usage_history.HistorySpan(span)][1]
    for name in ("starts", "submitted", "well", "failed", "cancelled", "waits"):
        assert len(overview[name]) == steps
    assert (overview["incidents"], overview["causes"], overview["wait"]["median"]) == (0, [], None)
    assert not any(overview["submitted"])


async def test_what_ended_waited_failed_and_was_recovered(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    await submit(ada, {}, {}, {}, name="good")
    await submit(ada, name="recovered", max_attempts=2, resources={"cpus": 8})
    await submit(ada, name="held", max_attempts=1, when_exhausted="hold", resources={"cpus": 2})
    await submit(ada, name="lost", max_attempts=1)
    await submit(ada, name="waits", resources={"gpus": 8000})
    pilot = await ScriptedPilot.register(server, tenant)
    ends = 0
    while ends < 7:
        for claim in await pilot.claim(most=8):
            name, first = claim["name"], claim["attempt"] == 1
            bad = name in ("held", "lost") or (name == "recovered" and first)
            await pilot.end(claim, wall=3600.0, **(FAILURE if bad else {}))
            ends += 1

    async def counted() -> dict[str, Any] | None:
        overview = await _overview(server, tenant)
        return overview if overview["fates"]["jobs"] == 3 and overview["fates"]["recovered"] == 1 else None

    value = await until(counted, "three failures, one recovered")
    assert sum(value["submitted"]) == 7
    assert (sum(value["well"]), sum(value["failed"])) == (4, 1)
    assert value["status"] == {"available": 1, "faulted": 1}
    assert value["wait"]["looked"] == 5
    assert 0 <= value["wait"]["median"] <= value["wait"]["most"] < 60
    assert (value["incidents"], value["waiting"], value["looked"]) == (3, 1, 3)
    fates = {"jobs": 3, "recovered": 1, "by_hand": 0, "not_well": 1, "open": 1, "core_hours_saved": 8.0}
    assert value["fates"] == fates
    (cause,) = value["causes"]
    assert (cause["cause"], cause["incidents"], sum(cause["steps"]), cause["fates"]) == ("unknown", 3, 3, fates)

    assert (await _overview(server, f"{tenant}-other"))["submitted"] == [0] * 30


async def test_an_answer_is_shared_for_some_seconds(server: RunningServer, tenant: str) -> None:
    person = server.person("viewer", tenant=tenant)
    first = (await person.get("/v1/overview")).json()
    await submit(server.person("submitter", tenant=tenant), {})
    assert (await person.get("/v1/overview")).json() == first
    assert sum((await _overview(server, tenant, "day"))["submitted"]) == 1


async def test_only_spans_that_there_are(server: RunningServer, tenant: str) -> None:
    person = server.person("viewer", tenant=tenant)
    problem(await person.get("/v1/overview", params={"span": "century"}), 422)


@pytest.mark.finding("F-D16")
async def test_a_status_counts_what_is_open_once_for_all_who_ask(
    server: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = server.person("submitter", tenant=tenant)
    await submit(ada, {}, {}, {"hold": True})
    over = await submit_one(ada)
    await steer(ada, over, "cancel")
    await server.refresh()
    queries: list[JobQuery] = []
    store = server.services.components.store
    count = store.count

    async def counted(query: JobQuery, *, by: str) -> Mapping[str, int]:
        queries.append(query)
        return await count(query, by=by)

    monkeypatch.setattr(store, "count", counted)
    answers = await asyncio.gather(*(ada.get("/v1/status") for _ in range(5)))
    assert [answer.json()["jobs"] for answer in answers] == [{"available": 3}] * 5
    assert len(queries) <= 6, "counted at most twice, however slow the machine"
    assert all(len(query.states) == 1 and not query.states & FINAL for query in queries)
