"""A rule that holds a failure, on real runs: the failed job waits for a person, all others go on, and what the person does ends the run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import uuid4

import pytest
from tests.live.rule_desk import add_rule, incident, incidents
from tests.live.run_site import BAD, GOOD, TENANT, RunSite, run_site
from tests.unit.apps.server.running import until

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.formats.rules.conclusion_text import read_conclusion

pytestmark = [pytest.mark.live, pytest.mark.finding("F-D1")]

SAMPLES = """
forestay: 1
name: NAME
tasks:
  align: {command: [align, "${sample}"], scatter: {sample: [a, b, c, d, e]}, max_attempts: 1}
  report: {command: [report], after: [align]}
"""
BAD_SAMPLE = 2


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunSite]:
    async with run_site(request.param, tmp_path_factory.mktemp("held")) as running:
        yield running


@pytest.fixture(autouse=True)
def _one_bad_sample(site: RunSite) -> None:
    site.ran.clear()

    def fate(claim: Mapping[str, Any]) -> dict[str, Any]:
        return BAD if claim.get("index") == BAD_SAMPLE and claim["attempt"] == 1 else GOOD

    site.fate = fate


async def started(site: RunSite, conclusion: str) -> str:
    """A run of five samples, and a rule written as people write it."""
    name = f"samples-{uuid4().hex[:8]}"
    concluded, wrong = read_conclusion(conclusion)
    assert not wrong
    context = {"cause": "code", "confidence": 0.9, "job": {"attempt": 1}}
    await add_rule(site, name, ExceptionType.ABORT, "job.attempt == 1", *concluded["steps"], true=context)
    return await site.start(SAMPLES.replace("NAME", name), owner="ann")


async def good_samples_ended(site: RunSite) -> None:
    async def there() -> bool:
        return {f"align[{index}]" for index in range(5)} <= set(site.ran)

    await until(there, "every sample to be tried", 60)


async def waiting(site: RunSite, run: str) -> list[str]:
    return [other_incident["job"] for other_incident in await incidents(site, run) if other_incident["state"] == "held"]


async def steer(site: RunSite, job: str, verb: str) -> None:
    person = site.server.person("operator", tenant=TENANT)
    body: dict[str, Any] = {"reason": "looked at"}
    if verb != "retry":
        known = (await person.get(f"/v1/jobs/{job}")).json()
        body |= {"expected_attempt": known["attempt"], "expected_generation": known["generation"]}
    answer = await person.post(f"/v1/jobs/{job}/{verb}", json=body)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("conclusion", ["hold", "hold task", "hold run"])
@pytest.mark.parametrize(("verb", "outcome"), [("retry", "completed"), ("force-fail", "failed")])
async def test_a_held_failure_is_listed_and_what_a_person_does_to_its_job_ends_the_run(
    site: RunSite, conclusion: str, verb: str, outcome: str
) -> None:
    run = await started(site, conclusion)
    held = await incident(site, run, "held")
    assert await waiting(site, run) == [held["job"]]
    await steer(site, held["job"], verb)
    assert (await site.result(run))["outcome"] == outcome
    assert await waiting(site, run) == []


async def test_a_plain_hold_keeps_the_failed_job_alone(site: RunSite) -> None:
    run = await started(site, "hold")
    held = await incident(site, run, "held")
    await good_samples_ended(site)
    person = site.server.person("viewer", tenant=TENANT)

    async def states() -> bool:
        jobs = (await person.get("/v1/jobs", params={"run": run, "limit": 10})).json()["jobs"]
        fields = {job["id"]: (job["state"], bool(job.get("holders"))) for job in jobs}
        others = [field for job, field in fields.items() if job != held["job"]]
        return len(others) == 4 and all(pair == ("completed", False) for pair in others)

    await until(states, "the good samples to be completed", 60)
    assert (await site.tasks(run))["align"] == "running"
    assert [step["action"] for step in held["steps"]] == ["hold"]
    person = site.server.person("operator", tenant=TENANT)
    decided = held["decisions"][-1]["playbook"]["steps"][0]
    assert decided["target"] == "job"
    await steer(site, held["job"], "retry")
    assert (await site.result(run))["outcome"] == "completed"
    assert site.ran.count(f"align[{BAD_SAMPLE}]") == 2
    assert site.ran[-1] == "report"
