"""The main tasks of an operator on a filled site, by mouse and by keyboard, with the clicks that each takes.

A count is of what the page got as events (`hands.py`), from the inbox as it stands after the log-in, or from the incident where it says so.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.async_api import Page, expect
from tests.speed import cpu_limit
from tests.system.web.conftest import LogIn
from tests.system.web.filled_site import (
    APPROVED,
    JOBS,
    KINDS,
    LARGEST,
    OWNERS,
    REGRESSED,
    STORM,
    STORMY,
    FilledSite,
    Kind,
)
from tests.system.web.hands import By, Hands
from tests.unit.apps.server.running import until

pytestmark = pytest.mark.pages
by_hand = pytest.mark.parametrize("by", ["mouse", "keyboard"])
MOST = {"understand": 2, "recover": 4, "rule": 6, "ask": 3, "approve": 2}
"""Clicks that a task may take."""
EVERYTHING = ("operator", "rule-author", "approver")
Start = Callable[..., Awaitable[tuple[Page, Hands]]]


@pytest.fixture
def start(filled: FilledSite, log_in_filled: LogIn) -> Start:
    """Somebody at the inbox, whose clicks are counted from now on."""

    async def begin(by: By, path: str = "/inbox", name: str = "zoe") -> tuple[Page, Hands]:
        person = await log_in_filled(name, *EVERYTHING, width=1280)
        hands = await Hands.at(person.page, by)
        await hands.begin(f"{filled.server.url}{path}")
        return person.page, hands

    return begin


async def incident_of(filled: FilledSite, kind: Kind) -> dict[str, Any]:
    (fingerprint, *_) = await filled.fingerprints(kind)
    asked = {"fingerprint": fingerprint, "state": "held", "limit": 1}
    (incident,) = (await filled.login().get("/v1/incidents", params=asked)).json()["incidents"]
    return dict(incident)


async def test_the_filled_site_holds_what_it_promises(filled: FilledSite) -> None:
    ann = filled.login()
    jobs = (await ann.get("/v1/jobs/counts", params={"by": "owner"})).json()["counts"]
    assert (sum(jobs.values()), sorted(jobs)) == (JOBS, sorted(OWNERS))
    inbox = (await ann.get("/v1/inbox", params={"snoozed": "show"})).json()
    known = (await ann.get("/v1/incidents/counts", params={"by": "fingerprint"})).json()["counts"]
    assert len(known) >= len(KINDS) == 19
    (storm,) = [group for group in inbox["groups"] if group["group"]]
    assert (storm["fingerprint"], storm["count"]) == (*await filled.fingerprints(STORMY), STORM)
    # Failures of one kind are one error, and those of different kinds are not.
    for kind in KINDS:
        assert len(await filled.fingerprints(kind)) == (0 if kind.helps else 1), kind.task
    regressed = {group["fingerprint"] for group in inbox["groups"] if group["state"] == "regressed"}
    assert regressed == set().union(*[await filled.fingerprints(kind) for kind in REGRESSED])
    approvals = (await ann.get("/v1/approvals", params={"state": "waiting"})).json()["approvals"]
    assert len(approvals) == APPROVED.many
    assert filled.cpu_seconds < cpu_limit(60), "it is made for every run of the tests of the pages"


async def test_a_lost_connection_is_told_and_everything_is_read_again(start: Start) -> None:
    page, _ = await start("mouse")
    row = page.get_by_role("row").filter(has_text="run_ilastik.sh")
    await expect(row.get_by_role("img", name=re.compile(r"^\d+ failures in the last 24 hours$"))).to_be_visible()
    await page.route("**/v1/inbox/changes", lambda route: route.abort())
    await page.reload()
    banner = page.get_by_role("alert").filter(has_text=re.compile(r"No connection since \d\d:\d\d\."))
    await expect(banner).to_be_visible()
    async with page.expect_request("**/v1/inbox?*"), page.expect_request("**/v1/errors/hours?*"):
        await page.unroute("**/v1/inbox/changes")
        await expect(banner).to_have_count(0)


async def test_the_notice_of_the_site_stands_on_top(start: Start) -> None:
    page, _ = await start("mouse")
    change = 'event: inbox\ndata: {"waiting": 1, "notice": "Maintenance on Friday"}\n\n'
    await page.route("**/v1/inbox/changes", lambda route: route.fulfill(body=change, content_type="text/event-stream"))
    await page.reload()
    await expect(page.get_by_role("status", name="Notice")).to_have_text("Maintenance on Friday")


@by_hand
async def test_the_largest_group_is_understood(start: Start, by: By) -> None:
    page, hands = await start(by)
    await hands.press(page.get_by_role("link", name=re.compile("^Open: ")).first)
    main = page.get_by_role("main")
    await expect(main.get_by_role("heading", level=1)).to_contain_text("run_ilastik.sh")
    await expect(main.get_by_text(f"Failures: {LARGEST.many}.")).to_be_visible()
    await expect(main.get_by_role("heading", name="What to do")).to_be_visible()
    await expect(main.locator("mark").first).to_contain_text("Killed")
    hosts = main.get_by_role("row").filter(has_text="node0")
    assert await hosts.count() >= 5
    assert await hands.clicks() <= MOST["understand"]


CHIPS = 10


@by_hand
async def test_failures_are_counted_by_cause_owner_time_and_host(start: Start, filled: FilledSite, by: By) -> None:
    page, hands = await start(by)
    for facet, value in (("Cause", "memory"), ("Owner", "ada"), ("Since", "yesterday")):
        group = page.get_by_role("group", name=facet, exact=True)
        await hands.press(group.locator(f"[data-value={value}]"))
    yesterday = (datetime.now(UTC) - timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    asked = {"cause": "memory", "owner": "ada", "since": yesterday.isoformat(), "view": "attention"}
    inbox = filled.login()
    counts = (await inbox.get("/v1/inbox/counts", params=asked)).json()["host"]
    assert sum(counts.values()) == (await inbox.get("/v1/inbox", params=asked)).json()["count"]
    hosts = page.get_by_role("group", name="Host", exact=True).get_by_role("button")
    assert len(counts) >= 5
    # Which pilots took the jobs depends on how busy the machine is; the page has chips for ten hosts.
    await expect(hosts).to_have_text([f"{host} {many}" for host, many in counts.items()][:CHIPS])
    await expect(page.get_by_role("link", name=re.compile("^Open: "))).to_have_count(2)
    assert "cause=memory&owner=ada&since=yesterday" in page.url
    assert await hands.clicks() <= MOST["ask"]
    await page.reload()
    await expect(page.get_by_role("link", name=re.compile("^Open: "))).to_have_count(2)


@by_hand
async def test_a_request_is_approved_knowing_what_it_does(start: Start, filled: FilledSite, by: By) -> None:
    page, hands = await start(by)
    await hands.choose_tab("Awaiting approval")
    cards = page.get_by_role("article")
    card = cards.first
    await expect(card).to_contain_text("force-complete job")
    await expect(card).to_contain_text("FastQC writes no report for empty lanes")
    await expect(card).to_contain_text(re.compile("Owner (cleo|dan)"))
    await expect(card).to_contain_text("Job trim")
    await expect(card).to_contain_text("Missing output file(s)")
    await expect(card).to_contain_text("counts as completed without its outputs")
    before = await cards.count()
    on = str((await filled.login().get("/v1/approvals", params={"state": "waiting"})).json()["approvals"][0]["on"])
    reason = card.get_by_label("Reason")
    await expect(reason).to_be_focused()
    await expect(card.get_by_role("button", name="Approve")).to_be_disabled()
    await hands.write(reason, "the lane is empty")
    await hands.press(card.get_by_role("button", name="Approve"))
    await expect(cards).to_have_count(before - 1)
    assert await hands.clicks() <= MOST["approve"]
    assert (await filled.login().get(f"/v1/jobs/{on}")).json()["state"] == "forced_complete"


@by_hand
async def test_a_rule_is_written_from_an_incident_and_acts(start: Start, filled: FilledSite, by: By) -> None:
    kind = next(kind for kind in KINDS if kind.task == ("solve" if by == "mouse" else "simulate"))
    incident = await incident_of(filled, kind)
    page, hands = await start(by, f"/incidents/{incident['id']}")
    await hands.press(page.get_by_role("link", name="Write a rule from this incident"))
    await hands.press(page.get_by_role("button", name="Run again", exact=True))
    await hands.press(page.get_by_role("button", name="Check against all reference incidents, and replay"))
    await expect(page.get_by_text(re.compile("were replayed"))).to_be_visible()
    await hands.press(page.get_by_role("button", name="Add in shadow mode"))
    await hands.press(page.get_by_role("button", name="Promote"))
    await expect(page.get_by_role("button", name="Back to shadow")).to_be_visible()
    assert await hands.clicks() <= MOST["rule"]
    ruling = (await filled.login().post("/v1/rules/test", json={"incident": incident["id"]})).json()
    assert ruling["active"]["conclusion"] == {"steps": [{"action": "resubmit", "how": "same"}]}


@by_hand
async def test_the_largest_group_is_recovered_by_a_canary(start: Start, filled: FilledSite, by: By) -> None:
    """By mouse the largest, by keyboard the next one: what is recovered is gone."""
    kind = LARGEST if by == "mouse" else next(kind for kind in KINDS if kind.task == "couple")
    ((fingerprint, many),) = (await filled.fingerprints(kind)).items()
    page, hands = await start(by)
    link = page.locator(f'a[href="/errors/{fingerprint}"]')
    await hands.press(link)
    main = page.get_by_role("main")
    await hands.write(main.get_by_role("textbox", name="Reason"), "the nodes have more memory now")
    await hands.press(main.get_by_role("button", name=f"Apply to all {many} by canary"))
    await expect(main.get_by_text("All jobs of this group are done.")).to_be_visible()
    assert await hands.clicks() <= MOST["recover"]
    ann = filled.login()
    log = (await ann.get("/v1/audit")).json()["entries"]
    acts = [
        entry["detail"]
        for entry in log
        if entry["detail"].get("fingerprint") == fingerprint and "many" in entry["detail"]
    ]
    assert [act["many"] for act in acts] == [1, 10, many - 11]
    # What was tried first, and then, is of this error alone.
    tried = {name for act in acts for name in act["incidents"]}
    asked = {"fingerprint": fingerprint, "limit": 1000}
    of_it = {incident["id"] for incident in (await ann.get("/v1/incidents", params=asked)).json()["incidents"]}
    assert tried <= of_it

    async def recovered() -> bool:
        return not await filled.fingerprints(kind)

    await until(recovered, "the group to be recovered")
    await page.get_by_role("link", name="← Inbox").click()
    await expect(link).to_have_count(0)


async def test_a_failure_is_read_on_one_page(start: Start, filled: FilledSite) -> None:
    incident = await incident_of(filled, next(kind for kind in KINDS if kind.task == "predict"))
    page, _ = await start("mouse", f"/incidents/{incident['id']}")
    await expect(page.locator("[data-status]")).to_have_text("waiting for a person")
    await expect(page.get_by_role("region", name="Log", exact=True)).to_contain_text("predict: sample")
    await expect(page.get_by_role("link", name="All failures of this error")).to_have_attribute(
        "href", f"/errors/{incident['fingerprint']}"
    )
    await page.get_by_role("link", name="Attempt 1").click()
    await expect(page.get_by_role("heading", name="Log of attempt 1")).to_be_visible()
    assert page.url.endswith("?attempt=1")


async def test_a_failure_can_be_read_on_a_phone_in_the_dark(log_in_filled: LogIn, filled: FilledSite) -> None:
    incident = await incident_of(filled, next(kind for kind in KINDS if kind.task == "assemble"))
    ann = await log_in_filled("ann", *EVERYTHING, phone=True, dark=True)
    await ann.open(f"/incidents/{incident['id']}")
    words = ann.page.locator(".story li").first.locator("> :last-child")
    await expect(words).to_contain_text("submitted the job")
    box = await words.bounding_box()
    assert box is not None
    assert box["width"] > 250, "the story has the width of the page"
    size = await ann.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert size[0] <= size[1]
    await ann.check()
