"""The inbox in a real browser: what waits, in groups; and acts on one, on ten, on all, each after the last went well."""

from __future__ import annotations

import gzip
import re
from collections.abc import Awaitable, Callable

import pytest
from playwright.async_api import expect
from tests.live.run_site import TENANT, RunSite
from tests.system.web.browser import ROOT
from tests.system.web.conftest import LogIn

pytestmark = pytest.mark.pages

Broken = Callable[..., Awaitable[list[str]]]
PAGES = ROOT / "src/forestay/apps/server/pages/static"


async def test_a_first_visit_teaches_what_to_do(log_in: LogIn) -> None:
    ann = await log_in("ann", "operator", tenant="newcomers")
    await expect(ann.page.get_by_role("heading", name="No job has run yet")).to_be_visible()
    await expect(ann.page.get_by_text("forestay submit --name hello")).to_be_visible()
    await ann.check()
    await ann.picture("first-visit")


@pytest.mark.acts("try a group again: one", "try a group again: ten", "try a group again: all")
async def test_a_group_is_recovered_step_by_step(log_in: LogIn, broken: Broken, site: RunSite) -> None:
    await broken(14, "align", owner="abe", log_tail="something odd\n")
    await broken(2, "fetch", owner="bob", exit_code=137, oom_kills=1, peak_memory=1 << 30, log_tail="Killed\n")
    ann = await log_in("ann", "operator")
    page = ann.page
    await expect(page.get_by_text(re.compile(r"\d+ failures need attention, in \d+ groups"))).to_be_visible()
    row = page.get_by_role("row").filter(has_text="abe")
    await expect(row.get_by_role("cell", name="14", exact=True)).to_be_visible()
    await ann.check()
    await ann.picture("inbox")
    await page.get_by_role("link", name="Open: Unknown, abe").click()
    panel = page.get_by_role("main")
    await expect(panel.get_by_role("heading", name="Actions")).to_be_visible()
    locator = panel.get_by_role("button", name="Apply to one")
    await expect(locator).to_be_disabled()
    await panel.get_by_label("Reason").fill("the licence server is back")
    await ann.check()
    await locator.click()
    await expect(panel.get_by_text("1 succeeded")).to_be_visible()
    await panel.get_by_role("button", name="Then to ten").click()
    await expect(panel.get_by_text("10 succeeded")).to_be_visible()
    await ann.picture("inbox-step-by-step")
    await panel.get_by_role("button", name="Then to the rest").click()
    await expect(panel.get_by_text("All jobs of this group are done.")).to_be_visible()
    await page.get_by_role("link", name="← Inbox").click()
    # Heard from the server, not asked for.
    await expect(row).to_have_count(0)
    person = site.server.person("operator", tenant=TENANT)
    log = (await person.get("/v1/audit")).json()["entries"]
    assert [entry["detail"]["many"] for entry in log if entry["what"] == "inbox.retry" and "abe" in entry["on"]] == [
        1,
        10,
        3,
    ]


@pytest.mark.acts("continue despite failures")
async def test_what_fails_again_stops_the_next_step(log_in: LogIn, broken: Broken, site: RunSite) -> None:
    await broken(3, "crash", owner="eve")
    site.fate = lambda claim: {"outcome": "failure", "exit_code": 1} if claim["name"] == "crash" else {}
    ann = await log_in("ann", "operator")
    await ann.page.get_by_role("link", name="Open: Unknown, eve").click()
    panel = ann.page.get_by_role("main")
    await panel.get_by_label("Reason").fill("perhaps")
    # By keyboard alone.
    await panel.get_by_role("button", name="Apply to one").focus()
    await ann.page.keyboard.press("Enter")
    await expect(panel.get_by_text("1 failed")).to_be_visible()
    await expect(panel.get_by_role("button", name="Then to ten")).to_be_disabled()
    await expect(panel.get_by_text("it did not help 1 of 1")).to_be_visible()
    await panel.get_by_label("Continue despite failures").check()
    site.fate = lambda _claim: {}
    await panel.get_by_role("button", name="Then to ten").click()
    await expect(panel.locator("[data-act=ten]").get_by_text("succeeded")).to_be_visible()


