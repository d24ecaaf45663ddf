"""Pilots that are enrolled for one owner, over HTTP: the secret says for whom, not the pilot, and a site may let in no others."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.unit.apps.server.asks import problem, read, submit
from tests.unit.apps.server.pilots.test_enrolments import register, secret
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import PLENTY, ScriptedPilot, own_manifest
from tests.unit.apps.server.sites.test_sites import said

from forestay.domain.pilots.enrolment import Enrolment
from forestay.domain.pilots.pilot import Pilot
from forestay.formats.jobs.pilot_json import pilot_from_json, pilot_to_json
from forestay.services.sites import site_registry


async def enrolled(server: RunningServer, tenant: str, owner: str | None, **body: Any) -> ScriptedPilot:
    more = {"owner": owner} if owner else {}
    answer = await register(server, await secret(server, tenant, **more), slots=4, resources=PLENTY, **body)
    assert answer.status_code == 201, answer.text
    return ScriptedPilot(answer.json()["pilot"], answer.json()["token"], server)


async def submit_as(server: RunningServer, tenant: str, *owners: str) -> None:
    operator = server.person("operator", tenant=tenant)
    await submit(operator, *({"owner": owner} for owner in owners))


async def owners_of(pilot: ScriptedPilot, server: RunningServer | None = None, jobs: int = 0) -> list[str]:
    """Whose jobs a pilot gets: so many, or none within a second."""
    owners: list[str] = []
    while True:
        claims = await pilot.claim(most=8, wait=20 if jobs else 1, server=server)
        owners += [claim["owner"] for claim in claims]
        if not claims or len(owners) >= jobs:
            return sorted(owners)


async def test_it_gets_the_jobs_of_its_owner_only_at_every_server(
    server: RunningServer, other: RunningServer, tenant: str
) -> None:
    ann = await enrolled(server, tenant, "ann")
    await submit_as(server, tenant, "bob", "ann", "cleo", "bob")
    assert await owners_of(ann, other, jobs=1) == ["ann"]
    assert await owners_of(ann, other) == []
    assert await owners_of(ann) == []
    for_all = await enrolled(server, tenant, None)
    assert await owners_of(for_all, jobs=3) == ["bob", "bob", "cleo"]


async def test_the_pilot_itself_cannot_say_whose_jobs_it_gets(local: RunningServer, tenant: str) -> None:
    bearer = await secret(local, tenant, owner="ann")
    problem(await register(local, bearer, owner="bob"), 422)
    ann = await enrolled(local, tenant, "ann")
    problem(await ann.post("claims", {"max": 1, "wait": 0, "resources": PLENTY, "owner": "bob"}), 422)
    shown = (await local.person("viewer", tenant=tenant).get("/v1/pilots")).json()["pilots"]
    assert [pilot.get("owner") for pilot in shown] == ["ann"]


async def test_only_a_site_or_an_operator_enrols_for_an_owner(local: RunningServer, tenant: str) -> None:
    asked = {"site": "cluster", "launch": "l-1", "owner": "ann"}
    for role in ("viewer", "submitter", "enrol"):
        problem(await local.person(role, tenant=tenant).post("/v1/enrolments", json=asked), 403)


async def test_it_shares_no_cached_files_with_the_pilots_of_others(local: RunningServer, tenant: str) -> None:
    cache = {"path": "/tmp/cache", "space": 1 << 30}  # noqa: S108
    await enrolled(local, tenant, None, cache=cache)
    bearer = await secret(local, tenant, owner="ann")
    answer = (await register(local, bearer, resources=PLENTY, slots=1, cache=cache)).json()
    assert answer["neighbours"] == []
    ann = ScriptedPilot(answer["pilot"], answer["token"], local)
    report = {"version": 1, "base": 0, "share": {"url": "http://n:1", "secret": "ab" * 16}, "added": [], "removed": []}
    claims = await ann.post("claims", {"max": 1, "wait": 0, "resources": PLENTY, "cache": report})
    assert claims.json() == {"claims": []}
    assert "neighbours" not in await ann.heartbeat()


async def test_a_site_that_runs_jobs_as_their_submitters_gives_other_pilots_none(
    local: RunningServer, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those that come later nor those that are there already."""
    monkeypatch.setattr(site_registry, "FRESH", 0.0)
    early = await enrolled(local, tenant, None)
    agent = local.person("site", tenant=tenant)
    await hello(agent, run_as="submitter")
    await submit_as(local, tenant, "ann", "bob")

    async def barred() -> bool:
        return await local.services.sites.bars(tenant, "cluster", "")

    await until(barred, "the site's report")
    assert await owners_of(early) == []
    answer = await register(local, await secret(local, tenant))
    assert "enrolled for one owner" in problem(answer, 403)["detail"]
    asked = {"host": "node1", "site": "cluster", "slots": 1, "resources": PLENTY}
    problem(await local.person("enrol", tenant=tenant).post("/v1/pilots", json=asked), 403)
    ann = await enrolled(local, tenant, "ann")
    assert await owners_of(ann, jobs=1) == ["ann"]


async def hello(agent: httpx.AsyncClient, **changes: Any) -> None:
    answer = await agent.put("/v1/sites/cluster", json=said(**changes))
    assert answer.status_code == 200, answer.text


