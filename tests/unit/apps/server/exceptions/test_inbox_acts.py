"""Acts on a group of the inbox over HTTP: in steps, each followed to its end, written into the audit log, and for operators only."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from tests.unit.apps.server.asks import problem, read, submit
from tests.unit.apps.server.event_reader import read_events
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

pytestmark = pytest.mark.every_store


async def _waiting(
    server: RunningServer, tenant: str, many: int, *, log_tail: str = "?", owner: str = "ada"
) -> tuple[ScriptedPilot, list[str]]:
    ada = server.person("submitter", tenant=tenant, subject=owner)
    jobs = await submit(ada, *[{}] * many, max_attempts=1, when_exhausted="hold")
    pilot = await ScriptedPilot.register(server, tenant)
    for _ in range(many):
        await pilot.end(await pilot.claim_one(), outcome="failure", exit_code=1, log_tail=log_tail)

    async def held() -> bool:
        incidents = (await ada.get("/v1/incidents", params={"state": "held", "owner": owner})).json()["incidents"]
        return len(incidents) >= many

    await until(held, "all to wait")
    return pilot, jobs


def wish(**changes: Any) -> dict[str, Any]:
    return {"cause": "unknown", "owner": "ada", "do": "retry", "reach": "one", "reason": "recovered"} | changes


async def look(client: httpx.AsyncClient, act: str) -> dict[str, Any]:
    answer = await client.get(f"/v1/inbox/acts/{act}")
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def test_a_group_is_acted_on_in_steps(server: RunningServer, tenant: str) -> None:
    pilot, jobs = await _waiting(server, tenant, 3)
    olga = server.person("operator", tenant=tenant, subject="olga")
    problem(await olga.post("/v1/inbox/acts", json=wish(reach="ten")), 409)
    first = (await olga.post("/v1/inbox/acts", json=wish())).json()
    assert (first["pending"], first["next"], first["whole"]) == (1, None, False)
    problem(await olga.post("/v1/inbox/acts", json=wish(reach="ten", after=first["id"])), 409)
    await pilot.end(await pilot.claim_one())
    assert (await look(olga, first["id"]))["next"] == "ten"
    refused = await olga.post("/v1/inbox/acts", json=wish(reach="all", after=first["id"]))
    assert "ten next" in problem(refused, 409)["detail"]

    async def fewer() -> bool:
        groups = (await olga.get("/v1/inbox")).json()["groups"]
        return [group["count"] for group in groups] == [2]

    await until(fewer, "the inbox to have it no more")
    second = (await olga.post("/v1/inbox/acts", json=wish(reach="ten", after=first["id"]))).json()
    assert (len(second["members"]), second["whole"]) == (2, True)
    await pilot.end(await pilot.claim_one(), outcome="failure", exit_code=1, log_tail="?")
    await pilot.end(await pilot.claim_one())
    seen = await look(olga, second["id"])
    assert (seen["well"], seen["bad"], seen["pending"], seen["next"]) == (1, 1, 0, None)
    assert "did not help 1 of 2" in seen["not_yet"]
    assert sorted([(await read(olga, job))["state"] for job in jobs]) == ["completed", "completed", "faulted"]
    log = (await olga.get("/v1/audit")).json()["entries"]
    acts = [entry for entry in log if entry["what"] == "inbox.retry"]
    assert [(act["why"], act["detail"]["many"]) for act in acts] == [("recovered", 1), ("recovered", 2)]
    assert [act["on"] for act in acts] == ["1 failure of ada: unknown", "2 failures of ada: unknown"]


async def test_an_action_that_was_refused_does_not_stand_in_the_log_as_done(server: RunningServer, tenant: str) -> None:
    _, (job,) = await _waiting(server, tenant, 1)
    olga = server.person("operator", tenant=tenant, subject="olga")
    (incident,) = (await olga.get("/v1/incidents")).json()["incidents"]
    body = {"cause": "", "owner": "", "fingerprint": incident["fingerprint"]}
    done = (await olga.post("/v1/inbox/acts", json=wish(do="cancel", **body))).json()
    assert done["well"] == 1
    refusal = await olga.post(f"/v1/jobs/{job}/retry", json={"reason": "once more"})
    reason = problem(refusal, 409)["detail"]
    log = (await olga.get("/v1/audit")).json()["entries"]
    assert [(entry["what"], entry["on"], entry["why"]) for entry in log[-3:]] == [
        ("inbox.cancel", f"1 failure of all: {incident['title']}", "recovered"),
        ("job.retry", job, "once more"),
        ("job.retry.refused", job, reason),
    ]


async def test_an_error_is_one_group_and_is_acted_on_alone(server: RunningServer, tenant: str) -> None:
    """Of two errors of one cause, of two owners: the act on one leaves the other alone, and so does its canary."""
    pilot, _ = await _waiting(server, tenant, 2, log_tail="ZeroDivisionError: division by zero\n")
    await _waiting(server, tenant, 1, owner="ben", log_tail="ZeroDivisionError: division by zero\n")
    await _waiting(server, tenant, 2, log_tail="IndexError: list index out of range\n")
    await server.refresh()
    olga = server.person("operator", tenant=tenant, subject="olga")
    inbox = (await olga.get("/v1/inbox")).json()
    groups = {group["title"]: group for group in inbox["groups"]}
    assert {title: (group["count"], group["owners"], group["owner"]) for title, group in groups.items()} == {
        "ZeroDivisionError: division by zero": (3, 2, ""),
        "IndexError: list index out of range": (2, 1, "ada"),
    }
    assert inbox["owners"] == ["ada", "ben"]
    zero, index = groups["ZeroDivisionError: division by zero"], groups["IndexError: list index out of range"]
    wanted = {"cause": zero["cause"], "owner": "", "fingerprint": zero["fingerprint"]}
    first = (await olga.post("/v1/inbox/acts", json=wish(**wanted))).json()
    assert (first["fingerprint"], len(first["members"])) == (zero["fingerprint"], 1)
    await pilot.end(await pilot.claim_one())
    other = await olga.post(
        "/v1/inbox/acts", json=wish(**{**wanted, "fingerprint": index["fingerprint"]}, reach="ten", after=first["id"])
    )
    assert "to one first" in problem(other, 409)["detail"], "what helped one error says nothing of another"
    await server.refresh()
    second = (await olga.post("/v1/inbox/acts", json=wish(**wanted, reach="ten", after=first["id"]))).json()
    assert (len(second["members"]), second["whole"]) == (2, True)
    await server.refresh()
    (left,) = (await olga.get("/v1/inbox")).json()["groups"]
    assert (left["fingerprint"], left["count"]) == (index["fingerprint"], 2)
    alone = wish(cause="", owner="", do="cancel", fingerprint=index["fingerprint"])
    assert len((await olga.post("/v1/inbox/acts", json=alone)).json()["members"]) == 1
    problem(await olga.post("/v1/inbox/acts", json=wish(cause="", owner="")), 422)


async def test_giving_up_ends_the_jobs(server: RunningServer, tenant: str) -> None:
    _, (job,) = await _waiting(server, tenant, 1)
    olga = server.person("operator", tenant=tenant, subject="olga")
    done = (await olga.post("/v1/inbox/acts", json=wish(do="cancel"))).json()
    assert (done["well"], done["whole"]) == (1, True)
    assert (await read(olga, job))["state"] == "cancelled"
    await server.refresh()
    problem(await olga.post("/v1/inbox/acts", json=wish(do="cancel")), 409)


@pytest.mark.parametrize("verb", ["retry", "cancel", "force-fail"])
async def test_a_job_that_is_steered_by_hand_waits_in_the_inbox_no_more(
    server: RunningServer, tenant: str, verb: str
) -> None:
    _, jobs = await _waiting(server, tenant, 2)
    olga = server.person("operator", tenant=tenant, subject="olga")
    known = await read(olga, jobs[0])
    body = {"reason": "recovered"}
    if verb == "force-fail":
        body |= {"expected_generation": known["generation"], "expected_attempt": known["attempt"]}
    assert (await olga.post(f"/v1/jobs/{jobs[0]}/{verb}", json=body)).status_code == 200
    await server.refresh()
    (group,) = (await olga.get("/v1/inbox")).json()["groups"]
    assert group["count"] == 1
    incidents = (await olga.get("/v1/incidents", params={"state": "complete"})).json()["incidents"]
    assert [incident["job"] for incident in incidents] == [jobs[0]]
    assert re.fullmatch("olga: .+[.] recovered", incidents[0]["note"])


async def test_who_may_act_and_who_may_see(server: RunningServer, tenant: str) -> None:
    await _waiting(server, tenant, 1)
    for role in ("viewer", "submitter", "rule-author", "approver"):
        problem(await server.person(role, tenant=tenant).post("/v1/inbox/acts", json=wish()), 403)
    olga = server.person("operator", tenant=tenant)
    for bad in ({"reach": "many"}, {"do": "delete"}, {"reason": ""}, {"do": "playbook"}, {"playbook": "x"}):
        problem(await olga.post("/v1/inbox/acts", json=wish(**bad)), 422)
    problem(await olga.post("/v1/inbox/acts", json=wish(do="playbook", playbook="none")), 404)
    problem(await olga.post("/v1/inbox/acts", json=wish(reach="ten", after="none")), 404)
    problem(await olga.post("/v1/inbox/acts", json=wish(cause="node")), 409)
    act = (await olga.post("/v1/inbox/acts", json=wish())).json()["id"]
    stranger = server.person("administrator", tenant=f"{tenant}-other")
    problem(await stranger.get(f"/v1/inbox/acts/{act}"), 404)


async def test_changes_are_heard(server: RunningServer, tenant: str) -> None:
    viewer = server.person("viewer", tenant=tenant)
    async with read_events(viewer, "/v1/inbox/changes") as reader:
        await reader.wait_for("inbox")
        await _waiting(server, tenant, 2)

        async def heard() -> bool:
            return bool(reader.named("inbox")[-1].data == {"waiting": 2, "notice": ""})

        await until(heard, "the change")
        assert reader.named("inbox")[0].data == {"waiting": 0, "notice": ""}
