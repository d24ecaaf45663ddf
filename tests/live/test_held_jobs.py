"""A rule that holds a failure, on real cases: the failed job waits for a person, all others go on, and what the person does ends the run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import uuid4

import pytest
from tests.live.case_site import BAD, GOOD, TENANT, CaseSite, case_site
from tests.live.rule_desk import add_rule, incident, incidents
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
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CaseSite]:
    async with case_site(request.param, tmp_path_factory.mktemp("held")) as running:
        yield running


@pytest.fixture(autouse=True)
def _one_bad_sample(site: CaseSite) -> None:
    site.ran.clear()

    def fate(claim: Mapping[str, Any]) -> dict[str, Any]:
        return BAD if claim.get("index") == BAD_SAMPLE and claim["attempt"] == 1 else GOOD

    site.fate = fate


async def started(site: CaseSite, conclusion: str) -> str:
    """A run of five samples, and a rule written as people write it."""
    name = f"samples-{uuid4().hex[:8]}"
    concluded, wrong = read_conclusion(conclusion)
    assert not wrong
    context = {"cause": "code", "confidence": 0.9, "job": {"attempt": 1}}
    await add_rule(site, name, ExceptionType.ABORT, "job.attempt == 1", *concluded["steps"], true=context)
    return await site.start(SAMPLES.replace("NAME", name), owner="ann")


async def good_samples_ended(site: CaseSite) -> None:
    async def there() -> bool:
        return {f"align[{index}]" for index in range(5)} <= set(site.ran)

    await until(there, "every sample to be tried", 60)


async def waiting(site: CaseSite, case: str) -> list[str]:
    return [one["job"] for one in await incidents(site, case) if one["state"] == "held"]


async def steer(site: CaseSite, job: str, verb: str) -> None:
    person = site.server.person("operator", tenant=TENANT)
    body: dict[str, Any] = {"reason": "looked at"}
    if verb != "retry":
        known = (await person.get(f"/v1/jobs/{job}")).json()
        body |= {"expected_attempt": known["attempt"], "expected_generation": known["generation"]}
    answer = await person.post(f"/v1/jobs/{job}/{verb}", json=body)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("conclusion", ["hold", "hold item", "hold case"])
@pytest.mark.parametrize(("verb", "outcome"), [("retry", "completed"), ("force-fail", "failed")])
async def test_a_held_failure_is_listed_and_what_a_person_does_to_its_job_ends_the_run(
    site: CaseSite, conclusion: str, verb: str, outcome: str
) -> None:
    case = await started(site, conclusion)
    held = await incident(site, case, "held")
    assert await waiting(site, case) == [held["job"]]
    await steer(site, held["job"], verb)
    assert (await site.result(case))["outcome"] == outcome
    assert await waiting(site, case) == []


async def test_a_plain_hold_keeps_the_failed_job_alone(site: CaseSite) -> None:
    case = await started(site, "hold")
    held = await incident(site, case, "held")
    await good_samples_ended(site)
    person = site.server.person("viewer", tenant=TENANT)

    async def states() -> bool:
        jobs = (await person.get("/v1/jobs", params={"case": case, "limit": 10})).json()["jobs"]
        found = {one["id"]: (one["state"], bool(one.get("holders"))) for one in jobs}
        others = [one for job, one in found.items() if job != held["job"]]
        return len(others) == 4 and all(one == ("completed", False) for one in others)

    await until(states, "the good samples to be completed", 60)
    assert (await site.items(case))["align"] == "running"
    assert [step["action"] for step in held["steps"]] == ["hold"]
    person = site.server.person("operator", tenant=TENANT)
    decided = held["decisions"][-1]["exlet"]["steps"][0]
    assert decided["target"] == "job"
    await steer(site, held["job"], "retry")
    assert (await site.result(case))["outcome"] == "completed"
    assert site.ran.count(f"align[{BAD_SAMPLE}]") == 2
    assert site.ran[-1] == "report"
