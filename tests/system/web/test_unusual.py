"""What is done to groups beside trying again: a playbook on one, ten and all; and what an approver agrees to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from playwright.async_api import expect
from tests.live.rule_desk import add_rule, incident
from tests.live.run_site import TENANT, RunSite
from tests.system.web.conftest import LogIn
from tests.unit.apps.server.running import until

from forestay.domain.exceptions.incidents.exception_type import ExceptionType

pytestmark = pytest.mark.pages

FORCED = """
forestay: 1
name: forced
tasks:
  odd: {command: [odd], when_exhausted: hold}
  last: {command: [tell], after: [odd]}
"""


@pytest.mark.acts("carry out a playbook on a group", "launch a kept playbook")
async def test_a_kept_playbook_is_carried_out_on_one_on_ten_and_on_all(
    log_in: LogIn, broken: Callable[..., Awaitable[list[str]]], site: RunSite
) -> None:
    author = site.server.person("rule-author", tenant=TENANT, subject="ann")
    text = "forestay: 1\nname: once-more\ndescription: Try it again, as it is.\nsteps:\n  - resubmit\n"
    kept = await author.put("/v1/playbooks/once-more", json={"text": text})
    assert kept.status_code in (200, 201), kept.text
    await broken(12, "spun", owner="una")
    ann = await log_in("ann", "operator")
    page = ann.page
    await page.get_by_role("link", name="Open: Unknown, una").click()
    panel = page.get_by_role("main")
    await panel.get_by_role("radio", name="Run a playbook").check()
    await panel.get_by_role("textbox", name="Run a playbook").click()
    await page.get_by_role("option", name="once-more").click()
    await panel.get_by_label("Reason").fill("the node is back")
    await panel.get_by_role("button", name="Apply to one").click()
    await expect(panel.get_by_text("1 succeeded")).to_be_visible()
    await panel.get_by_role("button", name="Then to ten").click()
    await expect(panel.get_by_text("10 succeeded")).to_be_visible()
    await panel.get_by_role("button", name="Then to the rest").click()
    await expect(panel.get_by_text("All jobs of this group are done.")).to_be_visible()
    await ann.check()

    # On one incident alone, from its own page.
    (single,) = await broken(1, "spun-too", owner="una")
    await ann.open(f"/incidents/{single}")
    await page.get_by_role("button", name="Run a playbook").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("textbox", name="Playbook").click()
    await page.get_by_role("option", name="once-more").click()
    await dialog.get_by_role("button", name="Run a playbook").click()
    await expect(page.get_by_text("answered", exact=True)).to_be_visible()


async def held_run(site: RunSite, flow: str) -> tuple[str, dict[str, Any]]:
    """A run in which a rule may not do alone what it says; and the incident that waits."""
    await add_rule(
        site, flow, ExceptionType.ABORT, 'job.name == "odd"', {"action": "force-complete", "target": "task"},
        true={"job": {"name": "odd"}}, words="What is odd counts as done.",
    )  # fmt: skip
    site.fate = lambda claim: {"outcome": "failure", "exit_code": 9} if claim["name"] == "odd" else {}
    run = await site.start(FORCED.replace("name: forced", f"name: {flow}"))
    found_incident = await incident(site, run, "held")
    assert "approval" in found_incident["note"]
    return run, found_incident


@pytest.mark.acts("agree")
async def test_an_approver_agrees_in_the_inbox(log_in: LogIn, site: RunSite) -> None:
    run, fields = await held_run(site, "forced")
    # Who may not agree is not offered it; who may does, and the run goes on.
    for name, role in (("vic", "operator"), ("ben", "approver")):
        who = await log_in(name, role)
        await who.page.get_by_role("tab", name="Awaiting approval").click()
        row = who.page.get_by_role("row").filter(has_text="approval")
        await row.get_by_role("link").first.click()
        panel = who.page.get_by_role("main")
        await expect(panel.get_by_role("heading", name="Approvals needed")).to_be_visible()
        if role == "operator":
            await expect(panel.get_by_text("Actions need the role approver").first).to_be_visible()
            assert await panel.get_by_role("button", name="Approve").count() == 0
    await who.check()
    request = panel.get_by_role("article").filter(has_text="force-complete")
    await request.get_by_label("Reason").fill("seen")
    await request.get_by_role("button", name="Approve").click()
    assert (await site.result(run))["outcome"] == "completed"

    async def answered() -> bool:
        return bool((await incident(site, run, "complete"))["id"] == fields["id"])

    await until(answered, "the incident to be answered", 60)
    site.fate = lambda _claim: {}


async def test_what_an_approver_refuses_waits_for_the_first_again(log_in: LogIn, site: RunSite) -> None:
    run, fields = await held_run(site, "refused")
    ben = await log_in("ben", "approver")
    await ben.page.get_by_role("tab", name="Awaiting approval").click()
    await ben.page.get_by_role("row").filter(has_text="approval").get_by_role("link").first.click()
    panel = ben.page.get_by_role("main")
    # Other tests' requests may wait at this site too.
    request = panel.get_by_role("article").filter(has_text="force-complete")
    await request.get_by_label("Reason").fill("the file is cut off")
    await request.get_by_role("button", name="Reject").click()
    await expect(request).to_have_count(0)
    await ben.check()

    vic = await log_in("vic", "operator")
    await vic.open(f"/incidents/{fields['id']}")
    await expect(vic.page.get_by_text("ben rejected the rule's action").first).to_be_visible()
    await vic.open("/inbox")
    await expect(vic.page.get_by_role("row").filter(has_text="a person").first).to_be_visible()
    waits = vic.page.get_by_role("row").filter(has_text="force-complete").filter(has_text="approval")
    await expect(waits).to_have_count(0)
    assert (await site.tasks(run))["odd"] != "completed"
    site.fate = lambda _claim: {}
    again = site.server.person("operator", tenant=TENANT, subject="vic")
    assert (await again.post(f"/v1/jobs/{fields['job']}/retry")).status_code == 200
