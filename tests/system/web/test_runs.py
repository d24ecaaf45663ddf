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


@pytest.mark.acts("run a task again", "skip a task", "suspend a task", "continue a task", "cancel a run")
@pytest.mark.finding("F-D2")
async def test_tasks_are_steered_from_their_boxes_and_a_run_is_cancelled(log_in: LogIn, site: RunSite) -> None:
    fates = [BAD, GOOD]
    site.fate = lambda claim: fates.pop(0) if claim["name"] == "book" and fates else GOOD
    site.hold_back = lambda claim: claim["name"] in ("sell", "show")
    run = await site.start(FLOW.replace("{command: [book]}", "{command: [book], when_failed: hold}"))
    await site.task_is(run, "book", "faulted")
    ada = await log_in("ada", "submitter")
    page = ada.page
    await ada.open("/")
    await page.get_by_role("link", name="run is held").or_(page.get_by_role("link", name="runs are held")).click()
    await page.get_by_role("link", name=f"concert {run[:8]}").click()
    state = page.locator("[data-status]")
    await expect(state).to_have_attribute("data-status", "held")
    held = page.get_by_role("region", name="What is held")
    await expect(held).to_contain_text("book: failed: ")
    await expect(held).to_contain_text(f"ada or an operator can release it. forestay runs retry {run[:8]} book")
    await ada.check()
    await ada.picture("run-held")
    graph, dialog = page.get_by_role("group", name="The flow"), page.get_by_role("dialog")
    await graph.get_by_role("button", name="book").click()
    await expect(dialog).to_contain_text("Run again, no other task runs again.")
    await dialog.get_by_role("button", name="Run it again").click()
    await site.task_is(run, "sell", "running")
    await expect(held).to_be_hidden()
    await graph.get_by_role("button", name="show").click()
    await dialog.get_by_role("button", name="Suspend").click()
    await expect(held).to_contain_text("show: suspended by ada")
    await held.get_by_role("button", name="Continue").click()
    await expect(held).to_be_hidden()
    await graph.get_by_role("button", name="book").click()
    await expect(dialog).to_contain_text("these tasks after it run again too: sell, seats")
    await ada.check()
    await page.keyboard.press("Escape")
    await graph.get_by_role("button", name="sell").click()
    await dialog.get_by_role("button", name="Skip it").click()
    await site.task_is(run, "sell", "skipped")
    await site.task_is(run, "show", "running")
    await page.get_by_role("button", name="Cancel", exact=True).click()
    await expect(dialog).to_contain_text("1 task is running, with 1 job that would be stopped.")
    await ada.check()
    await dialog.get_by_role("button", name="Cancel the run").click()
    await expect(state).to_have_attribute("data-status", "removed")
    site.hold_back = lambda _claim: False
    await site.let_go()


@pytest.mark.acts("suspend a run", "continue a run", "cancel a run")
@pytest.mark.finding("F-D2")
async def test_several_runs_are_steered_once_they_were_shown(log_in: LogIn, site: RunSite) -> None:
    site.hold_back = lambda claim: claim["name"] == "book"
    flow = FLOW.replace("name: concert", "name: matinee")
    runs = [await site.start(flow) for _ in range(3)]
    other = await site.start(flow, owner="bob")
    for run in runs:
        await site.task_is(run, "book", "running")
    ada = await log_in("ada", "submitter")
    page = ada.page
    await ada.open("/runs")
    await page.get_by_role("textbox", name="Flow").fill("matinee")
    await expect(page.get_by_role("row")).to_have_count(5)
    assert "flow=matinee" in page.url
    await expect(page.get_by_role("checkbox", name=other[:8])).to_have_count(0)
    dialog = page.get_by_role("dialog")
    for act, button, state in (
        ("Suspend", "Suspend these runs", "suspended"),
        ("Resume", "Resume these runs", "running"),
        ("Cancel", "Cancel these runs", "removed"),
    ):
        for run in runs[:2]:
            await page.get_by_role("checkbox", name=f"Select matinee {run[:8]}").check()
        bar = page.get_by_role("region", name="2 runs selected")
        await bar.get_by_role("button", name=act).click()
        await expect(dialog.get_by_role("listitem")).to_have_count(2)
        await ada.check()
        await dialog.get_by_role("button", name=button).click()
        await expect(dialog.get_by_role("status")).to_have_text("Done for 2 of 2 runs.")
        await dialog.get_by_role("button", name="Close").last.click()
        for run in runs[:2]:
            row = page.get_by_role("row").filter(has_text=run[:8])
            await expect(row).to_contain_text(state, timeout=30_000)
    await expect(page.get_by_role("row").filter(has_text=runs[2][:8])).to_contain_text("running")
    site.hold_back = lambda _claim: False
    await site.let_go()
    for run in (runs[2], other):
        assert (await site.ended(run)).state == "completed"


ASKS = """
forestay: 1
name: calibration
tasks:
  check:
    ask:
      title: Is the calibration good?
      text: The residual is 0.3.
      form:
        properties:
          good: {type: boolean, title: Use it}
          share: {type: number, title: Share, default: 0.5, minimum: 0, maximum: 1}
          method: {type: string, title: Method, enum: [fast, exact], default: fast}
          note: {type: string, title: Note}
        required: [good]
      who: ["user:ben"]
outputs: {good: "${tasks.check.outputs.good}", share: "${tasks.check.outputs.share}", note: "${tasks.check.outputs.note}"}
"""


@pytest.mark.acts("answer a question")
async def test_a_question_of_a_run_is_answered_by_keyboard_in_the_inbox(log_in: LogIn, site: RunSite) -> None:
    run = await site.start(ASKS)
    await site.task_is(run, "check", "asking")
    ann = await log_in("ann", "operator")
    await ann.open(f"/runs/{run}")
    await expect(ann.page.locator("[data-status]")).to_have_attribute("data-status", "asking")
    await expect(ann.page.get_by_text("May answer: user:ben")).to_be_visible()
    ben = await log_in("ben", "viewer")
    page = ben.page
    await ben.open("/inbox?view=questions")
    card = page.get_by_role("article", name="Is the calibration good?")
    await expect(card.get_by_text("The residual is 0.3.")).to_be_visible()
    answer = card.get_by_role("button", name="Answer")
    await expect(answer).to_be_disabled()
    await ben.check()
    await ben.picture("questions")
    # The first field has the focus: nothing but the keyboard is needed.
    await expect(card.get_by_role("radio", name="Yes")).to_be_focused()
    await page.keyboard.press("Space")
    await card.get_by_label("Share").fill("0.7")
    await card.get_by_label("Note").fill("looks right")
    await expect(answer).to_be_enabled()
    await answer.press("Enter")
    await expect(page.get_by_text("No run asks a question.")).to_be_visible()
    result = await site.result(run)
    assert result["outputs"] == {"good": True, "share": 0.7, "note": "looks right"}
    await expect(ann.page.locator("[data-status]")).to_have_attribute("data-status", "completed")


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
