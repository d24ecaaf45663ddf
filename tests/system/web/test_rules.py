"""A failure that nobody foresaw, recovered wholly in the browser: its evidence is read, a rule is written from it, tried, promoted, and the waiting run goes on by it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from playwright.async_api import expect
from tests.live.rule_desk import incident
from tests.live.run_site import TENANT, RunSite
from tests.system.web.browser import write
from tests.system.web.conftest import LogIn
from tests.unit.apps.server.running import until

pytestmark = pytest.mark.pages

FLOW = """
forestay: 1
name: hungry
tasks:
  first: {command: [prepare]}
  eat: {command: [eat], after: [first], resources: {memory: 1 GiB}, when_exhausted: hold}
  last: {command: [tell], after: [eat]}
"""
ONCE = """
forestay: 1
name: once
tasks:
  try: {command: [try], when_exhausted: hold}
"""
GIB = 1 << 30


def fate(claim: Mapping[str, Any]) -> dict[str, Any]:
    if claim["name"] == "eat" and claim["resources"]["memory"] < 2 * GIB:
        return {
            "outcome": "failure",
            "exit_code": 137,
            "oom_kills": 1,
            "peak_memory": GIB,
            "log_tail": "reading\nKilled\n",
        }
    return {}


@pytest.mark.acts("look at the path through the rules", "try a condition", "replay", "add a rule", "let a rule act")
@pytest.mark.ledger("P1-28", "P1-31")
async def test_a_rule_is_written_from_an_incident_and_the_waiting_run_goes_on(log_in: LogIn, site: RunSite) -> None:
    site.fate = fate
    run = await site.start(FLOW)
    found_incident = await incident(site, run, "held")
    ann = await log_in("ann", "operator")
    page = ann.page
    await page.get_by_role("link", name="Open: Memory, ada").click()
    await page.get_by_role("region", name="Newest failures").get_by_role("link", name="eat").click()
    await expect(page.get_by_role("heading", name="Memory", exact=True)).to_be_visible()
    await expect(page.get_by_text("No rule matches")).to_be_visible()
    await expect(page.get_by_text("Killed").first).to_be_visible()
    await ann.check()
    await ann.picture("incident-unanswered")
    await page.get_by_role("link", name="Write a rule from this incident").click()

    # The condition: wrong in one place, then right.
    truth = page.locator("[data-truth]")
    await expect(truth).to_have_attribute("data-truth", "true")
    editor = page.get_by_role("textbox", name="Condition")
    await write(editor, 'cause == "memory" && job.mem > 1')
    await expect(truth).to_have_attribute("data-truth", "error")
    await expect(truth.get_by_text(re.compile(r"1:\d+"))).to_be_visible()
    await expect(page.locator(".cm-lintRange-error")).to_be_visible()
    await write(editor, 'cause == "disk"')
    await expect(truth).to_have_attribute("data-truth", "false")
    await write(editor, "")
    await editor.press_sequentially("cau")
    await expect(page.get_by_role("option", name="cause").first).to_be_visible()
    await page.keyboard.press("Escape")
    await write(editor, 'cause == "memory"')
    await page.get_by_label("Find a field").fill("exit_code")
    await page.get_by_role("button", name="Add evidence.exit_code to the condition").click()
    await expect(editor).to_contain_text('cause == "memory" && evidence.exit_code == 137')
    await expect(truth).to_have_attribute("data-truth", "true")
    await page.get_by_label("Find a field").fill("")

    # The playbook: checked as it is drawn.
    save = page.get_by_role("button", name="Add in shadow mode")
    await expect(save).to_be_disabled()
    palette = page.get_by_role("group", name="Available steps")
    await palette.get_by_role("button", name="continue the task").click()
    await expect(page.get_by_role("alert").first).to_be_visible()
    await expect(save).to_be_disabled()
    await page.get_by_role("button", name="Remove step").click()
    await palette.get_by_role("button", name="Run again with 2 × memory").click()
    await page.get_by_label("Factor: memory").fill("3")
    await palette.get_by_role("button", name="notify the owner").click()
    await page.get_by_role("button", name="Move up").last.click()
    await page.get_by_label("Description").fill("Out of memory: twice as much.")
    await expect(save).to_be_enabled()
    await page.get_by_role("button", name="Check against all reference incidents, and replay").click()
    await expect(page.get_by_text("decisions would change")).to_be_visible()
    await ann.check()
    await ann.picture("rule-editor")
    await save.click()

    # A shadow, until it is promoted.
    await expect(page.get_by_text("Added in shadow mode")).to_be_visible()
    await expect(page.locator(".node").first).to_be_visible()
    await ann.check()
    await page.get_by_role("button", name="Promote").click()
    await expect(page.get_by_role("button", name="Back to shadow")).to_be_visible()
    await ann.picture("rules")
    assert (await site.result(run))["outcome"] == "completed"

    async def answered() -> bool:
        return bool((await incident(site, run, "complete"))["id"] == found_incident["id"])

    await until(answered, "the incident to be answered")
    await ann.open(f"/incidents/{found_incident['id']}")
    await expect(page.locator(".node[data-decides='true']")).to_be_visible()
    await expect(
        page.get_by_role("group", name="Playbook").get_by_text("Run again with 3 × memory, at most 64 GiB")
    ).to_be_visible()
    await expect(page.get_by_text("answered", exact=True)).to_be_visible()
    await ann.check()
    await ann.picture("incident")
    dark = await log_in("ann", "operator", dark=True)
    await dark.open(f"/incidents/{found_incident['id']}")
    await expect(dark.page.locator(".node[data-decides='true']")).to_be_visible()
    await dark.check()


async def test_the_rule_of_an_unknown_cause_is_drafted_for_its_error_alone(
    log_in: LogIn, broken: Callable[..., Awaitable[list[str]]], site: RunSite
) -> None:
    (name,) = await broken(1, "riddle", owner="rie", log_tail="something odd\n")
    shown = (await site.server.person("viewer", tenant=TENANT).get(f"/v1/incidents/{name}")).json()
    assert shown["cause"] == "unknown"
    ann = await log_in("ann", "rule-author")
    await ann.open(f"/rules/domain/site?from={name}")
    editor = ann.page.get_by_role("textbox", name="Condition")
    await expect(editor).to_have_text(f'exception.fingerprint == "{shown["fingerprint"]}"')
    await expect(ann.page.locator("[data-truth]")).to_have_attribute("data-truth", "true")


@pytest.mark.acts("launch a drawn playbook")
@pytest.mark.ledger("P1-31")
async def test_steps_that_were_drawn_are_launched_from_the_editor(log_in: LogIn, site: RunSite) -> None:
    site.fate = lambda claim: {"outcome": "failure", "exit_code": 3} if claim["attempt"] == 1 else {}
    run = await site.start(ONCE)
    found_incident = await incident(site, run, "held")
    ann = await log_in("ann", "operator")
    await ann.open(f"/rules/domain/site?from={found_incident['id']}")
    page = ann.page
    palette = page.get_by_role("group", name="Available steps")
    await palette.get_by_role("button", name="Run again", exact=True).click()
    await page.get_by_role("button", name="Run these steps for this incident now").click()
    await expect(page.get_by_text("Done:")).to_be_visible()
    assert (await site.result(run))["outcome"] == "completed"
    site.fate = lambda _claim: {}


@pytest.mark.acts("go back to a version", "let a rule act", "take a rule back to shadow")
async def test_versions_are_compared_and_gone_back_to(log_in: LogIn, site: RunSite) -> None:
    ann = await log_in("ann", "rule-author")
    await ann.open("/rules/domain/site")
    page = ann.page
    await page.get_by_role("button", name="What changed").first.click()
    await expect(page.get_by_text("promoted:")).to_be_visible()
    phone = (await log_in("ann", "rule-author", phone=True)).page
    await phone.goto(page.url)
    await expect(phone.get_by_role("button", name="What changed").first).to_be_visible()
    for wide in (page, phone):
        assert await wide.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    await page.get_by_role("button", name="Roll back to version 1").click()
    dialog = page.get_by_role("dialog", name="Roll back to version 1")
    await expect(dialog.get_by_text("withdrawn:")).to_be_visible()
    await ann.check()
    await dialog.get_by_role("button", name="Roll back to version 1").click()
    await expect(page.get_by_text("version 3")).to_be_visible()
    await page.locator(".node").first.click()
    await page.get_by_role("button", name="Promote").click()
    await page.get_by_role("button", name="Back to shadow").click()
    await expect(page.get_by_role("button", name="Promote")).to_be_visible()
    await page.get_by_text("In words").click()
    await expect(page.locator(".plain").first).to_contain_text("memory")
    await ann.check()
    person = site.server.person("viewer", tenant=TENANT)
    (tree,) = (await person.get("/v1/rules/domain/site")).json()["trees"]
    assert tree["rules"][0]["state"] == "shadow"


async def test_who_may_only_look_at_rules_is_offered_no_act(log_in: LogIn) -> None:
    vic = await log_in("vic", "viewer")
    await vic.open("/rules/domain/site")
    await vic.page.locator(".node").first.click()
    await expect(vic.page.get_by_role("heading", name="The rule", exact=True)).to_be_visible()
    assert await vic.page.get_by_role("button", name="Promote").count() == 0
    assert await vic.page.get_by_role("button", name="Roll back to version 1").count() == 0


@pytest.mark.acts("add a rule although")
async def test_a_rule_that_overturns_a_reference_incident_is_added_by_who_says_so(
    log_in: LogIn, broken: Callable[..., Awaitable[list[str]]]
) -> None:
    (text,) = await broken(1, "glutton", owner="gus", **fate({"name": "eat", "resources": {"memory": GIB}}))
    ann = await log_in("ann", "rule-author")
    await ann.open(f"/rules/domain/site?from={text}")
    page = ann.page
    await write(page.get_by_role("textbox", name="Condition"), 'cause == "memory"')
    await page.get_by_role("group", name="Available steps").get_by_role("button", name="notify the owner").click()
    save = page.get_by_role("button", name="Add in shadow mode")
    await save.click()
    await page.get_by_label("Add anyway").check()
    await save.click()
    await expect(page.get_by_text("Added in shadow mode")).to_be_visible()


@pytest.mark.acts("add a rule", "dismiss a proposal")
async def test_what_was_done_by_hand_is_offered_as_a_rule(
    log_in: LogIn, broken: Callable[..., Awaitable[list[str]]], site: RunSite
) -> None:
    fingerprints = {}
    before = (await site.server.person("viewer", tenant=TENANT).get("/v1/rules/domain/site")).json()["version"]
    operator = site.server.person("operator", tenant=TENANT, subject="ann")
    for name in ("grate", "sieve"):
        incidents = await broken(3, name, owner="uma", log_tail=f"the {name} failed to open its lid\n")
        for failure in incidents:
            shown = (await operator.get(f"/v1/incidents/{failure}")).json()
            fingerprints[name] = shown["fingerprint"]
            assert (await operator.post(f"/v1/jobs/{shown['job']}/retry", json={"reason": "again"})).status_code == 200

            async def well(job: str = shown["job"]) -> bool:
                return bool((await operator.get(f"/v1/jobs/{job}")).json()["state"] == "completed")

            await until(well, "the retry to succeed", 60)
    ann = await log_in("ann", "operator", "rule-author")
    for name, button, words in (("grate", "Do not offer this again", ""), ("sieve", "Add as a shadow rule", "Added.")):
        await ann.open(f"/errors/{fingerprints[name]}")
        offer = ann.page.get_by_role("region", name="Make it a rule")
        await expect(offer.get_by_text("This recovered 3 of 3, 3 of them by hand:")).to_be_visible()
        await ann.check()
        await offer.get_by_role("button", name=button).click()
        if words:
            await expect(offer.get_by_text(words)).to_be_visible()
        else:
            await expect(offer).to_have_count(0)
    rules = str((await operator.get("/v1/rules/domain/site")).json())
    assert fingerprints["sieve"] in rules
    assert fingerprints["grate"] not in rules
    author = site.server.person("rule-author", tenant=TENANT, subject="ann")
    assert (await author.post("/v1/rules/domain/site/rollback", json={"version": before})).status_code == 200
