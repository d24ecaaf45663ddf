"""Jobs in a real browser: found by their fields, counted by state, one with its attempts, its log and its story."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from playwright.async_api import expect
from tests.live.run_site import TENANT, RunSite
from tests.system.web.conftest import LogIn
from tests.unit.apps.server.asks import submit_one

pytestmark = pytest.mark.pages


@pytest.mark.acts("try a job again")
async def test_a_job_is_found_and_read_and_steered(
    log_in: LogIn, broken: Callable[..., Awaitable[list[str]]], site: RunSite
) -> None:
    await broken(2, "odd-one", owner="ida", log_tail="<script>alert(1)</script> \x1b[31mred\n")
    ann = await log_in("ann", "operator")
    page = ann.page
    await page.get_by_role("link", name="Jobs").click()
    await page.get_by_label("Find by name").fill("odd-one")
    await expect(page.get_by_role("radio", name="failed attempt 2")).to_be_attached()
    await page.get_by_text("failed attempt 2").click()
    links = page.get_by_role("link", name="odd-one")
    await expect(links).to_have_count(2)
    await page.get_by_label("Name of the view").fill("odd ones")
    await page.get_by_role("button", name="Save this view").click()
    await ann.check()
    await ann.picture("jobs")
    await ann.open("/jobs")
    await page.get_by_role("navigation", name="Saved views").get_by_role("link", name="odd ones").click()
    await expect(links).to_have_count(2)
    await links.first.click()
    await expect(page.get_by_role("heading", name="odd-one")).to_be_visible()
    await expect(page.get_by_text("<script>alert(1)</script> ␛[31mred").first).to_be_visible()
    await expect(page.get_by_role("link", name="Attempt 1")).to_be_visible()
    await ann.check()
    await ann.picture("job")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator("[data-status]")).to_have_attribute("data-status", "completed")
    assert ann.refused == []


async def test_a_job_that_printed_nothing_has_no_log_and_no_error(log_in: LogIn, site: RunSite) -> None:
    person = site.server.person("submitter", tenant=TENANT, subject="ida")
    job = await submit_one(person, name="silent")
    ann = await log_in("ann", "operator")
    await ann.open(f"/jobs/{job}")
    await expect(ann.page.locator("[data-status]")).to_have_attribute("data-status", "completed")
    await expect(ann.page.get_by_role("heading", name="Log of attempt 1")).to_be_visible()
    async with ann.page.expect_response(lambda answer: "/log?" in answer.url):
        await ann.page.reload()
    # What was answered before this is, is shown.
    await ann.page.evaluate("fetch('/v1/session').then((answer) => answer.text())")
    await expect(ann.page.get_by_text("There is no log.")).to_be_visible()
    assert await ann.page.get_by_role("alert").count() == 0


async def test_a_failure_is_run_again_with_more_on_its_page(
    log_in: LogIn, broken: Callable[..., Awaitable[list[str]]], site: RunSite
) -> None:
    (incident,) = await broken(1, "hungry", owner="hal", memory=4 << 30, log_tail="MemoryError\n")
    ann = await log_in("ann", "operator")
    await ann.open(f"/incidents/{incident}")
    page = ann.page
    await page.get_by_label("At most: memory").fill("6 GiB")
    await page.get_by_role("button", name="Run it again with more").click()
    await expect(page.locator("[data-status]")).to_have_attribute("data-status", "completed")
    rows = page.get_by_role("table", name="Attempts").get_by_role("row")
    await expect(rows).to_have_count(3)
    await expect(rows.nth(1)).to_contain_text("succeeded")
    await expect(rows.nth(1).locator(".differs").filter(has_text="6.0 GiB")).to_be_visible()
    await ann.check()


@pytest.mark.acts("hold a job", "continue a job", "cancel a job")
async def test_an_owner_holds_continues_and_cancels_a_job(log_in: LogIn, site: RunSite) -> None:
    person = site.server.person("submitter", tenant=TENANT, subject="ida")
    job = await submit_one(person, name="parked", resources={"cpus": 1000})  # more than any pilot has
    ida = await log_in("ida", "submitter")
    await ida.open(f"/jobs/{job}")
    page = ida.page
    await page.get_by_role("button", name="Hold").click()
    await page.get_by_role("button", name="Continue").click()
    await expect(page.get_by_role("button", name="Hold")).to_be_visible()
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.locator("[data-status]")).to_have_attribute("data-status", "cancelled")
    assert await page.get_by_role("button", name="Try again").count() == 0
    await ida.check()


async def test_who_may_not_steer_a_job_is_not_offered_it(
    log_in: LogIn, broken: Callable[..., Awaitable[list[str]]]
) -> None:
    await broken(1, "not-yours", owner="ida")
    for role in ("viewer", "submitter"):
        vic = await log_in("vic", role)
        await vic.open("/jobs?name=not-yours")
        await vic.page.get_by_role("link", name="not-yours").click()
        await expect(vic.page.get_by_role("heading", name="not-yours")).to_be_visible()
        for name in ("Cancel", "Try again", "Give up", "Run it again with more"):
            assert await vic.page.get_by_role("button", name=name).count() == 0