async def test_jobs_that_still_run_are_not_said_to_be_done(log_in: LogIn, broken: Broken, site: RunSite) -> None:
    await broken(1, "slow", owner="sue")
    site.hold_back = lambda claim: bool(claim["name"] == "slow")
    ann = await log_in("ann", "operator")
    await ann.page.get_by_role("link", name="Open: Unknown, sue").click()
    panel = ann.page.get_by_role("main")
    await panel.get_by_label("Reason").fill("the node is back")
    await panel.get_by_role("button", name="Apply to one").click()
    await site.kept_some()
    await expect(panel.get_by_text("Applied to all; 1 is still running.")).to_be_visible()
    assert await panel.get_by_text("All jobs of this group are done.").count() == 0
    site.hold_back = lambda _claim: False
    await site.let_go()
    await expect(panel.get_by_text("All jobs of this group are done.")).to_be_visible()


@pytest.mark.acts("give a group up")
async def test_a_group_is_given_up(log_in: LogIn, broken: Broken, site: RunSite) -> None:
    incidents = await broken(3, "hopeless", owner="gil")
    ann = await log_in("ann", "operator")
    await ann.page.get_by_role("link", name="Open: Unknown, gil").click()
    panel = ann.page.get_by_role("main")
    await panel.get_by_role("radio", name="Cancel jobs").check()
    await panel.get_by_label("Reason").fill("its input is wrong")
    assert await panel.get_by_text("canary").count() == 0
    person = site.server.person("viewer", tenant=TENANT)

    async def states() -> set[str]:
        shown = [(await person.get(f"/v1/incidents/{incident}")).json() for incident in incidents]
        return {(await person.get(f"/v1/jobs/{one['job']}")).json()["state"] for one in shown}

    cancel = panel.get_by_role("button", name="Cancel all 3 jobs")
    await cancel.click()
    dialog = ann.page.get_by_role("dialog", name="Cancel all 3 jobs")
    await expect(dialog.get_by_text("This cannot be undone.")).to_be_visible()
    await ann.check()
    await dialog.get_by_role("button", name="Keep them").click()
    await expect(dialog).to_have_count(0)
    assert await states() == {"faulted"}
    await cancel.click()
    await dialog.get_by_role("button", name="Cancel all 3 jobs").click()
    await expect(panel.get_by_text("All jobs of this group are done.")).to_be_visible()
    assert await states() <= {"cancelled", "failed"}


async def test_the_inbox_on_a_phone_in_the_dark_and_in_chinese(log_in: LogIn, broken: Broken) -> None:
    await broken(2, "phone", owner="kim")
    ann = await log_in("ann", "operator", phone=True, dark=True)
    await expect(ann.page.get_by_role("link", name="Open: Unknown").first).to_be_visible()
    await ann.check()
    await ann.picture("inbox-phone")
    wide = await ann.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390
    await ann.page.get_by_role("button", name="中文").click()
    await expect(ann.page.get_by_role("heading", name="收件箱")).to_be_visible()
    await ann.check()


@pytest.mark.acts("acknowledge an error", "assign an error", "snooze an error", "resolve an error", "reopen an error")
async def test_an_error_has_an_address_a_state_and_somebody_who_has_it(log_in: LogIn, broken: Broken) -> None:
    log = "reading\nZeroDivisionError: division by zero\n"
    await broken(3, "divide", owner="ned", log_tail=log)
    ann = await log_in("ann", "operator")
    page = ann.page
    await page.get_by_role("link", name="Open: Code, ned").click()
    await page.wait_for_url("**/errors/1-*")
    main = page.get_by_role("main")
    await expect(main.get_by_role("heading", name="ZeroDivisionError: division by zero")).to_be_visible()
    await expect(main.get_by_text("Failures: 3. Waiting or under way: 3.")).to_be_visible()
    await expect(main.locator("mark").first).to_have_text("ZeroDivisionError: division by zero")
    await expect(main.get_by_text("Assigned to nobody.")).to_be_visible()
    await ann.check()
    await ann.picture("error")
    await main.get_by_role("button", name="Acknowledge").click()
    await expect(main.get_by_text("acknowledged", exact=True)).to_be_visible()
    await main.get_by_role("button", name="Assign to me").click()
    await expect(main.get_by_text("Assigned to ann.")).to_be_visible()
    await main.get_by_label("Note").fill("fixed in 4.2")
    await main.get_by_role("button", name="Resolve").click()
    await expect(main.get_by_text("resolved", exact=True)).to_be_visible()
    await expect(main.get_by_text("ann: fixed in 4.2")).to_be_visible()
    await broken(1, "divide", owner="ned", log_tail=log)
    # Heard from the server, not asked for.
    await expect(main.get_by_text("regressed", exact=True)).to_be_visible()
    await main.get_by_role("button", name="Snooze").click()
    await page.get_by_role("menuitem", name="for a day").click()
    await expect(main.get_by_text("snoozed", exact=True)).to_be_visible()
    await page.get_by_role("link", name="← Inbox").click()
    row = page.get_by_role("row").filter(has_text="ZeroDivisionError")
    await page.get_by_role("button", name="Show 1 snoozed error").click()
    await expect(row.get_by_text("taken by ann")).to_be_visible()
    await row.get_by_role("cell", name="4", exact=True).click()
    await page.wait_for_url("**/errors/1-*")
    await main.get_by_role("button", name="Reopen").click()
    await expect(main.get_by_text("new", exact=True)).to_be_visible()


