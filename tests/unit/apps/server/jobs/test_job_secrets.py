"""Secrets by the HTTP interface: references are accepted, checked and shown; only pilots with their sources get the job."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.apps.server.asks import problem, read, submit_one
from tests.unit.apps.server.running import RunningServer, until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

SECRETS = {"DB": "file:db-password", "TOKEN": {"vault": "secret/data/app#token", "as": "file"}}


async def test_a_job_with_secrets_goes_to_a_pilot_with_their_sources(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    job = await submit_one(ada, secrets=SECRETS)
    shown = (await ada.get(f"/v1/jobs/{job}/specification")).json()
    assert shown["secrets"] == SECRETS
    other = await ScriptedPilot.register(server, tenant, features={"secrets.file": "yes"})
    assert await other.claim(wait=0.5) == []
    assert 'features["secrets.vault"] == "yes"' in (await read(ada, job))["waiting"]
    both = await ScriptedPilot.register(server, tenant, features={"secrets.file": "yes", "secrets.vault": "yes"})
    claim = await both.claim_one()
    assert (claim["job"], claim["specification"]["secrets"]) == (job, SECRETS)
    assert claim["owner"]
    end: dict[str, Any] = {
        "outcome": "failure",
        "reason": "secret-failed",
        "error": "not-allowed",
        "stage": "staging-in",
        "file": "file:x",
    }
    assert await both.end(claim, **end) == ["committed"]

    async def failed() -> bool:
        return bool((await read(ada, job))["state"] == "failed")

    await until(failed, "a failure that no other attempt can help")


async def test_the_forms_of_a_reference_are_one_specification(server: RunningServer, tenant: str) -> None:
    ada = server.person("submitter", tenant=tenant)
    plain = await submit_one(ada, secrets={"DB": "file:x"})
    long = await submit_one(ada, secrets={"DB": {"file": "x", "as": "variable"}})
    specifications = {(await read(ada, job))["specification"] for job in (plain, long)}
    assert len(specifications) == 1
    none, empty = await submit_one(ada), await submit_one(ada, secrets={})
    assert (await read(ada, none))["specification"] == (await read(ada, empty))["specification"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"secrets": {"DB": "file:../x"}}, "none begins with a dot"),
        ({"secrets": {"DB": "vault:secret/app#token"}}, "MOUNT/data/PATH#KEY"),
        ({"secrets": {"DB": "hunter2"}}, "there is no source"),
        ({"secrets": {"DB": {"file": "x", "vault": "y"}}}, "expected file:NAME"),
        ({"secrets": {"DB": {"env": "x"}}}, ""),
        ({"secrets": {"D-B": "file:x"}}, ""),
        ({"secrets": {"FORESTAY_JOB": "file:x"}}, "does not begin with FORESTAY_"),
        ({"secrets": {"DB": "file:x"}, "environment": {"DB": "y"}}, "environment sets this variable"),
        ({"secrets": {"DB": "file:x"}, "runner": "warm"}, "function call cannot have secrets"),
        ({"secrets": {f"S{number}": "file:x" for number in range(33)}}, ""),
    ],
)
async def test_a_reference_that_means_nothing_is_refused(
    server: RunningServer, tenant: str, changes: dict[str, Any], words: str
) -> None:
    ada = server.person("submitter", tenant=tenant)
    body = {"specification": {"command": ["true"], **changes}, "jobs": [{}]}
    refused = problem(await ada.post("/v1/jobs", json=body), 422)
    assert any(words in error["detail"] for error in refused["errors"]), refused
