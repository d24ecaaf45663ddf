"""What a tenant's jobs came to in a span of time, counted from the jobs and incidents in the store."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.apps.server.asks import problem, submit
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

from forestay.services.operations import usage_history

pytestmark = pytest.mark.every_store

FAULT: dict[str, Any] = {"outcome": "fault", "exit_code": 1}


async def _overview(server: RunningServer, tenant: str, span: str = "hour") -> dict[str, Any]:
    """As it is now: what was seen before is forgotten."""
    await server.refresh()
    for one in usage_history.HistorySpan:
        server.services.usage_history._looks.forget((tenant, one))
    answer = await server.person("viewer", tenant=tenant).get("/v1/overview", params={"span": span})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


@pytest.mark.parametrize("span", list(usage_history.STEPS))
async def test_nothing_has_happened(server: RunningServer, tenant: str, span: str) -> None:
    told = await _overview(server, tenant, span)
    steps = usage_history.STEPS[usage_history.HistorySpan(span)][1]
    for name in ("starts", "submitted", "well", "failed", "cancelled", "waits"):
        assert len(told[name]) == steps
    assert (told["incidents"], told["causes"], told["wait"]["median"]) == (0, [], None)
    assert not any(told["submitted"])


async def test_what_ended_waited_failed_and_was_mended(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    await submit(ada, {}, {}, {}, name="good")
    await submit(ada, name="mended", max_attempts=2, resources={"cpus": 8})
    await submit(ada, name="held", max_attempts=1, when_exhausted="hold", resources={"cpus": 2})
    await submit(ada, name="lost", max_attempts=1)
    await submit(ada, name="waits", resources={"gpus": 8000})
    pilot = await ScriptedPilot.register(server, tenant)
    ends = 0
    while ends < 7:
        for claim in await pilot.claim(most=8):
            name, first = claim["name"], claim["attempt"] == 1
            bad = name in ("held", "lost") or (name == "mended" and first)
            await pilot.end(claim, wall=3600.0, **(FAULT if bad else {}))
            ends += 1

    async def counted() -> dict[str, Any] | None:
        told = await _overview(server, tenant)
        return told if told["fates"]["jobs"] == 3 and told["fates"]["mended"] == 1 else None

    told = await until(counted, "three faults, one mended")
    assert sum(told["submitted"]) == 7
    assert (sum(told["well"]), sum(told["failed"])) == (4, 1)
    assert told["standing"] == {"available": 1, "faulted": 1}
    assert told["wait"]["looked"] == 5
    assert 0 <= told["wait"]["median"] <= told["wait"]["most"] < 60
    assert (told["incidents"], told["waiting"], told["looked"]) == (3, 1, 3)
    fates = {"jobs": 3, "mended": 1, "by_hand": 0, "not_well": 1, "open": 1, "core_hours_saved": 8.0}
    assert told["fates"] == fates
    (cause,) = told["causes"]
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
