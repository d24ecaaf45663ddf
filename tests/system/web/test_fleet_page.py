"""Sites, pilots, hosts, caches and peers in a real browser, and what may be done to them, tried as each role."""

from __future__ import annotations

import pytest
from playwright.async_api import expect
from tests.live.run_site import TENANT, RunSite
from tests.system.web.conftest import LogIn
from tests.system.web.test_overview_page import asked
from tests.unit.apps.server.asks import submit
from tests.unit.apps.server.running import until
from tests.unit.apps.server.scripted_pilot import ScriptedPilot

pytestmark = pytest.mark.pages

HELLO = {
    "agent": "a1", "host": "head", "batch": "slurm", "every": 600, "min_pilots": 0, "max_pilots": 40, "min_idle": 2,
    "sizes": [],
}  # fmt: skip
TRICK = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
async def crew(site: RunSite) -> list[ScriptedPilot]:
    """Pilots of two sites; they take no jobs."""
    agent = site.server.person("site", tenant=TENANT, subject="agent")
    assert (await agent.put("/v1/sites/hall", json=HELLO)).status_code == 200
    assert (await agent.put("/v1/sites/annex", json=HELLO | {"trouble": "sbatch does not answer"})).status_code == 200
    made = []
    for name, place in (("n1", "hall"), ("n2", "hall"), ("n3", "annex")):
        made.append(await ScriptedPilot.register(site.server, TENANT, host=name, site=place, slots=8))
    return made


async def test_a_first_visit_to_the_fleet_teaches_how_pilots_come(log_in: LogIn) -> None:
    ann = await log_in("ann", "operator", tenant="newcomers")
    await ann.page.get_by_role("link", name="Sites and pilots").click()
    await expect(ann.page.get_by_role("heading", name="No pilot has registered yet")).to_be_visible()
    await expect(ann.page.get_by_text("forestay pilots enrol --site cluster")).to_be_visible()
    for tab in ("Pilots", "Hosts", "Caches", "Peers"):
        await ann.page.get_by_role("tab", name=tab).click()
        await expect(ann.page.get_by_role("tabpanel", name=tab)).not_to_be_empty()
    await ann.check()
    await ann.picture("fleet-first-visit")


@pytest.mark.acts("drain a pilot")
async def test_sites_are_seen_and_a_pilot_is_drained(log_in: LogIn, crew: list[ScriptedPilot], site: RunSite) -> None:
    ann = await log_in("ann", "operator")
    await ann.leave()
    await ann.open("/fleet?span=hour")
    page = ann.page
    row = page.get_by_role("row").filter(has_text="annex")
    await expect(row.get_by_text("sbatch does not answer")).to_be_visible()
    await expect(page.get_by_role("figure", name="Pilots over time").locator("canvas")).to_be_visible()
    await expect(page.get_by_role("region", name="In words").get_by_text("pilots are alive")).to_be_visible()
    await ann.check()
    await ann.picture("fleet")
    assert asked(ann) == ["/v1/fleet", "/v1/fleet/changes", "/v1/inbox/changes", "/v1/session"]

    await page.get_by_role("tab", name="Pilots").click()
    await page.get_by_role("button", name=f"Drain {crew[1].name}").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("button", name="Drain")).to_be_disabled()
    await dialog.get_by_label("Reason").fill(TRICK)
    await ann.check()
    await page.keyboard.press("Tab")
    await dialog.get_by_role("button", name="Drain").click()
    mine = page.get_by_role("row").filter(has_text=crew[1].name[:13])
    await expect(mine.get_by_text("draining")).to_be_visible()
    await expect(mine.get_by_text(TRICK)).to_be_visible()
    assert await page.locator("img[src=x]").count() == 0
    known = await site.server.services.components.pilots.get_pilot(crew[1].name)
    assert known is not None
    assert known.pilot.drain == f"ann: {TRICK}"

    # Heard from the server, not asked for.
    later = await ScriptedPilot.register(site.server, TENANT, host="n4", site="hall", slots=2)
    await expect(page.get_by_role("row").filter(has_text=later.name[:13])).to_be_visible()
    await ann.check()
    assert ann.refused == []


