"""What went wrong, and what was decided on it, as the interface tells it; to its own tenant only."""

from __future__ import annotations

import pytest
from tests.unit.apps.server.asks import problem, read, story, submit_one
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

NODE = "slurmstepd: error: *** JOB 4711 ON n17 CANCELLED AT 2026-03-01T10:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n"


@pytest.mark.ledger("P2-02")
async def test_a_failure_is_an_incident_that_explains_itself(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    pilot = await ScriptedPilot.register(server, tenant)
    await pilot.end(
        await pilot.claim_one(), outcome="failure", reason="exit", exit_code=1, log_tail=f"token=abc123secret\n{NODE}"
    )
    await pilot.end(await pilot.claim_one(), outcome="failure", reason="exit", exit_code=1, log_tail="?")
    assert (await read(ada, job))["state"] == "failed", "a lost node is not charged, a bad end is"
    results = [line["words"] for line in await story(ada, job)]
    assert any("free retry 1 of 4" in words for words in results), results

    async def both() -> list[str] | None:
        incidents = (await ada.get("/v1/incidents", params={"job": job})).json()["incidents"]
        return [incident["id"] for incident in incidents] if len(incidents) == 2 else None

    ids = await until(both, "both incidents")
    whole = [(await ada.get(f"/v1/incidents/{identifier}")).json() for identifier in ids]
    first, second = sorted(whole, key=lambda value: int(value["attempt"]))
    assert (first["cause"], second["cause"]) == ("node", "unknown")
    assert "abc123secret" not in str(first)
    assert [decision["verdict"] for decision in first["decisions"]] == ["retry"]
    assert first["decisions"][0]["detail"]["charged"] is False
    assert (second["decisions"][0]["verdict"], second["state"]) == ("fail", "failed")
    assert first["retry_verdict"] == "elsewhere, up to 4 times, at once"
    assert first["advice"].startswith("Another try elsewhere may help: it is tried again as it is (node failure")
    assert second["advice"].startswith("Nobody knows whether another try helps: it is given up (1 of 1 attempts used")
    assert first["retry_record"] == {"seen": 1, "retried": 1, "helped": 0, "whole": True, "words": "seen once here, retry helped 0 of 1"}  # fmt: skip
    assert second["retry_record"]["words"] == "seen once here, no retry has ended"
    counts = (await ada.get("/v1/incidents/counts", params={"by": "cause"})).json()["counts"]
    assert counts == {"node": 1, "unknown": 1}
    assert first["title"].endswith(
        "*** JOB <n> ON <id> CANCELLED AT <time> DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
    )
    assert second["title"] == "exit code 1"
    alike = {"fingerprint": first["fingerprint"]}
    assert [incident["id"] for incident in (await ada.get("/v1/incidents", params=alike)).json()["incidents"]] == [
        first["id"]
    ]
    counts = (await ada.get("/v1/incidents/counts", params={"by": "fingerprint"})).json()["counts"]
    assert counts == {first["fingerprint"]: 1, second["fingerprint"]: 1}
    assert (await ada.get("/v1/incidents/counts", params={"by": "cause", **alike})).json()["counts"] == {"node": 1}
    other = server.person("operator", tenant=f"{tenant}-other")
    assert (await other.get("/v1/incidents")).json()["incidents"] == []
    assert problem(await other.get(f"/v1/incidents/{ids[0]}"), 404)


async def test_a_failure_that_printed_nothing_leaves_evidence_too(server: RunningServer, tenant: str) -> None:
    """A server that dies after it stored the end finds the failure by its evidence."""
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada)
    pilot = await ScriptedPilot.register(server, tenant)
    await pilot.end(await pilot.claim_one(), outcome="failure", reason="exit", exit_code=1)

    async def kept() -> list[dict[str, object]] | None:
        return (await ada.get(f"/v1/jobs/{job}/story")).json()["evidence"] or None

    (evidence,) = await until(kept, "the evidence")
    assert evidence["kind"] == "evidence"


async def test_a_state_that_is_none_is_told(server: RunningServer, tenant: str) -> None:
    ada = server.person("viewer", tenant=tenant)
    assert "held" in problem(await ada.get("/v1/incidents", params={"state": "lost"}), 400)["detail"]
    assert problem(await ada.get("/v1/incidents", params={"cursor": "%%"}), 400)
    assert problem(await ada.get("/v1/incidents/none"), 404)


async def test_a_job_says_for_whom_its_failure_waits_and_no_more_when_it_is_answered(
    server: RunningServer, tenant: str
) -> None:
    ada = server.person("submitter", "operator", tenant=tenant)
    job = await submit_one(ada, max_attempts=1, when_exhausted="hold")
    pilot = await ScriptedPilot.register(server, tenant)
    assert "waits_for" not in await read(ada, job), "it waits for a pilot, which is something else"
    await pilot.end(await pilot.claim_one(), outcome="failure", exit_code=1, log_tail="?")

    async def held() -> dict[str, object] | None:
        shown = await read(ada, job)
        return shown if shown.get("waits_for") else None

    faulted = await until(held, "the failure to wait")
    (incident,) = (await ada.get("/v1/incidents", params={"job": job})).json()["incidents"]
    assert (faulted["waits_for"], faulted["incident"]) == ("a person", incident["id"])
    (listed,) = (await ada.get("/v1/jobs", params={"state": "faulted"})).json()["jobs"]
    assert (listed["waits_for"], listed["incident"]) == ("a person", incident["id"])
    assert (await ada.post(f"/v1/jobs/{job}/retry")).status_code == 200
    assert "waits_for" not in await read(ada, job)
