"""The selection service, through the processes' own wiring: rules choose the worklet of a late-bound task when it begins, and choose anew while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests.live.run_site import GOOD, TENANT, RunSite, run_site
from tests.live.test_playbooks import done, incident_of, site_knows, steer, under_way
from tests.live.test_run_worklets import BOUND, PLACE
from tests.unit.apps.server.running import until

from forestay.domain.flows.execution.run_names import run_of
from forestay.domain.playbooks.action import ActionTarget

pytestmark = pytest.mark.live

OOM = {
    "outcome": "failure", "reason": "signal", "signal": 9,
    "log_tail": "slurmstepd: error: Detected 1 oom_kill event in StepId=811.batch. Some of the step tasks have been OOM Killed.\n",
}  # fmt: skip


@dataclass
class Scenario:
    """A flow of its own with a place of its own, and who writes rules for it."""

    site: RunSite
    operator: httpx.AsyncClient
    name: str

    @property
    def flow(self) -> str:
        return PLACE.replace("PLACE", self.name).replace("name: late", f"name: {self.name}")

    async def stored(self, worklet: str) -> str:
        """The version of a worklet that is this scenario's alone."""
        text = BOUND.replace("NAME", worklet).replace(f"name: {worklet}", f"name: {self.name}-{worklet}")
        answer = await self.operator.post("/v1/flows", json={"text": text})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["version"])

    async def keep(self, playbook: str, *steps: dict[str, Any]) -> None:
        name = f"{self.name}-{playbook}"
        body: dict[str, Any] = {"name": name, "steps": list(steps)}
        answer = await self.operator.put(f"/v1/playbooks/{name}", json={"text": str(body)})
        assert answer.status_code == 200, answer.text

    async def rule(self, condition: str, playbook: str, n: int, *, of: str = "", **more: Any) -> str:
        """A rule that acts, for the reference incident of a run with this number."""
        rule_set = f"/v1/rules/flow/{of or self.name}"
        draft = {
            "type": "selection", "task": "inspect", "condition": condition, "conclusion": {"playbook": f"{self.name}-{playbook}"},
            "reference_incident": f"{playbook}-{n}", "context": {"run": {"data": {"n": n}}}, "confirmed": True,
        } | more  # fmt: skip
        made = await self.operator.post(rule_set, json=draft)
        assert made.status_code == 200, made.text
        rule = str(made.json()["rule"])
        state = await self.operator.post(f"{rule_set}/rules/{rule}/state", json={"state": "active"})
        assert state.status_code == 200, state.text
        return rule

    async def anew(self, run: str, wanted: str, order: str = "") -> None:
        """Choose anew until the answer says so: the copies of the rules are up to half a second old."""

        async def said() -> bool:
            answer = await self.operator.post(f"/v1/runs/{run}/tasks/inspect/choose", json={"id": order or uuid4().hex})
            assert answer.status_code == 200, answer.text
            body = answer.json()
            return wanted in ("replaced" if body["replaced"] else body["detail"])

        await until(said, wanted)

    async def known(self, rule: str) -> None:
        """Wait until the orchestrator goes by a rule."""
        assert self.site.orchestrator is not None
        cache = self.site.orchestrator.components.pipeline.decider.rules

        async def there() -> bool:
            await cache.refresh()
            return any(rule_set.find(rule) is not None for rule_set in cache.sets_of(TENANT))

        await until(there, "the rule")


def selecting(flow: str, **give: object) -> dict[str, Any]:
    return {"action": "select", "worklet": {"flow": flow, "give": give}}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunSite]:
    async with run_site(request.param, tmp_path_factory.mktemp("selection")) as running:
        yield running


@pytest.fixture
def scenario(site: RunSite) -> Scenario:
    site.ran.clear()
    site.kept.clear()
    site.fate = lambda _claim: GOOD
    site.hold_back = lambda _claim: False
    return Scenario(site, site.server.person("operator", tenant=TENANT), f"place-{uuid4().hex[:8]}")


