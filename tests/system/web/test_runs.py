"""Runs in a real browser: the list, one as a live graph, suspended and continued; and what people raise from outside, foreseen or not (paper P1, section 5)."""

from __future__ import annotations

import pytest
from playwright.async_api import expect
from tests.live.rule_desk import add_rule, incident
from tests.live.run_site import BAD, GOOD, RunSite
from tests.system.web.conftest import LogIn

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.flows.events import VerbKind

pytestmark = pytest.mark.pages

FLOW = """
forestay: 1
name: concert
params: {venue: arena}
tasks:
  book: {command: [book]}
  sell: {command: [sell], after: [book]}
  seats: {command: [seat], after: [book], scatter: {seat: {range: [0, 40]}}}
  show: {command: [show], after: [sell, seats]}
"""


@pytest.mark.acts("suspend a run", "continue a run", "continue a run for who holds it")
async def test_a_run_is_seen_live_and_suspended_and_continued(log_in: LogIn, site: RunSite) -> None:
    site.hold_back = lambda claim: claim["name"] == "sell"
    run = await site.start(FLOW)
    await site.task_is(run, "sell", "running")
    await site.task_is(run, "seats", "completed")
    ann = await log_in("ann", "operator")
    page = ann.page
    await page.get_by_role("link", name="Runs").click()
    await page.get_by_role("link", name=f"concert {run[:8]}").click()
    await expect(page.get_by_role("heading", name="concert")).to_be_visible()
    graph = page.get_by_role("group", name="The flow")
    await expect(graph.locator(".node")).to_have_count(4)
    # Forty jobs are one box.
    await expect(graph.get_by_text("40 succeeded, 0 failed of 40 jobs")).to_be_visible()
    await ann.check()
    await ann.picture("run")
    state = page.locator("[data-status]")
    await page.get_by_role("button", name="Suspend", exact=True).click()
    await expect(state).to_have_attribute("data-status", "suspended")
    await page.get_by_role("button", name="Continue", exact=True).click()
    await expect(state).to_have_attribute("data-status", "running")
    # What its owner suspended stays so until the operator says that it is for the owner.
    await site.verb(run, VerbKind.SUSPEND, holder="ada")
    await expect(state).to_have_attribute("data-status", "suspended")
    await page.get_by_role("button", name="Continue for ada").click()
    await expect(state).to_have_attribute("data-status", "running")
    site.hold_back = lambda _claim: False
    await site.let_go()
    await expect(state).to_have_attribute("data-status", "completed")
    await ann.open("/runs")
    await expect(page.get_by_role("link", name=f"concert {run[:8]}")).to_be_visible()
    await ann.check()
    await ann.picture("runs")


@pytest.mark.acts("resume a run")
@pytest.mark.finding("F-D3")
async def test_a_failed_run_is_resumed_once_it_was_seen_what_runs_again(log_in: LogIn, site: RunSite) -> None:
    site.fate = lambda claim: BAD if claim["name"] == "seats" and claim["index"] == 7 else GOOD
    run = await site.start(FLOW)
    assert (await site.ended(run)).state == "failed"
    site.fate = lambda _claim: GOOD
    site.ran.clear()
    ada = await log_in("ada", "submitter")
    await ada.open(f"/runs/{run}")
    await ada.page.get_by_role("button", name="Resume", exact=True).click()
    dialog = ada.page.get_by_role("dialog")
    await expect(dialog.get_by_text("seats: 1 of 40 elements")).to_be_visible()
    await expect(dialog.get_by_text("Results that are kept: book", exact=False)).to_be_visible()
    await ada.check()
    await dialog.get_by_role("button", name="Resume the run").click()
    await expect(ada.page.locator("[data-status]")).to_have_attribute("data-status", "completed")
    assert site.ran[0] == "seats[7]"
    assert site.ran[-1] == "show"


@pytest.mark.acts("raise what the rules offer")
@pytest.mark.ledger("P1-06")
async def test_a_trigger_that_the_rules_offer_is_raised_by_a_click(log_in: LogIn, site: RunSite) -> None:
    name = "band-cancels"
    await add_rule(
        site, "concert", ExceptionType.RUN_EXTERNAL, f'exception.trigger == "{name}"',
        {"action": "remove", "target": "run"}, true={"exception": {"trigger": name}}, words="The band does not come.",
    )  # fmt: skip
    site.hold_back = lambda claim: claim["name"] == "sell"
    run = await site.start(FLOW)
    await site.task_is(run, "sell", "running")
    ada = await log_in("ada", "submitter")
    await ada.open(f"/runs/{run}")
    await expect(ada.page.get_by_text("The band does not come.")).to_be_visible()
    await ada.check()
    await ada.page.get_by_role("button", name=f"Raise {name}").click()
    await expect(ada.page.get_by_text("Raised.")).to_be_visible()
    found_incident = await incident(site, run, "held", "complete", "acting", kind="run-external")
    assert found_incident["decisions"][0]["by"].startswith("flow/concert#")
    site.hold_back = lambda _claim: False
    site.kept.clear()


@pytest.mark.acts("raise what no rule foresees", "launch a drawn playbook")
@pytest.mark.ledger("P1-27")
async def test_what_no_rule_foresees_suspends_the_run_until_a_playbook_is_drawn_and_launched(
    log_in: LogIn, site: RunSite
) -> None:
    site.hold_back = lambda claim: claim["name"] == "sell"
    run = await site.start(FLOW.replace("name: concert", "name: gala"))
    await site.task_is(run, "sell", "running")
    ada = await log_in("ada", "submitter")
    await ada.open(f"/runs/{run}")
    await ada.page.get_by_label("What happened").fill("The stage is under water")
    await ada.page.get_by_label("How it might be handled").fill("Wait, then go on")
    await ada.page.get_by_role("button", name="Report it and suspend the run").click()
    await expect(ada.page.get_by_text("Raised.")).to_be_visible()
    await expect(ada.page.locator("[data-status]")).to_have_attribute("data-status", "suspended")

    # The administrator finds it in the inbox, with what its raiser proposes, draws a playbook and launches it.
    ann = await log_in("ann", "operator")
    page = ann.page
    found_incident = await incident(site, run, "held")
    await ann.open(f"/incidents/{found_incident['id']}")
    await expect(page.get_by_text("The stage is under water").first).to_be_visible()
    await expect(page.get_by_text("Wait, then go on").first).to_be_visible()
    await ann.check()
    await page.get_by_role("link", name="Write a rule from this incident").click()
    palette = page.get_by_role("group", name="Available steps")
    await palette.get_by_role("button", name="suspend the run").click()
    await palette.get_by_role("button", name="continue the run").click()
    await page.get_by_role("button", name="Run these steps for this incident now").click()
    await expect(page.get_by_text("Running:")).to_be_visible()
    site.hold_back = lambda _claim: False
    await site.let_go()
    assert (await site.result(run))["outcome"] == "completed"
