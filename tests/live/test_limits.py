"""Jobs that nobody can take, and jobs that run past what was expected of them: raised by the reconciler's watches, on real stores with real servers and pilots."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.live.rule_desk import add_rule, incident, incidents
from tests.live.run_site import GOOD, TENANT, RunSite, run_site
from tests.unit.apps.server.running import until

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.jobs.job_document import State
from forestay.services.exceptions.detect.limit_monitor import LimitMonitor
from forestay.services.exceptions.detect.unavailability_monitor import UnavailabilityMonitor

pytestmark = pytest.mark.live

HUGE = """
forestay: 1
name: huge
tasks:
  eat: {command: [eat], resources: {memory: 4 TiB}, scatter: {n: {range: [0, 20]}}}
"""
SLOW = """
forestay: 1
name: slow
tasks:
  think: {command: [think], expected_runtime: 1}
  last: {command: [last], after: [think]}
"""


@pytest.fixture(params=["sqlite", "postgresql"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunSite]:
    async with run_site(request.param, tmp_path) as running:
        running.fate = lambda _claim: GOOD
        yield running


def unavailable(site: RunSite, patience: float = 0.0) -> UnavailabilityMonitor:
    parts = site.server.services.components
    return UnavailabilityMonitor(parts.store, parts.pilots, parts.pipeline, parts.flows, parts.clock, patience=patience)


def limits(site: RunSite) -> LimitMonitor:
    parts = site.server.services.components
    return LimitMonitor(parts.store, parts.pipeline, parts.flows, parts.clock)


async def looked(site: RunSite, watch: UnavailabilityMonitor | LimitMonitor) -> None:
    """Look until something is raised."""

    async def there() -> bool:
        await site.server.refresh()
        await watch.look()
        return watch.raised > 0

    await until(there, "an exception to be raised")


@pytest.mark.ledger("P1-08")
async def test_jobs_that_nobody_can_take_are_raised_once_a_round_with_what_is_missing(site: RunSite) -> None:
    run = await site.start(HUGE)
    await looked(site, unavailable(site))
    for _ in range(3):
        await unavailable(site).look()
    (fields,) = await incidents(site, run)
    assert (fields["type"], fields["state"], fields["task"]) == ("resource-unavailable", "held", "eat")
    whole = await incident(site, run, "held")
    facts: Mapping[str, Any] = whole["context"]["evidence"]["more"]
    assert facts["why"] == "no pilot offers what it needs"
    assert (facts["pilots"], facts["missing"]) == (1, {"memory": (4 << 40) - (1 << 40)})
    assert facts["nearest"]["host"] == "node1"
    steps: dict[str, object] = {"action": "force-fail", "target": "task"}
    context = {"evidence": {"more": {"missing": {"memory": 1}}}}
    await add_rule(
        site,
        "huge",
        ExceptionType.RESOURCE_UNAVAILABLE,
        "evidence.more.missing.memory > 0",
        steps,
        task="eat",
        true=context,
    )
    await site.task_is(run, "eat", "failed")
    assert (await incident(site, run, "complete"))["id"] == fields["id"]


@pytest.mark.ledger("P1-08")
async def test_a_job_that_waits_its_turn_is_none_and_one_that_is_taken_closes_its_incident(site: RunSite) -> None:
    person = site.server.person("submitter", tenant=TENANT)
    site.hold_back = lambda _claim: True
    body = {"specification": {"command": ["sleep"]}, "jobs": [{"resources": {"memory": 2 << 40}}]}
    answer = await person.post("/v1/jobs", json=body)
    assert answer.status_code in (200, 201), answer.text
    job = answer.json()["jobs"][0]["id"]
    watch = unavailable(site)
    await looked(site, watch)
    await watch.close()
    parts = site.server.services.components

    async def status() -> str:
        found_incidents = (await person.get("/v1/incidents", params={"job": job})).json()["incidents"]
        return str(found_incidents[0]["state"])

    assert await status() == "held"
    from tests.unit.apps.server.scripted_pilot import ScriptedPilot

    large = await ScriptedPilot.register(site.server, TENANT, resources={"cpus": 4, "memory": 4 << 40, "disk": 1 << 40})
    claim = await large.claim_one(resources={"cpus": 4, "memory": 4 << 40, "disk": 1 << 40})
    assert claim["job"] == job
    assert (await parts.store.get([job]))[job].document.state is State.RUNNING
    await watch.close()
    assert await status() == "complete"


@pytest.mark.ledger("P1-09")
async def test_a_job_past_its_expected_runtime_is_answered_while_it_runs(site: RunSite) -> None:
    context = {"evidence": {"wall_time": 2.0, "more": {"limit": "expected-runtime"}}}
    condition = 'evidence.more.limit == "expected-runtime" && evidence.wall_time > 1.0'
    fields: dict[str, object] = {"action": "notify", "text": "it takes long", "to": ["ada"]}
    await add_rule(site, "slow", ExceptionType.CONSTRAINT_VIOLATION, condition, fields, {"action": "restart", "target": "task"}, task="think", true=context)  # fmt: skip
    site.hold_back = lambda claim: claim["name"] == "think" and claim["attempt"] == 1 and not site.kept
    run = await site.start(SLOW)
    await site.kept_some()
    await looked(site, limits(site))
    assert (await site.result(run))["outcome"] == "completed"
    found_incident = await incident(site, run, "complete")
    assert (found_incident["type"], found_incident["task"]) == ("constraint-violation", "think")
    assert [(step["action"], step["state"]) for step in found_incident["steps"]] == [
        ("notify", "done"),
        ("restart", "done"),
    ]
    assert found_incident["context"]["evidence"]["time_limit"] == 1.0


@pytest.mark.ledger("P1-09", "P1-23")
async def test_without_a_rule_and_without_a_policy_a_passed_limit_is_left_to_its_alert(site: RunSite) -> None:
    site.hold_back = lambda claim: claim["name"] == "think"
    run = await site.start(SLOW)
    await site.kept_some()
    watch = limits(site)

    async def overdue() -> bool:
        _, claim = site.kept[0]
        stored = (await site.server.services.components.store.get([claim["job"]]))[claim["job"]]
        held = stored.document.claim
        return held is not None and site.server.services.components.clock.now() > held.granted + 1000

    await until(overdue, "the job to be late")
    await watch.look()
    assert watch.raised == 0
    assert await incidents(site, run) == []
    await site.let_go()


@pytest.mark.ledger("P1-09")
async def test_a_running_job_is_taken_back_and_sent_off_with_more(site: RunSite) -> None:
    context = {"evidence": {"more": {"times": 1}}}
    more = {"action": "resubmit", "how": "changed", "needs": {"cpus": {"factor": 2, "at_most": 8}}}
    await add_rule(
        site, "slow", ExceptionType.CONSTRAINT_VIOLATION, "evidence.more.times >= 1", more, task="think", true=context
    )
    site.hold_back = lambda claim: claim["name"] == "think" and claim["resources"]["cpus"] == 1
    run = await site.start(SLOW)
    await site.kept_some()
    await looked(site, limits(site))
    assert (await site.result(run))["outcome"] == "completed"
    assert (await incident(site, run, "complete"))["type"] == "constraint-violation"
    assert site.ran == ["think", "last"]