async def test_an_address_that_no_error_can_have_leads_to_no_page(log_in: LogIn) -> None:
    ann = await log_in("ann", "viewer")
    await ann.page.goto(f"{ann.server.url}/errors/nonexist")
    await expect(ann.page.get_by_text("There is no such page.")).to_be_visible()
    assert await ann.page.get_by_role("alert").count() == 0


async def test_the_list_is_walked_by_keys_and_its_filters_stand_in_the_address(log_in: LogIn, broken: Broken) -> None:
    await broken(1, "first", owner="joy", log_tail="KeyError: 'first'\n")
    await broken(1, "second", owner="joy", log_tail="IndexError: list index out of range\n")
    await broken(1, "third", owner="kit", log_tail="IndexError: list index out of range\n")
    ann = await log_in("ann", "operator")
    page = ann.page
    await ann.open("/inbox?owner=joy")
    links = page.get_by_role("link", name=re.compile("^Open: "))
    await expect(links).to_have_count(2)
    for key, place in (("j", 0), ("j", 1), ("j", 1), ("k", 0)):
        await page.keyboard.press(key)
        await expect(links.nth(place)).to_be_focused()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog", name="Keys")).to_have_count(0)
    await links.nth(1).focus()
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/errors/1-*")
    await page.go_back()
    await expect(links).to_have_count(2)
    assert page.url.endswith("/inbox?owner=joy")
    await page.keyboard.press("/")
    await page.keyboard.type("j")
    await expect(page.get_by_role("textbox", name="Cause")).to_be_focused()
    await page.keyboard.press("Escape")
    await page.get_by_role("tab", name="Recovered today").click()
    await page.wait_for_url("**/inbox?owner=joy&view=recovered")
    await ann.check()


async def test_nothing_is_wider_than_the_window(log_in: LogIn, broken: Broken) -> None:
    """Pages of one error and the list, also with a title without a space."""
    (incident,) = await broken(1, "wide", owner="ada", log_tail=f"Error: {'/data/x' * 60}\n{'word ' * 200}\n")
    for phone in (True, False):
        ann = await log_in("ann", "operator", phone=phone)
        fingerprint = await ann.page.evaluate(
            "async (name) => (await (await fetch('/v1/incidents/' + name)).json()).fingerprint", incident
        )
        for place in ("/inbox", f"/errors/{fingerprint}", f"/incidents/{incident}"):
            await ann.open(place)
            await expect(ann.page.get_by_role("heading", level=1)).to_be_visible()
            size = await ann.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert size[0] <= size[1], place


async def test_who_may_only_look_sees_no_act_and_could_not_do_it(log_in: LogIn, broken: Broken) -> None:
    await broken(1, "look", owner="lee")
    for role in ("viewer", "submitter", "rule-author", "approver"):
        vic = await log_in("vic", role)
        await vic.page.get_by_role("link", name="Open: Unknown, lee").click()
        panel = vic.page.get_by_role("main")
        await expect(panel.get_by_text("Actions need the role operator").first).to_be_visible()
        assert await panel.get_by_role("button", name="Apply to one").count() == 0
        value = await vic.page.evaluate(
            """async () => {
                const { word } = await (await fetch('/v1/session')).json();
                const body = JSON.stringify({cause: 'unknown', owner: 'lee', do: 'retry', reach: 'one', reason: 'x'});
                const headers = {'Content-Type': 'application/json', 'X-Forestay-Word': word};
                const act = await fetch('/v1/inbox/acts', {method: 'POST', headers, body});
                delete headers['X-Forestay-Word'];
                const forged = await fetch('/v1/inbox/acts', {method: 'POST', headers, body});
                return [act.status, forged.status];
            }"""
        )
        assert value == [403, 403]


