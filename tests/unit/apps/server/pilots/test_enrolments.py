"""Pilots are let in by secrets that are good once."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.later_clock import LaterClock
from tests.unit.apps.server.running import RunningServer

from forestay.domain.pilots.enrolment import REPEAT


async def secret(server: RunningServer, tenant: str, role: str = "site", **body: Any) -> str:
    asked = {"site": "cluster", "launch": "l-1"} | body
    answer = await server.person(role, tenant=tenant, subject="agent").post("/v1/enrolments", json=asked)
    assert answer.status_code == 201, answer.text
    made: str = answer.json()["secret"]
    return made


async def register(server: RunningServer, bearer: str, nonce: str | None = "n" * 32, **body: Any) -> httpx.Response:
    asked = {"host": "node1", "site": "cluster", "launch": "l-1", "nonce": nonce} | body
    return await server.client(bearer).post("/v1/pilots", json=asked)


async def test_a_secret_is_traded_for_a_pilots_token(server: RunningServer, other: RunningServer, tenant: str) -> None:
    """Also at another server than the one that made it."""
    answer = await register(other, await secret(server, tenant))
    assert answer.status_code == 201, answer.text
    pilot = answer.json()["pilot"]
    heartbeat = await server.client(answer.json()["token"]).post(f"/v1/pilots/{pilot}/heartbeat", json={"counter": 1})
    assert heartbeat.status_code == 200
    await server.refresh()
    (shown,) = (await server.person("viewer", tenant=tenant).get("/v1/pilots")).json()["pilots"]
    assert (shown["id"], shown["site"], shown["launch"], shown["tenant"]) == (pilot, "cluster", "l-1", tenant)


async def test_it_lets_one_pilot_in_whoever_asks_and_where(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    bearer = await secret(server, tenant)
    answers = await asyncio.gather(
        *(
            register(running_server, bearer, f"{number}" * 32)
            for number, running_server in enumerate([server, other] * 3)
        )
    )
    assert sorted(answer.status_code for answer in answers) == [201, 401, 401, 401, 401, 401]
    for answer in answers:
        if answer.status_code == 401:
            problem(answer, 401)


async def test_the_same_pilot_asks_again_and_gets_the_same_name(server: RunningServer, tenant: str) -> None:
    bearer = await secret(server, tenant)
    first, again = await register(server, bearer), await register(server, bearer)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["pilot"] == again.json()["pilot"]
    await server.refresh()
    assert len((await server.person("viewer", tenant=tenant).get("/v1/pilots")).json()["pilots"]) == 1


async def test_not_for_ever_and_not_when_it_has_gone(
    local: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bearer = await secret(local, tenant)
    answer = (await register(local, bearer)).json()
    gone = await local.client(answer["token"]).delete(f"/v1/pilots/{answer['pilot']}")
    assert gone.status_code == 200
    problem(await register(local, bearer), 503)
    monkeypatch.setattr(local.services.enrolments, "clock", LaterClock(REPEAT))
    problem(await register(local, bearer), 401)


async def test_what_is_refused(local: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bearer = await secret(local, tenant, seconds=60)
    problem(await register(local, bearer, site="elsewhere"), 403)
    problem(await register(local, bearer, launch="l-2"), 403)
    problem(await register(local, bearer, nonce=None), 422)
    problem(await register(local, bearer[:-1]), 401)
    problem(await local.client(bearer).get("/v1/jobs"), 401)
    monkeypatch.setattr(local.services.enrolments, "clock", LaterClock(60_000))
    problem(await register(local, bearer), 401)
    monkeypatch.undo()
    assert (await register(local, bearer)).status_code == 201


async def test_who_may_make_one(local: RunningServer, tenant: str) -> None:
    for role in ("site", "operator", "administrator"):
        await secret(local, tenant, role)
    for role in ("viewer", "submitter", "enrol", "engine"):
        problem(await local.person(role, tenant=tenant).post("/v1/enrolments", json={"site": "cluster"}), 403)
    for wrong in ({}, {"site": ""}, {"site": "a b"}, {"site": "c", "seconds": 0}, {"site": "c", "more": 1}):
        problem(await local.person("site", tenant=tenant).post("/v1/enrolments", json=wrong), 422)
    noted = (await local.person("operator", tenant=tenant).get("/v1/audit")).json()
    assert "enrol" in str(noted)


def unfit(**body: Any) -> dict[str, Any]:
    findings = [{"check": "commands", "words": "not on the PATH: xrdcp"}]
    return {"host": "node9", "site": "cluster", "launch": "l-1", "nonce": "n" * 32, "findings": findings} | body


async def alerts(server: RunningServer, tenant: str) -> list[dict[str, Any]]:
    await server.refresh()
    alerts: list[dict[str, Any]] = (await server.person("viewer", tenant=tenant).get("/v1/alerts")).json()["alerts"]
    return [alert for alert in alerts if alert["alert"] == "failed-checks"]


@pytest.mark.ledger("P3-02")
async def test_a_machine_that_is_not_fit_is_told_once(server: RunningServer, other: RunningServer, tenant: str) -> None:
    """The launch is over by that: its secret lets nobody in any more."""
    bearer = await secret(server, tenant)
    for running_server in (server, other):
        answer = await running_server.client(bearer).post("/v1/pilots/failed-checks", json=unfit())
        assert answer.status_code == 201, answer.text
    (alert,) = await alerts(server, tenant)
    assert (alert["host"], alert["launch"], alert["checks"]) == ("node9", "l-1", ["commands"])
    assert "node9 exited before it took a job: commands: not on the PATH: xrdcp" in alert["words"]
    problem(await register(server, bearer), 401)
    problem(await server.client(bearer).post("/v1/pilots/failed-checks", json=unfit(nonce="m" * 32)), 401)


async def test_a_secret_made_by_hand_stays_good(local: RunningServer, tenant: str) -> None:
    bearer = await secret(local, tenant, launch="")
    for number in ("1", "2"):
        response = await local.client(bearer).post("/v1/pilots/failed-checks", json=unfit(nonce=number * 32, launch=""))
        assert response.status_code == 201
    assert len(await alerts(local, tenant)) == 2
    assert (await register(local, bearer)).status_code == 201
    problem(await local.client(bearer).post("/v1/pilots/failed-checks", json=unfit(launch="")), 401)


async def test_what_is_no_announcement(local: RunningServer, tenant: str) -> None:
    enroller = local.person("enrol", tenant=tenant)
    assert (await enroller.post("/v1/pilots/failed-checks", json=unfit())).status_code == 201
    for wrong in (unfit(findings=[]), unfit(nonce="short"), unfit(host=""), unfit(more=1)):
        problem(await enroller.post("/v1/pilots/failed-checks", json=wrong), 422)
    fields = {"check": "site-check", "words": "token=abcdefgh12345678"}
    assert (await enroller.post("/v1/pilots/failed-checks", json=unfit(findings=[fields], nonce="x" * 20))).is_success
    assert "abcdefgh12345678" not in str(await alerts(local, tenant))
