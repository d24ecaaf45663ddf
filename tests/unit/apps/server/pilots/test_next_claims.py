"""The next claims in the answer to completions: only for a pilot that asks, by the rules of any claim, and at no completion's cost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.apps.server.asks import problem, read, submit, submit_one
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import PLENTY, ScriptedPilot, end_of

from forestay.apps.server.http.request_context import RequestContext
from forestay.ports.errors import Permanent, Transient
from forestay.services.jobs.job_completions import JobCompletions

ASKED = {"max": 1, "resources": PLENTY}


async def end_and_ask(pilot: ScriptedPilot, *claims: dict[str, Any], **asked: Any) -> dict[str, Any]:
    body = {"completions": [end_of(claim) for claim in claims], "claim": ASKED | asked}
    answer = await pilot.post("completions", body)
    assert answer.status_code == 200, answer.text
    returned_body: dict[str, Any] = answer.json()
    return returned_body


async def next_claims(server: RunningServer, tenant: str, pilot: ScriptedPilot, number: int) -> list[dict[str, Any]]:
    """The claims that an answer to completions brings: some others than the completed one.

    A server that was given other hash slots in the meantime looks at its queue again when a pilot asks for work, as one does whose answer brought nothing.
    """
    claims: list[dict[str, Any]] = []

    async def brought() -> bool:
        await queued(server, tenant, number + 1)
        first = await pilot.claim_one()
        answer = await end_and_ask(pilot, first, max=number)
        assert [result["result"] for result in answer["results"]] == ["committed"]
        assert first["job"] not in {claim["job"] for claim in answer["claims"]}
        claims[:] = answer["claims"]
        if len(claims) == number:
            return True
        await pilot.end(*claims)
        return False

    await until(brought, f"{number} claims")
    return claims


async def queued(server: RunningServer, tenant: str, jobs: int) -> None:
    """Submit so many jobs besides the one that a pilot asks for first, and have the server know of them."""
    await submit(server.person("submitter", tenant=tenant), *[{}] * jobs)


async def test_the_answer_brings_the_next_job(server: RunningServer, tenant: str) -> None:
    pilot = await ScriptedPilot.register(server, tenant)
    claims = await next_claims(server, tenant, pilot, 2)
    assert len({claim["job"] for claim in claims}) == 2
    client = server.person("submitter", tenant=tenant)
    for claim in claims:
        stored = await read(client, claim["job"])
        assert (stored["state"], stored["attempt"]) == ("running", claim["attempt"])
    assert await pilot.end(*claims) == ["committed"] * 2


async def test_a_claim_in_an_answer_is_told_as_any_other(server: RunningServer, tenant: str) -> None:
    await queued(server, tenant, 1)
    pilot = await ScriptedPilot.register(server, tenant)
    first = await pilot.claim_one()
    (second,) = await next_claims(server, tenant, pilot, 1)
    own = {"job", "claim", "index", "attempt"}
    assert {name: value for name, value in first.items() if name not in own} == {
        name: value for name, value in second.items() if name not in own
    }


async def test_who_does_not_ask_is_given_nothing(server: RunningServer, tenant: str) -> None:
    """As a pilot of the previous release: its answer is what it always was."""
    await queued(server, tenant, 2)
    pilot = await ScriptedPilot.register(server, tenant)
    answer = await pilot.post("completions", {"completions": [end_of(await pilot.claim_one())]})
    assert set(answer.json()) == {"results"}
    assert await pilot.claim_one()


async def test_nothing_of_another_tenant_and_nothing_that_does_not_fit(server: RunningServer, tenant: str) -> None:
    client = server.person("submitter", tenant=tenant)
    await submit_one(client)
    pilot = await ScriptedPilot.register(server, tenant)
    first = await pilot.claim_one()
    large = await submit_one(client, resources={"cpus": 8})
    await queued(server, f"{tenant}-other", 1)
    stranger = await ScriptedPilot.register(server, f"{tenant}-other")
    assert await stranger.claim_one(), "the other tenant's job is known here"
    answer = await end_and_ask(pilot, first, resources=PLENTY | {"cpus": 4})
    assert (answer["results"][0]["result"], answer["claims"]) == ("committed", [])
    assert (await pilot.claim_one())["job"] == large


async def test_a_draining_pilot_is_given_nothing(server: RunningServer, tenant: str) -> None:
    await queued(server, tenant, 2)
    pilot = await ScriptedPilot.register(server, tenant)
    first = await pilot.claim_one()
    operator = server.person("operator", tenant=tenant)
    order = {"pilots": [pilot.name], "reason": "a disk"}
    assert (await operator.post("/v1/pilots/drain", json=order)).status_code == 200
    answer = await end_and_ask(pilot, first)
    assert (answer["results"][0]["result"], answer["claims"]) == ("committed", [])


async def test_who_may_not_claim_may_not_ask_along(local: RunningServer, tenant: str) -> None:
    """The request is checked as the one for completions is: nothing is claimed by the way."""
    await queued(local, tenant, 2)
    pilot = await ScriptedPilot.register(local, tenant)
    other = await ScriptedPilot.register(local, tenant)
    first = await pilot.claim_one()
    body = {"completions": [end_of(first)], "claim": ASKED}
    path = f"/v1/pilots/{pilot.name}/completions"
    problem(await local.client().post(path, json=body), 401)
    problem(await local.client(other.token).post(path, json=body), 403)
    problem(await local.person("submitter", tenant=tenant).post(path, json=body), 403)
    problem(await pilot.post("completions", body | {"claim": ASKED | {"max": 33}}), 422)
    problem(await pilot.post("completions", body | {"claim": ASKED | {"unknown": 1}}), 422)
    assert (await read(local.person("viewer", tenant=tenant), first["job"]))["state"] == "running"
    operator = local.person("operator", tenant=tenant)
    why = {"reason": "its token was seen elsewhere"}
    assert (await operator.post(f"/v1/pilots/{pilot.name}/revoke", json=why)).status_code == 200
    problem(await pilot.post("completions", body), 403)
    assert await other.claim_one(), "the other job was given to nobody"


async def test_a_repeated_end_is_answered_as_before(server: RunningServer, tenant: str) -> None:
    """The answer was lost, and with it the claims: both are asked for again."""
    await queued(server, tenant, 3)
    pilot = await ScriptedPilot.register(server, tenant)
    first = await pilot.claim_one()
    lost = await end_and_ask(pilot, first)
    again = await end_and_ask(pilot, first)
    assert again["results"] == lost["results"]
    assert {claim["claim"] for claim in again["claims"]}.isdisjoint(claim["claim"] for claim in lost["claims"])


async def test_claims_are_released_when_the_completions_cannot_be_stored(
    local: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queued(local, tenant, 2)
    pilot = await ScriptedPilot.register(local, tenant)
    first = await pilot.claim_one()
    granted = local.services.claims.tally.granted

    async def refuse(self: JobCompletions, *_: Any, **__: Any) -> Any:
        async def second_granted() -> bool:
            return local.services.claims.tally.granted > granted

        await until(second_granted, "the claim")
        raise Permanent("it cannot be stored")

    with monkeypatch.context() as patch:
        patch.setattr(JobCompletions, "end", refuse)
        problem(await pilot.post("completions", {"completions": [end_of(first)], "claim": ASKED}), 400)
    second = await pilot.claim_one()
    assert (second["attempt"], second["job"] != first["job"]) == (2, True)
    assert await pilot.end(first, second) == ["committed", "committed"]


async def test_a_pilot_that_has_disconnected_keeps_no_claim(
    local: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its completions count; a claim that it never heard of would wait for its lease to end."""
    await queued(local, tenant, 2)
    pilot = await ScriptedPilot.register(local, tenant)
    other = await ScriptedPilot.register(local, tenant)
    first = await pilot.claim_one()
    granted, gone, ended = local.services.claims.tally.granted, asyncio.Event(), JobCompletions.end

    async def end(self: JobCompletions, *given: Any, **named: Any) -> Any:
        await gone.wait()
        return await ended(self, *given, **named)

    async def second_granted() -> bool:
        return local.services.claims.tally.granted > granted

    async def one_connection_less() -> bool:
        return local.connections < connections

    with monkeypatch.context() as patch:
        patch.setattr(JobCompletions, "end", end)
        reporting = asyncio.create_task(pilot.post("completions", {"completions": [end_of(first)], "claim": ASKED}))
        await until(second_granted, "the claim")
        connections = local.connections
        reporting.cancel()
        await until(one_connection_less, "the pilot to be gone")
        gone.set()
        second = await other.claim_one()
    assert (second["attempt"], second["job"] != first["job"]) == (2, True)
    assert await pilot.end(first) == ["committed"]


@pytest.mark.parametrize("along", [True, False])
async def test_claims_are_taken_back_when_the_viewpoint_cannot_be_read(
    local: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch, along: bool
) -> None:
    await queued(local, tenant, 2)
    pilot = await ScriptedPilot.register(local, tenant)
    first = await pilot.claim_one()

    async def view(*_: Any) -> Any:
        raise Transient("the store does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(RequestContext, "view", view)
        if along:

            async def given() -> bool:
                before = local.services.claims.tally.granted
                answer = await end_and_ask(pilot, first)
                assert "claims" not in answer or answer["claims"] == []
                return local.services.claims.tally.granted > before

            await until(given, "a claim")
        else:
            problem(await pilot.post("claims", {**ASKED, "wait": 30}), 503)
    second = await pilot.claim_one()
    assert second["job"] != first["job"]
    assert second["attempt"] >= 2