def test_documents_of_the_last_release_are_read_and_look_as_before() -> None:
    enrolment = Enrolment("alpha", "cluster", "l-1", "agent", expires=1000)
    assert "owner" not in enrolment.as_plain()
    assert Enrolment.from_plain("alpha", enrolment.as_plain()) == enrolment
    own = Enrolment("alpha", "cluster", "l-1", "agent", expires=1000, owner="ann")
    assert Enrolment.from_plain("alpha", own.as_plain()) == own
    resources = {"cpus": 1, "memory": 1, "disk": 1, "gpus": 0, "wall": None}
    stored = {"id": "p", "tenant": "t", "host": "h", "site": "s", "slots": 1, "resources": resources, "lease": 60}
    stored |= {"registered": 1, "state": "alive", "changed": 1, "batch_job": None, "version": "", "note": ""}
    pilot: Pilot = pilot_from_json(stored)
    assert pilot.owner == ""
    assert "owner" not in pilot_to_json(pilot)
    assert pilot_from_json(pilot_to_json(pilot) | {"owner": "ann", "later": 1}).owner == "ann"


async def test_a_pilot_of_another_owner_delivers_nothing_that_was_left(server: RunningServer, tenant: str) -> None:
    """Everybody in the tenant can read the id of a claim; the outputs would be those of the other owner."""
    await submit_as(server, tenant, "ann")
    pilot, other = await enrolled(server, tenant, "ann"), await enrolled(server, tenant, "bob")
    client = server.person("operator", tenant=tenant)
    claim = await pilot.claim_one()
    body = {"expected_attempt": claim["attempt"], "expected_claim": claim["claim"], "reason": "its node is gone"}
    answer = await client.post(f"/v1/jobs/{claim['job']}/release", json=body)
    assert answer.status_code == 200, answer.text
    for _ in range(2):
        assert await other.end(claim) != ["committed"]
    assert (await read(client, claim["job"]))["state"] == "available"
    assert await pilot.end(claim) == ["committed"]


async def released(server: RunningServer, tenant: str, claim: dict[str, Any]) -> None:
    """An operator takes a claim from its pilot."""
    body = {"expected_attempt": claim["attempt"], "expected_claim": claim["claim"], "reason": "its node is gone"}
    client = server.person("operator", tenant=tenant)
    answer = await client.post(f"/v1/jobs/{claim['job']}/release", json=body)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("left", [False, True], ids=["held", "released"])
async def test_a_pilot_of_another_owner_adds_nothing_to_a_job(server: RunningServer, tenant: str, left: bool) -> None:
    await submit_as(server, tenant, "ann")
    pilot, thief = await enrolled(server, tenant, "ann"), await enrolled(server, tenant, "bob")
    client = server.person("administrator", tenant=tenant)
    claim = await pilot.claim_one()
    if left:
        await released(server, tenant, claim)
    words: dict[str, Any] = {"log_tail": "words of the thief", "log_bytes": 18}
    failure = words | {"outcome": "failure", "reason": "exit", "exit_code": 3}
    staged = {"staging": [{"name": "in", "bytes": 1, "failed": ["words of the thief"]}]}
    for facts in (words, failure, staged, words):
        assert await thief.end(claim, **facts) == ["superseded"]
    stated = {"job": claim["job"], "claim": claim["claim"]}
    for what in ("begun", "uploads"):
        body = stated | ({"files": [{"path": "out", "bytes": 1}]} if what == "uploads" else {})
        assert "never held" in problem(await thief.post(what, body), 409)["detail"], what
    body = stated | {"generation": claim["generation"], "attempt": claim["attempt"]}
    body["checkpoint"] = {"manifest": own_manifest(claim), "content": "0" * 64, "number": 1}
    problem(await thief.post("checkpoints", body), 409)
    await thief.post("log", {"claim": claim["claim"], "offset": 0, "text": "words of the thief", "last": True})
    await server.refresh()
    for part in ("story", "log"):
        assert "thief" not in (await client.get(f"/v1/jobs/{claim['job']}/{part}")).text
    entries = (await client.get("/v1/audit")).json()["entries"]
    noted = {(entry["by"], entry["what"], entry["on"]) for entry in entries if entry["by"] == thief.name}
    actions = ("completion", "begin", "upload")
    assert noted == {(thief.name, f"job.{action}.refused", claim["job"]) for action in actions}
    assert len([entry for entry in entries if entry["what"] == "job.completion.refused"]) == 1, "once is enough"
    assert await pilot.end(claim, log_tail="words of the owner") == ["committed"]
    await server.refresh()
    assert (await client.get(f"/v1/jobs/{claim['job']}/log")).text == "words of the owner"


async def test_what_a_dead_pilot_left_is_evidence_from_one_that_may_have_the_job(
    server: RunningServer, tenant: str
) -> None:
    """Also after another attempt has begun; before the claim is released, and of a claim that nobody had, nothing is kept."""
    await submit_as(server, tenant, "ann")
    pilot, heir = await enrolled(server, tenant, "ann"), await enrolled(server, tenant, None)
    client = server.person("operator", tenant=tenant)
    claim = await pilot.claim_one()
    failure: dict[str, Any] = {"outcome": "failure", "reason": "exit", "exit_code": 3}
    assert await heir.end(claim, **failure, log_tail="too early") == ["unknown"]
    assert await heir.end(claim | {"claim": "f" * 32}, **failure, log_tail="invented") == ["superseded"]
    await released(server, tenant, claim)
    await heir.claim_one()
    assert await heir.end(claim, **failure, log_tail="left by the dead") == ["superseded"]
    await server.refresh()
    shown = (await client.get(f"/v1/jobs/{claim['job']}/story")).text
    assert "left by the dead" in shown
    assert "too early" not in shown
    assert "invented" not in shown
