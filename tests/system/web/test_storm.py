"""A storm in a real browser: its failures are one group, what a rule would do is tried on one of them first, and a person decides how it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from playwright.async_api import expect
from tests.live.run_site import RunSite
from tests.system.web.conftest import LogIn
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.rules.test_rules import MEMORY, added
from tests.unit.apps.server.running import until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

from forestay.apps.compose.loops import run_loops, stop
from forestay.services.exceptions import recovery

pytestmark = pytest.mark.pages

TENANT = "stormy"
"""Its own: a storm holds back what else its tenant does."""
MANY = 24
OOM = {"outcome": "failure", "exit_code": 137, "oom_kills": 1, "peak_memory": 1 << 30, "log_tail": "Killed\n"}
AGAIN = {"steps": [{"action": "resubmit"}]}


@pytest.fixture
async def weather(site: RunSite, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedPilot]:
    """A pilot of the tenant, and a reconciler that follows storms; two dozen failures are one, and what waits is looked at at once and not after a minute."""
    assert site.reconciler is not None
    monkeypatch.setattr(recovery, "HANDLED_FOR", 100)
    for parts in (site.server.services.components, site.reconciler.components):
        monkeypatch.setattr(parts.safeguards, "policy", replace(parts.safeguards.policy, stopped_wait=200))
        monkeypatch.setattr(parts.safeguards.storms, "policy", replace(parts.safeguards.storms.policy, least=MANY // 2))
        monkeypatch.setattr(parts.safeguards.storms, "every", 0.2)
        monkeypatch.setattr(parts.recovery, "every", 0.2)
    pilot = await ScriptedPilot.register(site.server, TENANT, host="n7", slots=64)
    loops = [
        asyncio.create_task(run_loops({"canaries": site.reconciler.components.safeguards.storms.run})),
        asyncio.create_task(site.fly(pilot)),
    ]
    yield pilot
    site.fate, site.hold_back = lambda _claim: {}, lambda _claim: False
    for loop in loops:
        await stop(loop)


@pytest.mark.acts("try a storm on one again", "let all of a storm through")
@pytest.mark.usefixtures("weather")
async def test_a_storm_is_answered_step_by_step(log_in: LogIn, site: RunSite) -> None:
    operator = site.server.person("operator", tenant=TENANT, subject="ann")
    rule = await added(operator, 'cause == "memory"', MEMORY, conclusion=AGAIN)
    assert (await operator.post(f"/v1/rules/domain/site/rules/{rule}/state", json={})).status_code == 200

    assert site.reconciler is not None
    for parts in (site.server.services.components, site.reconciler.components):
        await parts.pipeline.decider.rules.refresh()

    # They fail all at once, and the one that is tried first fails again.
    site.fate = lambda _claim: OOM
    jobs = await submit(operator, *[{}] * MANY, name="rain", max_attempts=5, when_exhausted="hold")
    vic = await log_in("vic", "viewer", tenant=TENANT)
    ann = await log_in("ann", "operator", tenant=TENANT)
    page = ann.page
    panels = []
    for who in (vic, ann):
        row = who.page.get_by_role("row").filter(has_text="Storm")
        await row.get_by_role("link").click()
        panels.append(who.page.get_by_role("main"))
        await expect(panels[-1].get_by_role("heading", name="Storm")).to_be_visible()
        await expect(panels[-1].get_by_text("0 succeeded, 1 failed, 0 not finished")).to_be_visible()
    await expect(panels[0].get_by_text("Actions need the role operator").first).to_be_visible()
    assert await panels[0].get_by_role("button", name="Allow all").count() == 0
    panel = panels[1]
    again = panel.get_by_role("button", name="Start again with one")
    await expect(again).to_be_disabled()

    # Whoever looks says that it is tried on one again; that goes well, and ten follow by themselves.
    let: list[str] = []
    site.fate = lambda claim: let.append(claim["job"]) or {}  # type: ignore[func-returns-value]
    site.hold_back = lambda _claim: len(let) >= 1
    await panel.get_by_label("Reason").fill("the nodes have their memory back")
    await ann.check()
    await ann.picture("inbox-storm")
    await again.click()
    await expect(panel.get_by_text("0 succeeded, 0 failed, 10 not finished")).to_be_visible()
    assert len(let) == 1
    await vic.page.reload()
    newest = panels[0].get_by_role("region", name="Newest failures")
    await expect(newest.get_by_text("waiting for the first retries").first).to_be_visible()
    # The site's other pilots hold their jobs back meanwhile, too.
    assert len({claim["job"] for _, claim in site.kept} & set(jobs)) <= 10

    # They are not waited for: all are let through.
    site.hold_back = lambda _claim: False
    await panel.get_by_role("button", name="Allow all").click()
    await site.let_go()

    async def recovered() -> bool:
        known = [(await operator.get(f"/v1/jobs/{job}")).json()["state"] for job in jobs]
        return known == ["completed"] * MANY

    await until(recovered, "all to be recovered", 60)
    await page.get_by_role("link", name="← Inbox").click()
    await expect(page.get_by_role("heading", name="No failures need attention")).to_be_visible()
    log = (await operator.get("/v1/audit")).json()["entries"]
    results = [(entry["what"], entry["why"]) for entry in log if entry["what"].startswith("group.")]
    assert results == [(f"group.{name}", "the nodes have their memory back") for name in ("try", "all")]
