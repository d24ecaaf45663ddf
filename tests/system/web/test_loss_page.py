"""The page of `forestay try` in a real browser: opened from a file, light, dark and on a phone."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright
from tests.system.web.browser import AXE, PHONE, PICTURES, WIDE, chromium
from tests.unit.formats.accounting.campaign import Truth, lines

from forestay.formats.accounting.lookback import Lookback
from forestay.formats.accounting.loss_page import loss_page
from forestay.formats.accounting.sacct import read_sacct
from forestay.formats.rules.pack_folder import shipped_packs

pytestmark = pytest.mark.pages


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as play:
        opened = await play.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield opened
        await opened.close()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lookback = Lookback(shipped_packs().classifier())
    for _ in lookback.add(read_sacct(lines(4000, 11, Truth()))):
        pass
    report = lookback.report()
    # Long names, as people give them, must not widen the page.
    report["owners"][3]["name"] = "a-service-account-with-a-very-long-name-that-has-no-place-to-break" * 2
    report["causes"][0]["examples"] = [
        {"job": "100200", "lines": ["slurmstepd: error: *** JOB 100200 ON n017 CANCELLED AT 2026-10-12T03:04:05 DUE TO TIME LIMIT ***"]}
    ]  # fmt: skip
    file = tmp_path_factory.mktemp("try") / "forestay-try.html"
    made = f"Made by Forestay 0.1.0 on {datetime.fromisoformat('2026-11-01T10:00'):%Y-%m-%d %H:%M}."
    file.write_text(loss_page(report, made))
    return file


@pytest.mark.parametrize(
    ("size", "scheme", "picture"),
    [(WIDE, "light", "try"), (WIDE, "dark", "try-dark"), (PHONE, "light", "try-phone"), (PHONE, "dark", "")],
)
async def test_it_opens_from_a_file_without_anything_else(
    browser: Browser, page_file: Path, size: dict[str, int], scheme: str, picture: str
) -> None:
    context = await browser.new_context(viewport=size, color_scheme=scheme, offline=True, reduced_motion="reduce")  # type: ignore[arg-type]
    page = await context.new_page()
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    await page.goto(page_file.as_uri())
    assert asked == [page_file.as_uri()]
    widths = await page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert widths[0] <= widths[1], f"the page is wider than the screen: {widths}"
    shown = await page.locator("h2").all_inner_texts()
    assert shown == [
        "Core-hours lost by day", "By cause", "What the starter rules would have done", "By owner", "By host", "How to read this",
    ]  # fmt: skip
    await page.evaluate(AXE.read_text(encoding="utf-8"))
    audit = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    bad = [fault["id"] for fault in audit["violations"] if fault["impact"] in ("serious", "critical")]
    assert bad == []
    assert complaints == []
    if picture and os.environ.get("FORESTAY_PICTURES"):
        await page.screenshot(path=PICTURES / f"{picture}.png")
    await context.close()
