"""Failures of a run's jobs on a real Temporal and a real store: a rule that is added while the run waits releases it, and the next one needs nobody."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.live.run_site import GOOD, TENANT, RunSite, run_site
from tests.unit.apps.server.running import until

from forestay.adapters.cel.conditions import CelConditions
from forestay.adapters.cel.sandbox import CelSandbox
from forestay.adapters.system.clock import RandomIds, SystemClock
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.rules.rule_set import RuleSetId, RuleSetLevel
from forestay.domain.rules.rule_tree import Conclusion
from forestay.services.rules.rule_editor import Edited, RuleDraft, RuleEditor
from forestay.services.rules.rule_store import RuleStore

pytestmark = pytest.mark.live

FLOW = """
forestay: 1
name: hungry
tasks:
  first: {command: [prepare]}
  eat: {command: [eat], after: [first], resources: {memory: 1 GiB}, when_exhausted: hold}
  last: {command: [tell], after: [eat]}
"""
OOM = {
    "outcome": "failure", "reason": "signal", "signal": 9,
    "log_tail": "slurmstepd: error: Detected 1 oom_kill event in StepId=811.batch. Some of the step tasks have been OOM Killed.\n",
}  # fmt: skip
MORE: dict[str, object] = {
    "action": "resubmit",
    "how": "changed",
    "needs": {"memory": {"factor": 2, "at_most": 1 << 36}},
}
TOLD: dict[str, object] = {"action": "notify", "text": "it gets more memory"}


@pytest.fixture(params=["sqlite", "postgresql"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunSite]:
    async with run_site(request.param, tmp_path) as running:
        running.fate = hungry
        yield running


def hungry(claim: Mapping[str, Any]) -> dict[str, Any]:
    return OOM if claim["name"] == "eat" and claim["resources"]["memory"] < 2 << 30 else GOOD


async def add_rule(site: RunSite, flow: str, *steps: dict[str, object]) -> None:
    """As an author and an approver do it, while everything runs."""
    sandbox = CelSandbox()
    try:
        parts = site.server.services.components
        edit = RuleEditor(RuleStore(parts.documents), CelConditions(), sandbox, SystemClock(), RandomIds().claim)
        name = RuleSetId(TENANT, RuleSetLevel.FLOW, flow)
        condition = 'cause == "memory" && job.memory < 8 * 1024 * 1024 * 1024'
        context = {"cause": "memory", "job": {"memory": 1 << 30}}
        draft = RuleDraft(name, ExceptionType.ABORT, "eat", condition, Conclusion(steps=steps), "an-incident", context)
        made = await edit.add(draft, by="ann")
        assert isinstance(made, Edited), made
        assert isinstance(await edit.promote(name, made.rule, by="ben"), Edited)
    finally:
        await sandbox.close()


async def incident(site: RunSite, run: str, state: str) -> dict[str, Any]:
    """The one incident of a run, as soon as it stands so."""
    person = site.server.person("viewer", tenant=TENANT)

    async def there() -> str | None:
        incidents = (await person.get("/v1/incidents", params={"run": run, "state": state})).json()["incidents"]
        return incidents[0]["id"] if incidents else None

    name = await until(there, f"an incident that is {state}", 60)
    whole: dict[str, Any] = (await person.get(f"/v1/incidents/{name}")).json()
    return whole


@pytest.mark.ledger("P0-16", "P1-07", "P1-25", "P1-28")
async def test_a_waiting_run_goes_on_by_a_rule_and_the_next_needs_nobody(site: RunSite) -> None:
    run = await site.start(FLOW)
    found_incident = await incident(site, run, "held")
    assert (found_incident["cause"], found_incident["task"]) == ("memory", "eat")
    assert site.ran == ["first", "eat"]
    await add_rule(site, "hungry", MORE)
    assert (await site.result(run))["outcome"] == "completed"
    assert site.ran == ["first", "eat", "eat", "last"]
    found_incident = await incident(site, run, "complete")
    assert [decision["verdict"] for decision in found_incident["decisions"]] == ["hold", "playbook"]
    again = await site.start(FLOW)
    assert (await site.result(again))["outcome"] == "completed"
    found_incident = await incident(site, again, "complete")
    assert [decision["verdict"] for decision in found_incident["decisions"]] == ["playbook"]


async def test_a_playbook_of_several_steps_is_carried_out_by_the_engine(site: RunSite) -> None:
    run = await site.start(FLOW)
    await incident(site, run, "held")
    await add_rule(site, "hungry", TOLD, MORE)
    assert (await site.result(run))["outcome"] == "completed"
    found_incident = await incident(site, run, "complete")
    assert [(step["action"], step["state"]) for step in found_incident["steps"]] == [
        ("notify", "done"),
        ("resubmit", "done"),
    ]
