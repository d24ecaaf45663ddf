"""What a tenant's jobs came to in a span of time, counted from the jobs and incidents in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from tests.unit.apps.server.asks import problem, steer, submit, submit_one
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

from forestay.domain.jobs.job_document import FINAL
from forestay.domain.playbooks.action import Resubmit
from forestay.domain.playbooks.playbook import Playbook, PlaybookStep
from forestay.ports.exceptions.exception_engine import ExceptionEngine
from forestay.ports.jobs.job_store import JobQuery
from forestay.services.exceptions.act.action_executor import ActionStatus
from forestay.services.exceptions.triggers import Triggers
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


@pytest.mark.finding("F-D12")
async def test_what_a_person_did_is_a_persons_and_open_failures_count(server: RunningServer, tenant: str) -> None:
    """Of four failures, one was recovered by a retry of its group, one by a playbook that a person launched, one by its own attempts, and one is open."""
    ada, olga = server.person("submitter", tenant=tenant), server.person("operator", tenant=tenant, subject="olga")
    held: dict[str, Any] = {"max_attempts": 1, "when_exhausted": "hold"}
    by_group = await submit_one(ada, name="by-group", **held)
    launched = await submit_one(ada, name="launched", **held)
    await submit(ada, name="by-itself", max_attempts=2)
    await submit(ada, name="open", **held)
    pilot = await ScriptedPilot.register(server, tenant)
    for _ in range(4):
        claim = await pilot.claim_one()
        await pilot.end(claim, log_tail=f"Frobnication of {claim['name']} is seven\n", **FAILURE)
    incidents: dict[str, dict[str, Any]] = {}

    async def all_recorded() -> bool:
        await server.refresh()
        for incident in (await olga.get("/v1/incidents")).json()["incidents"]:
            incidents[incident["job"]] = incident
        return len(incidents) == 4 and sum(incident["state"] == "held" for incident in incidents.values()) == 3

    await until(all_recorded, "four failures, three of them held")
    wish = {"fingerprint": incidents[by_group]["fingerprint"], "do": "retry", "reach": "one", "reason": "repaired"}
    assert (await olga.post("/v1/inbox/acts", json=wish)).status_code == 201
    # Over HTTP a playbook needs the flow engine; the service does the same without it.
    components = server.services.components
    name = incidents[launched]["id"]
    (incident,) = (await components.incidents.get_incidents([name])).values()
    again = Playbook("again", (PlaybookStep(Resubmit()),))
    launcher = Triggers(components.pipeline, cast("ExceptionEngine", None), components.store, components.clock)
    taken = await launcher.launch(incident, again, by="olga")
    assert taken.did is ActionStatus.DONE

    async def ended() -> dict[str, Any] | None:
        for claim in await pilot.claim(most=4):
            await pilot.end(claim)
        fates: dict[str, Any] = (await _overview(server, tenant))["fates"]
        return fates if fates["recovered"] + fates["by_hand"] == 3 else None

    fates = await until(ended, "three to end well")
    assert (fates["jobs"], fates["recovered"], fates["by_hand"], fates["open"]) == (4, 1, 2, 1)
