"""What one person may not do alone waits for a second one: it is kept, answered once, done once, and in the audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.running import Domain, RunningServer

from forestay.domain.exceptions.safeguards.approval_policy import LASTS, ApprovalRequest
from forestay.services.exceptions.safeguards.approvals import Approvals


@pytest.fixture
async def strict(domain: Domain) -> AsyncIterator[RunningServer]:
    async with domain.server(approvals="on") as server:
        yield server


async def _waiting(server: RunningServer, tenant: str) -> tuple[str, str]:
    """A job, and the request of ada that it count as done."""
    ada = server.person("operator", tenant=tenant, subject="ada")
    (job,) = await submit(ada)
    body = {"expected_attempt": 0, "expected_generation": 0, "reason": "checked by hand"}
    answer = await ada.post(f"/v1/jobs/{job}/force-complete", json=body)
    assert answer.status_code == 202, answer.text
    again = await ada.post(f"/v1/jobs/{job}/force-complete", json=body)
    assert again.json()["waits"]["id"] == answer.json()["waits"]["id"], "asked twice is one request"
    return job, answer.json()["waits"]["id"]


async def test_nobody_counts_a_job_as_done_alone_and_another_person_lets_it(strict: RunningServer, tenant: str) -> None:
    job, request = await _waiting(strict, tenant)
    ada = strict.person("administrator", tenant=tenant, subject="ada")
    ben = strict.person("approver", tenant=tenant, subject="ben")
    assert (await ada.get(f"/v1/jobs/{job}")).json()["state"] == "available"
    own = await ada.post(f"/v1/approvals/{request}", json={"agree": True})
    assert own.status_code == 403
    assert "another person" in own.json()["detail"]
    other = strict.person("operator", tenant=tenant, subject="cleo")
    assert (await other.post(f"/v1/approvals/{request}", json={"agree": True})).status_code == 403
    await strict.refresh()
    (shown,) = (await ben.get("/v1/approvals?state=waiting")).json()["approvals"]
    assert (shown["id"], shown["by"], shown["on"], shown["why"]) == (request, "ada", job, "checked by hand")
    done = await ben.post(f"/v1/approvals/{request}", json={"agree": True, "reason": "saw it too"})
    assert done.status_code == 200, done.text
    assert (done.json()["state"], done.json()["outcome"]) == ("done", "forced_complete")
    assert (await ada.get(f"/v1/jobs/{job}")).json()["state"] == "forced_complete"
    repeat = await ben.post(f"/v1/approvals/{request}", json={"agree": True})
    assert repeat.json()["state"] == "done"
    late = await ben.post(f"/v1/approvals/{request}", json={"agree": False})
    assert late.status_code == 409
    entries, _ = await strict.services.components.audit.read(tenant)
    assert [(entry.by, entry.what) for entry in entries if entry.what.startswith("approval")] == [
        ("ada", "approval.ask"),
        ("ada", "approval.ask"),
        ("ben", "approval.agree"),
    ]


async def test_what_is_refused_is_not_done_and_may_be_asked_for_again(strict: RunningServer, tenant: str) -> None:
    job, request = await _waiting(strict, tenant)
    ben = strict.person("approver", tenant=tenant, subject="ben")
    refused = await ben.post(f"/v1/approvals/{request}", json={"agree": False, "reason": "the file is cut off"})
    assert refused.json()["state"] == "refused"
    assert (await ben.get(f"/v1/jobs/{job}")).json()["state"] == "available"
    ada = strict.person("operator", tenant=tenant, subject="ada")
    body = {"expected_attempt": 0, "expected_generation": 0, "reason": "checked by hand"}
    again = (await ada.post(f"/v1/jobs/{job}/force-complete", json=body)).json()["waits"]
    assert again["id"] != request
    assert again["state"] == "waiting"


async def test_another_tenant_and_a_made_up_name_find_nothing(strict: RunningServer, tenant: str) -> None:
    _, request = await _waiting(strict, tenant)
    stranger = strict.person("approver", tenant=f"{tenant}-other", subject="ben")
    for name in (request, "nothing", "..", "a" * 100):
        assert (await stranger.post(f"/v1/approvals/{name}", json={"agree": True})).status_code in (404, 405)
    assert (await stranger.get("/v1/approvals")).json()["approvals"] == []


async def test_a_request_that_nobody_answers_expires(strict: RunningServer, tenant: str) -> None:
    parts = strict.services.components
    long_ago = parts.clock.now() - LASTS - 1
    approvals = Approvals(parts.store, parts.clock)
    old = await approvals.ask(
        ApprovalRequest(tenant, "d1", "remove run c1", "ada", long_ago, long_ago + LASTS, act={"kind": "x"})
    )
    ben = strict.person("approver", tenant=tenant, subject="ben")
    assert (await ben.get(f"/v1/approvals/{old.id}")).json()["state"] == "expired"
    late = await ben.post(f"/v1/approvals/{old.id}", json={"agree": True})
    assert late.status_code == 409


async def test_force_fail_and_ones_own_work_need_nobody(strict: RunningServer, tenant: str) -> None:
    ada = strict.person("operator", tenant=tenant, subject="ada")
    (job,) = await submit(ada)
    body = {"expected_attempt": 0, "expected_generation": 0, "reason": "broken"}
    assert (await ada.post(f"/v1/jobs/{job}/force-fail", json=body)).status_code == 200


async def test_who_only_writes_rules_steers_nothing(strict: RunningServer, tenant: str) -> None:
    (job,) = await submit(strict.person("submitter", tenant=tenant))
    author = strict.person("rule-author", tenant=tenant, subject="rita")
    assert (await author.post(f"/v1/jobs/{job}/retry")).status_code == 403
    assert (await author.post("/v1/safeguards/stop", json={"reason": "x"})).status_code == 403
    assert (await author.get("/v1/rules")).status_code == 200
    viewer = strict.person("viewer", tenant=tenant)
    added = await viewer.post("/v1/rules/domain/site", json={})
    assert added.status_code == 403
    assert (await author.post("/v1/rules/domain/site", json={})).status_code == 422, "allowed, and checked"