@pytest.mark.acts("close a host", "close a host for a time", "open a host")
async def test_a_host_is_closed_and_opened_with_why(log_in: LogIn, crew: list[ScriptedPilot], site: RunSite) -> None:
    ann = await log_in("ann", "operator", dark=True)
    await ann.open("/fleet?tab=hosts")
    page = ann.page
    await page.get_by_role("button", name="Close n3").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Reason").fill("its disk is replaced")
    await dialog.get_by_role("button", name="Close", exact=True).last.click()
    row = page.get_by_role("row").filter(has_text="n3")
    await expect(row.get_by_text("Closed by ann: its disk is replaced")).to_be_visible()
    await expect(
        page.get_by_text("gets no jobs: see Hosts").or_(page.get_by_text("get no jobs: see Hosts"))
    ).to_be_visible()
    await expect(page.get_by_role("tabpanel").locator("tbody tr").first).to_contain_text("n3")
    await ann.check()
    await ann.picture("fleet-hosts")
    await page.get_by_role("button", name="Open n3").click()
    await dialog.get_by_label("Reason").fill("it has a new one")
    await dialog.get_by_role("button", name="Open", exact=True).click()
    await expect(row.get_by_text("open", exact=True)).to_be_visible()
    log = (await site.server.person("operator", tenant=TENANT).get("/v1/audit")).json()["entries"]
    results = [(entry["what"], entry["why"]) for entry in log if entry["on"] == "n3" and entry["by"] == "ann"]
    assert results == [("close host", "its disk is replaced"), ("open host", "it has a new one")]
    await page.get_by_role("button", name="Close n3").click()
    await dialog.get_by_role("textbox", name="Duration").click()
    await page.get_by_role("option", name="an hour").click()
    await dialog.get_by_label("Reason").fill("it is cleaned")
    await dialog.get_by_role("button", name="Close", exact=True).last.click()
    await expect(row.get_by_text("Closed by ann: it is cleaned")).to_be_visible()
    opened = await site.server.person("operator", tenant=TENANT).post("/v1/hosts/n3/open", json={"reason": "clean"})
    assert opened.status_code == 200, "the site is others' too"


@pytest.mark.acts("drain a site")
async def test_a_whole_site_is_drained(log_in: LogIn, crew: list[ScriptedPilot], site: RunSite) -> None:
    ann = await log_in("ann", "operator")
    await ann.open("/fleet")
    await ann.page.get_by_role("button", name="Drain annex").click()
    dialog = ann.page.get_by_role("dialog")
    await dialog.get_by_label("Reason").fill("the hall is painted")
    await dialog.get_by_role("button", name="Drain").click()
    await ann.page.get_by_role("tab", name="Pilots").click()
    row = ann.page.get_by_role("row").filter(has_text=crew[2].name[:13])
    await expect(row.get_by_text("the hall is painted")).to_be_visible()
    first = await site.server.services.components.pilots.get_pilot(crew[0].name)
    assert first is not None
    assert first.pilot.drain == "", "another site's"


async def test_how_inputs_came_is_drawn(log_in: LogIn, site: RunSite) -> None:
    staging = [{"name": f"f{place}", "from": way} for place, way in enumerate(("cache", "cache", "peer", "element"))]
    site.fate = lambda claim: {"staging": staging} if claim["name"] == "reads" else {}
    person = site.server.person("submitter", tenant=TENANT)
    (job,) = await submit(person, name="reads")

    async def over() -> bool:
        return bool((await person.get(f"/v1/jobs/{job}")).json()["state"] == "completed")

    await until(over, "the job that reads")
    site.fate = lambda _claim: {}
    ann = await log_in("ann", "viewer")
    await ann.open("/fleet?tab=caches")
    await expect(ann.page.get_by_text("75 % of 4 inputs came from a cache")).to_be_visible()
    await expect(ann.page.get_by_role("figure", name="Caches").locator("canvas")).to_be_visible()
    await ann.check()
    await ann.picture("fleet-caches")


async def test_the_fleet_on_a_phone(log_in: LogIn, crew: list[ScriptedPilot]) -> None:
    ann = await log_in("ann", "operator", phone=True)
    await ann.open("/fleet")
    await expect(ann.page.get_by_role("figure", name="Pilots over time").locator("canvas")).to_be_visible()
    assert await ann.page.evaluate("document.documentElement.scrollWidth") <= 390
    await ann.check()
    await ann.picture("fleet-phone")
    await ann.page.get_by_role("button", name="中文").click()
    await expect(ann.page.get_by_role("heading", name="站点与领航员")).to_be_visible()
    await ann.check()


ACTS = """async (withWord) => {
    const { word } = await (await fetch('/v1/session')).json();
    const headers = {'Content-Type': 'application/json'};
    if (withWord) headers['X-Forestay-Word'] = word;
    const said = [];
    for (const [path, body] of [
        ['/v1/hosts/n9/close', {reason: 'x'}],
        ['/v1/hosts/n9/open', {reason: 'x'}],
        ['/v1/pilots/drain', {host: 'n9', site: '', reason: 'x'}],
    ]) said.push((await fetch(path, {method: 'POST', headers, body: JSON.stringify(body)})).status);
    return said;
}"""


@pytest.mark.parametrize("role", ["viewer", "submitter", "rule-author", "approver", "operator", "administrator"])
async def test_every_act_on_the_fleet_as_each_role(log_in: LogIn, crew: list[ScriptedPilot], role: str) -> None:
    may = role in ("operator", "administrator")
    vic = await log_in("vic", role)
    await vic.open("/fleet?tab=hosts")
    await expect(vic.page.get_by_role("row", name="n1 open")).to_be_visible()
    assert (await vic.page.get_by_role("button", name="Close n1").count() > 0) == may
    assert (await vic.page.get_by_text("Actions need the role operator").count() == 0) == may
    assert await vic.page.evaluate(ACTS, True) == ([200] * 3 if may else [403] * 3)
    assert await vic.page.evaluate(ACTS, False) == [403] * 3