async def test_names_and_notes_from_outside_are_only_text(log_in: LogIn, broken: Broken) -> None:
    evil = "<img src=x onerror=alert(1)><b>bold</b>\x1b[31mred"
    await broken(1, "evil", owner="mallory", log_tail=evil)
    ann = await log_in("ann", "operator")
    ann.page.on("dialog", lambda _dialog: ann.refused.append("a script ran"))
    await ann.page.get_by_role("link", name="Open: Unknown, mallory").click()
    await ann.page.get_by_role("region", name="Newest failures").get_by_role("link").first.click()
    await ann.page.wait_for_url("**/incidents/*")
    await expect(ann.page.get_by_text("<b>bold</b>").first).to_be_visible()
    assert await ann.page.locator("img[src=x]").count() == 0
    assert ann.refused == []


@pytest.mark.acts("log out")
async def test_the_pages_are_behind_the_door(log_in: LogIn, site: RunSite) -> None:
    ann = await log_in("ann", "operator")
    await ann.page.get_by_role("button", name="ann").click()
    async with ann.page.expect_navigation():
        await ann.page.get_by_role("button", name="Log out").click()
    answer = await ann.page.goto(f"{site.server.url}/inbox")
    assert answer is not None
    assert answer.status == 401
    await expect(ann.page.get_by_text("forestay link").first).to_be_visible()


async def test_the_policy_lets_nothing_in_that_is_written_into_the_page(log_in: LogIn, site: RunSite) -> None:
    ann = await log_in("ann", "operator")
    answer = await ann.page.goto(f"{site.server.url}/inbox")
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    with pytest.raises(Exception, match=r"(?i)content security policy"):
        await ann.page.add_script_tag(content="window.ran = 1")
    assert await ann.page.evaluate("window.ran") is None


def test_the_first_page_is_small() -> None:
    """What a first visit to the inbox loads, as it goes over the wire."""
    index = (PAGES / "index.html").read_text(encoding="utf-8")
    wanted, seen, size = re.findall(r"/assets/([\w.-]+)", index), set[str](), len(gzip.compress(index.encode()))
    wanted += [path.name for path in (PAGES / "assets").glob("inbox-*")]
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        content = (PAGES / "assets" / name).read_bytes()
        size += len(gzip.compress(content, 9))
        # What it imports outright; what it imports when it is needed is another page's.
        wanted += re.findall(r'(?:from|import)"\./([\w.-]+\.js)"', content.decode(errors="replace"))
    assert 50_000 < size < 600_000, f"{size:,} bytes in {sorted(seen)}"


@pytest.mark.acts("teach an error")
async def test_an_unknown_error_is_taught_in_three_clicks(log_in: LogIn, broken: Broken, site: RunSite) -> None:
    log = "slot 7: the frobnicator failed to answer on bay {}\n"
    incidents = await broken(3, "frobnicate", owner="zoe", log_tail=log.format(4))
    ann = await log_in("ann", "operator")
    page = ann.page
    await expect(page.get_by_role("link", name="Open: Unknown, zoe")).to_be_visible()
    await page.evaluate(
        "() => { window.presses = 0; addEventListener('pointerdown', () => { window.presses += 1 }, true) }"
    )
    await page.get_by_role("link", name="Open: Unknown, zoe").click()
    teach = page.get_by_role("region", name="Teach this site")
    await teach.get_by_text("Code", exact=True).click()
    await expect(teach.get_by_text("It matches all 3 failures of this error that were tried.")).to_be_visible()
    await expect(teach.locator("code")).to_have_text(r"(?i)slot \S+: the frobnicator failed to answer on bay")
    await ann.check()
    await ann.picture("error-teach")
    await teach.get_by_role("button", name="Teach: Code").click()
    await expect(teach.get_by_text("Taught. 3 waiting failures were judged again.")).to_be_visible()
    assert await page.evaluate("window.presses") == 3
    await teach.get_by_role("link", name="Show this error with its new cause").click()
    main = page.get_by_role("main")
    await expect(main.get_by_text("Failures: 3. Waiting or under way: 3.")).to_be_visible()
    await expect(main.get_by_role("button", name="The cause is wrong")).to_be_visible()
    viewer = site.server.person("viewer", tenant=TENANT)
    assert {(await viewer.get(f"/v1/incidents/{name}")).json()["cause"] for name in incidents} == {"code"}
