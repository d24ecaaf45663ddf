"""The overview in a real browser: what came of the jobs, in words, in figures and drawn; and on a first visit what to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import pytest
from playwright.async_api import expect
from tests.live.run_site import TENANT, RunSite
from tests.system.web.browser import Person
from tests.system.web.conftest import LogIn
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.running import until

pytestmark = pytest.mark.pages

Broken = Callable[..., Awaitable[list[str]]]


def asked(person: Person) -> list[str]:
    """The routes of the server that the page has asked since it was opened last."""
    paths = [urlsplit(request.url).path for request in person.asked]
    return sorted({path for path in paths if path.startswith("/v1/")})


async def test_a_first_visit_to_the_overview_teaches_what_to_do(log_in: LogIn) -> None:
    ann = await log_in("ann", "viewer", tenant="newcomers")
    await ann.page.get_by_role("link", name="Overview").click()
    await expect(ann.page.get_by_role("heading", name="no job was submitted")).to_be_visible()
    await expect(ann.page.get_by_text("forestay submit --name sweep")).to_be_visible()
    await ann.check()


async def test_what_came_of_the_jobs_is_said_and_drawn(log_in: LogIn, broken: Broken, site: RunSite) -> None:
    await broken(2, "seen-later", owner="ada", log_tail="odd\n")
    person = site.server.person("submitter", tenant=TENANT)
    again = await submit(person, name="twice", max_attempts=2, resources={"cpus": 4})
    site.fate = lambda claim: {"outcome": "failure", "exit_code": 9} if claim["attempt"] == 1 else {"wall": 1800.0}

    async def over() -> bool:
        return bool((await person.get(f"/v1/jobs/{again[0]}")).json()["state"] == "completed")

    await until(over, "the job that was tried twice", 60)
    site.fate = lambda _claim: {}
    ann = await log_in("ann", "viewer")
    await ann.leave()
    await ann.open("/overview?span=week")
    page = ann.page
    words = page.get_by_role("region", name="In words")
    await expect(words.get_by_text("In the last week")).to_be_visible()
    # The same answer for all who ask at about the same time.
    body = (await site.server.person("viewer", tenant=TENANT).get("/v1/overview", params={"span": "week"})).json()
    assert body["fates"]["recovered"] >= 1
    assert body["fates"]["core_hours_saved"] >= 2
    await expect(words).to_contain_text(f"{sum(body['submitted']):,} jobs were submitted")
    await expect(words).to_contain_text(
        f"{body['fates']['jobs']} jobs had a failure: {body['fates']['recovered']} recovered"
    )
    await expect(page.get_by_text("Core-hours saved").first).to_be_visible()
    for title in ("Finished jobs", "Queue wait", "Failures by cause"):
        figure = page.get_by_role("figure", name=title)
        await expect(figure.locator("canvas")).to_be_visible()
    figure = page.get_by_role("figure", name="Finished jobs")
    await figure.get_by_text("As a table").click()
    cells = await figure.locator("tbody tr td:nth-child(2)").all_inner_texts()
    assert [int(cell.replace(",", "")) for cell in cells] == body["well"]
    await figure.get_by_text("As a table").click()
    await ann.check()
    await ann.picture("overview")
    assert asked(ann) == ["/v1/inbox/changes", "/v1/overview", "/v1/session"]
    await page.get_by_text("Hour", exact=True).click()
    await expect(words.get_by_text("In the last hour")).to_be_visible()
    assert "span=hour" in page.url
    assert ann.refused == []


async def test_the_overview_on_a_phone_in_the_dark_and_in_chinese(log_in: LogIn, broken: Broken) -> None:
    await broken(1, "dark-phone")
    ann = await log_in("ann", "viewer", phone=True, dark=True)
    await ann.open("/overview?span=month")
    await expect(ann.page.get_by_role("figure", name="Failures by cause").locator("canvas")).to_be_visible()
    await ann.check()
    assert await ann.page.evaluate("document.documentElement.scrollWidth") <= 390
    await ann.picture("overview-phone")
    await ann.page.get_by_role("button", name="中文").click()
    await expect(ann.page.get_by_role("heading", name="概览")).to_be_visible()
    await ann.check()