@pytest.mark.ledger("P1-26")
async def test_the_rules_are_asked_before_the_place(site: RunSite, scenario: Scenario) -> None:
    quick, thorough = await scenario.stored("quick"), await scenario.stored("thorough")
    assert (
        await scenario.operator.put(f"/v1/late-bound-tasks/{scenario.name}", json={"flow": quick})
    ).status_code == 200
    first = await site.start(scenario.flow, n=7)
    assert (await site.result(first))["outputs"] == {"seen": "quick 7 1"}
    # A rule is added while the domain runs: the next task that begins is chosen for by it, with data of its run.
    await scenario.keep("thorough", selecting(thorough, factor="${params.n}"))
    await scenario.known(
        await scenario.rule(
            "run.data.n > 6 && task.data.n == run.data.n",
            "thorough",
            7,
            context={"run": {"data": {"n": 7}}, "task": {"data": {"n": 7}}},
        )
    )
    second, third = await site.start(scenario.flow, n=7), await site.start(scenario.flow, n=5)
    assert (await site.result(second))["outputs"] == {"seen": "thorough 7 7"}
    assert (await site.result(third))["outputs"] == {"seen": "quick 5 1"}


@pytest.mark.ledger("P1-26")
async def test_a_worklet_that_runs_is_replaced_only_when_another_is_chosen(site: RunSite, scenario: Scenario) -> None:
    quick, thorough = await scenario.stored("quick"), await scenario.stored("thorough")
    await scenario.keep("quick", selecting(quick))
    await scenario.keep("thorough", selecting(thorough, factor=3))
    rule = await scenario.rule("run.data.n >= 5", "quick", 5)
    await scenario.known(rule)
    site.hold_back = lambda claim: claim["name"] == "quick"
    run = await site.start(scenario.flow, n=5)
    running = run_of(run, "inspect@1", 0)
    await site_knows(site, running)
    await under_way(site, running, "quick")
    await scenario.anew(run, "the same worklet is chosen; the running one continues")
    # No rule answers any more: what runs is not stopped for nothing.
    gone = await scenario.operator.delete(f"/v1/rules/flow/{scenario.name}/rules/{rule}", params={"confirmed": "true"})
    assert gone.status_code == 200
    await scenario.anew(run, "no worklet is chosen now; the running one continues")
    assert (await site.engine.describe(running)).ended is None
    await scenario.rule("run.data.n == 5", "thorough", 5)
    await scenario.anew(run, "replaced")
    assert (await site.result(run))["outputs"] == {"seen": "thorough 5 3"}
    assert (await site.ended(running)).state == "failed"
    assert site.ran == ["before", "thorough", "after"]
    await scenario.anew(run, "the task has already ended: completed")


async def test_a_conclusion_that_is_no_worklet_fails_the_task_in_words(site: RunSite, scenario: Scenario) -> None:
    await scenario.keep("wrong", selecting(await scenario.stored("quick")))
    rule = await scenario.rule("true", "wrong", 5)
    # The playbook is changed after a rule has come to conclude it.
    await scenario.keep("wrong", {"action": "notify", "text": "no worklet"})
    await scenario.known(rule)
    run = await site.start(scenario.flow, n=5)
    await site.task_is(run, "inspect", "faulted")
    tasks = {task["id"]: task for task in (await site.engine.state(run))["instances"]}
    assert f"rule flow/{scenario.name}#{rule} does not conclude a worklet" in tasks["inspect"]["reason"]


@pytest.mark.ledger("P1-37")
async def test_selection_and_exceptions_work_in_one_run(site: RunSite, scenario: Scenario) -> None:
    """The worklet is chosen by a rule, has a failure that another rule answers, and its run is suspended and continued meanwhile."""
    quick = await scenario.stored("quick")
    await scenario.keep("quick", selecting(quick))
    await scenario.keep("again", {"action": "resubmit"})
    await scenario.known(await scenario.rule("true", "quick", 5))
    abort = {"type": "abort", "task": "quick", "context": {"cause": "memory"}}
    await scenario.known(await scenario.rule('cause == "memory"', "again", 5, of=f"{scenario.name}-quick", **abort))
    site.fate = lambda claim: OOM if claim["name"] == "quick" and site.ran.count("quick") == 1 else GOOD
    site.hold_back = lambda claim: claim["name"] == "quick" and "quick" in site.ran
    run = await site.start(scenario.flow, n=5)
    running = run_of(run, "inspect@1", 0)
    await site_knows(site, running)
    await site.kept_some()
    # The second attempt runs: the first one's failure was answered by the rule.
    await done(
        site,
        await incident_of(site, run, "inspect"),
        steer("suspend", ActionTarget.RUN),
        steer("continue", ActionTarget.RUN),
    )
    site.hold_back = lambda _claim: False
    site.fate = lambda _claim: GOOD
    await site.let_go()
    assert (await site.result(run))["outputs"] == {"seen": "quick 5 1"}
    incidents = (await scenario.operator.get("/v1/incidents", params={"run": running})).json()["incidents"]
    assert [(incident["type"], incident["state"]) for incident in incidents] == [("abort", "complete")]
