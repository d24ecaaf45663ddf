"""The concert of paper P1 wholly by mouse and keyboard: an exception that nobody foresaw is raised, a playbook is drawn and launched for it, the run goes on; the rule that is
written from it then answers the next one by itself."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect
from tests.live.run_site import RunSite
from tests.system.web.browser import write
from tests.system.web.conftest import LogIn

pytestmark = pytest.mark.pages

FLOW = """
forestay: 1
name: open-air
params: {venue: stadium}
tasks:
  book_stadium: {command: [book]}
  sell_tickets: {command: [sell], after: [book_stadium]}
  do_show: {command: [show], after: [sell_tickets]}
"""
LEAK = "the roof leaks"


async def _open_run(page: Page, run: str) -> None:
    await page.get_by_role("link", name="Runs", exact=True).click()
    await page.get_by_role("link", name=f"open-air {run[:8]}").click()
    await expect(page.get_by_role("heading", name="open-air")).to_be_visible()


@pytest.mark.ledger("P1-27", "P1-28", "P1-31", "P1-32")
async def test_the_concert_is_saved_by_mouse_and_keyboard(log_in: LogIn, site: RunSite) -> None:
    site.hold_back = lambda claim: claim["name"] == "sell_tickets"
    run = await site.start(FLOW, owner="clara")  # whose failures are a group of their own in the inbox
    await site.task_is(run, "sell_tickets", "running")

    # Who runs the concert says what happened; the run is suspended as a safeguard.
    clara = await log_in("clara", "submitter")
    await _open_run(clara.page, run)
    await clara.page.get_by_label("What happened").fill(LEAK)
    await clara.page.keyboard.press("Tab")
    await clara.page.keyboard.type("cover the stage")
    await clara.page.get_by_role("button", name="Report it and suspend the run").click()
    status = clara.page.locator("[data-status]")
    await expect(status).to_have_attribute("data-status", "suspended")

    # The administrator finds it in the inbox, and writes a rule from it.
    ann = await log_in("ann", "operator")
    page = ann.page
    row = page.get_by_role("row").filter(has_text=LEAK)
    await row.get_by_role("link").click()
    await page.get_by_role("region", name="Newest failures").get_by_role("link", name=run[:8]).click()
    await expect(page.get_by_text("cover the stage").first).to_be_visible()
    await page.get_by_role("link", name="Write a rule from this incident").click()
    condition = page.get_by_role("textbox", name="Condition")
    await write(condition, "")
    await page.get_by_label("Find a field").fill("trigger")
    await page.get_by_role("button", name="Add exception.trigger to the condition").click()
    await expect(condition).to_contain_text(f'exception.trigger == "{LEAK}"')
    await expect(page.locator("[data-truth]")).to_have_attribute("data-truth", "true")

    # The playbook is drawn, and launched for this concert; it goes on.
    palette = page.get_by_role("group", name="Available steps")
    for step in ("suspend the run", "notify the owner", "continue the run"):
        await palette.get_by_role("button", name=step).click()
    await expect(page.get_by_role("group", name="Playbook").locator(".node")).to_have_count(3)
    await page.get_by_label("Description").fill("The stage is covered.")
    await page.get_by_role("button", name="Run these steps for this incident now").click()
    await expect(page.get_by_text("Running:")).to_be_visible()
    await expect(status).to_have_attribute("data-status", "running")

    # The same steps become a rule: a shadow first, and then it acts.
    await page.get_by_role("button", name="Add in shadow mode").click()
    await expect(page.get_by_text("Added in shadow mode")).to_be_visible()
    await page.get_by_role("button", name="Promote").click()
    await expect(page.get_by_role("button", name="Back to shadow")).to_be_visible()
    site.hold_back = lambda _claim: False
    await site.let_go()
    await expect(status).to_have_attribute("data-status", "completed")

    # The next concert is offered what the rule answers; raised by a click, it is answered without anybody.
    site.hold_back = lambda claim: claim["name"] == "sell_tickets"
    other = await site.start(FLOW, owner="clara")
    await site.task_is(other, "sell_tickets", "running")
    await _open_run(clara.page, other)
    await clara.page.get_by_role("button", name=f"Raise {LEAK}").click()
    await clara.page.get_by_role("link", name="Open the incident").first.click()
    await expect(clara.page.get_by_text("answered", exact=True)).to_be_visible()
    await expect(clara.page.locator(".node[data-decides='true']")).to_be_visible()
    await clara.check()
    await clara.picture("incident-answered")
    await clara.page.get_by_role("link", name="Run", exact=True).click()
    await expect(status).to_have_attribute("data-status", "running")
    site.hold_back = lambda _claim: False
    await site.let_go()
    await expect(status).to_have_attribute("data-status", "completed")
    assert clara.refused == ann.refused == []
