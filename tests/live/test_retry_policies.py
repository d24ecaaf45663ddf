"""The model of paper P2 on a real Temporal, through the processes' own wiring: a dispatcher, retry_policies by configuration, and compensations at their end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.live.run_site import GOOD, TENANT, RunSite, run_site
from tests.unit.apps.server.running import until

from forestay.domain.flows.execution.run_names import job_of

pytestmark = pytest.mark.live

FLOW = """
forestay: 1
name: NAME
tasks:
  reserve: {command: [do, reserve], compensate: {command: [undo, reserve]}}
  charge: {command: [do, charge], after: [reserve], compensate: {command: [undo, charge]}}
  publish: {command: [do, publish], after: [charge], when_failed: hold, compensate: {command: [undo, publish]}}
  bill: {command: [do, bill], after: [publish]}
  remind: {command: [do, remind], after: [charge], wait: false}
"""
"""A failed `publish` by itself would wait for a person: the run ends only because it is rolled back."""
DONE = ["do reserve", "do charge"]
NO_ROUTE = "ssh: connect to host approvals port 22: No route to host\n"
NO_MODULE = "Traceback (most recent call last):\n  File \"bill.py\", line 1, in <module>\nModuleNotFoundError: No module named 'prices'\n"
FULL = "OSError: [Errno 28] No space left on device: 'slot.json'\n"
SETTINGS: dict[str, Any] = {
    "retry_policies": {
        "short": {"levels": [{"wait": 0}, {"wait": "1 s", "tries": 2}]},
        "brief": {"levels": [{"wait": 0}]},
        "patient": {"levels": [{"wait": 0, "tries": 9}]},
    },
    "budgets": {"causes": {"disk": 1}},
    "unanswered": {"*": "dispatch short", "memory": "hold"},
}


@pytest.fixture(params=["sqlite", "postgresql"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunSite]:
    async with run_site(request.param, tmp_path, **SETTINGS) as running:
        running.ran = Ran()
        yield running


class Ran(list[str]):
    """The commands in their order; `remind`, for which nobody waits, is left out."""

    def note(self, claim: Mapping[str, Any]) -> str:
        words = " ".join(claim["specification"]["command"])
        if words != "do remind":
            self.append(words)
        return words

    def append(self, words: str) -> None:
        if words.startswith(("do ", "undo ")):
            super().append(words)


def failing(site: RunSite, **printed: tuple[str, int]) -> None:
    """Some tasks print this and fail, so many times."""
    left = {f"do {name}": many for name, (_, many) in printed.items()}
    assert isinstance(site.ran, Ran)
    ran = site.ran

    def fate(claim: Mapping[str, Any]) -> dict[str, Any]:
        words = ran.note(claim)
        if left.get(words, 0) > 0:
            left[words] -= 1
            return {"outcome": "failure", "exit_code": 1, "log_tail": printed[words.removeprefix("do ")][0]}
        return GOOD

    site.fate = fate


async def story(site: RunSite, run: str, task: str) -> list[str]:
    """What retry_policies wrote into the story of a task's job."""
    name = job_of(run, f"{task}@1", 0)
    document = (await site.server.services.components.store.get([name]))[name].document
    return [line.note.partition("; incident")[0] for line in document.history if line.by.startswith("playbook:")]


async def decisions(site: RunSite, run: str) -> list[tuple[str, str]]:
    """Of each incident of a run, in their order, where it stands and who decided it."""
    person = site.server.person("viewer", tenant=TENANT)

    async def told() -> list[tuple[str, str]] | None:
        await site.server.refresh()
        incidents = (await person.get("/v1/incidents", params={"run": run, "sort": "at"})).json()["incidents"]
        whole = [(await person.get(f"/v1/incidents/{incident['id']}")).json() for incident in incidents]
        stand = [(entry["state"], entry["decisions"][0]["by"].partition("#")[0]) for entry in whole]
        return stand if all(state not in ("open", "acting") for state, _ in stand) else None

    decisions: list[tuple[str, str]] = await until(told, "every incident to be decided")
    return decisions


@pytest.mark.ledger("P2-03", "P2-05", "P2-06", "P2-07")
async def test_what_may_pass_is_tried_again_in_levels_and_joins_the_way_of_success(site: RunSite) -> None:
    failing(site, publish=(NO_ROUTE, 2), bill=(NO_MODULE, 1))
    run = await site.start(FLOW.replace("NAME", "passing"))
    # The dispatcher tells the two apart: the network may come back, a module that is missing stays missing.
    assert (await site.ended(run)).state == "failed"
    assert site.ran == [*DONE, *["do publish"] * 3, "do bill", "undo publish", "undo charge", "undo reserve"]
    assert await story(site, run, "publish") == [
        "level 0 of retry policy short, after 0 s",
        "level 1 of retry policy short, after 1 s",
    ]
    assert await story(site, run, "bill") == []
    assert await decisions(site, run) == [("complete", "default policy")] * 3
    # Nothing fails: nothing is undone.
    failing(site)
    site.ran.clear()
    good = await site.start(FLOW.replace("NAME", "passing"))
    assert (await site.ended(good)).state == "completed"
    assert site.ran == [*DONE, "do publish", "do bill"]


@pytest.mark.ledger("P2-04", "P2-05", "P2-07")
async def test_after_the_last_level_the_run_is_compensated(site: RunSite) -> None:
    failing(site, publish=(NO_ROUTE, 99))
    run = await site.start(FLOW.replace("NAME", "lasting"))
    assert (await site.ended(run)).state == "failed"
    assert site.ran == [*DONE, *["do publish"] * 4, "undo charge", "undo reserve"]
    assert (await story(site, run, "publish"))[-1] == ("rollback: all 3 retries of the retry policy short were used")


@pytest.mark.ledger("P2-04", "P2-05", "P2-07")
async def test_a_rule_comes_before_the_default_policy_and_a_cause_has_its_budget(site: RunSite) -> None:
    operator = site.server.person("operator", tenant=TENANT)
    for cause, retry_policy in (("network", "brief"), ("disk", "patient")):
        text = f"name: {retry_policy}\nsteps: [{{action: retry, retry_policy: {retry_policy}}}]\n"
        assert (await operator.put(f"/v1/playbooks/{retry_policy}", json={"text": text})).status_code == 200
        rule = {
            "type": "abort", "task": "publish", "condition": f'cause == "{cause}"', "conclusion": {"playbook": retry_policy},
            "reference_incident": cause, "context": {"cause": cause},
        }  # fmt: skip
        made = (await operator.post("/v1/rules/flow/ruled", json=rule)).json()
        answer = await operator.post(f"/v1/rules/flow/ruled/rules/{made['rule']}/state", json={"state": "active"})
        assert answer.status_code == 200
    failing(site, publish=(NO_ROUTE, 99))
    run = await site.start(FLOW.replace("NAME", "ruled"))
    assert (await site.ended(run)).state == "failed"
    assert site.ran == [*DONE, *["do publish"] * 2, "undo charge", "undo reserve"]
    assert await decisions(site, run) == [("complete", "flow/ruled")] * 2
    failing(site, publish=(FULL, 99))
    site.ran.clear()
    full = await site.start(FLOW.replace("NAME", "ruled"))
    assert (await site.ended(full)).state == "failed"
    assert site.ran == [*DONE, *["do publish"] * 2, "undo charge", "undo reserve"]
    assert (await story(site, full, "publish"))[-1] == "rollback: 1 retries for disk; 1 are allowed"


async def test_a_job_that_nobody_waits_for_fails_alone(site: RunSite) -> None:
    failing(site, remind=(NO_MODULE, 1))
    run = await site.start(FLOW.replace("NAME", "alone"))
    assert (await site.ended(run)).state == "completed"
    assert site.ran == [*DONE, "do publish", "do bill"]
