"""`forestay demo` as a visitor plays it: the rule, the event and the refusal by mouse and keyboard in a real Chromium, and the report at the end.

It takes minutes: `just demo-recording` runs it, and takes the pictures of the tutorial.
"""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect
from tests.live.laptop import FORESTAY
from tests.servers import address
from tests.system.web.browser import ROOT, write
from tests.unit.apps.server.running import until

from forestay.apps.demo.act_rules import CONDITION, TRIGGER

pytestmark = [pytest.mark.pages, pytest.mark.slow]

PICTURES = ROOT / "docs" / "tutorials"
BEGIN = "Press Enter to begin."
END = "Press Enter to stop everything."
TURN = re.compile(r"Your turn: (.*)")
PATIENCE = 600.0


@dataclass(eq=False)
class Demo:
    """The command in a terminal, and what it has printed."""

    process: asyncio.subprocess.Process
    terminal: int
    printed: str = ""
    _reader: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.printed += line.decode()

    async def shows(self, words: str, times: int = 1) -> None:
        async def shown() -> bool:
            assert self.process.returncode is None or self.printed.count(words) >= times, self.printed
            return self.printed.count(words) >= times

        await until(shown, f"{words!r} in the terminal", PATIENCE)

    async def turn(self, number: int) -> str:
        """What the visitor is asked to do, the next time."""

        async def asked() -> str | None:
            turns = TURN.findall(self.printed)
            return turns[number] if len(turns) > number else None

        words: str = await until(asked, f"turn {number}", PATIENCE)
        return words

    def enter(self) -> None:
        os.write(self.terminal, b"\n")


@pytest.fixture
async def demo(tmp_path: Path) -> AsyncIterator[Demo]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}
    environment = own | {"FORESTAY_TEMPORAL_PROGRAM": address("FORESTAY_TEST_TEMPORAL_PROGRAM")}
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *FORESTAY, "demo", "--report", str(tmp_path / "report.html"),
        env=environment, cwd=tmp_path, stdin=theirs, stdout=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    played = Demo(process, ours)
    yield played
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    await process.wait()
    os.close(ours)


def _address(turn: str) -> str:
    """The page that the visitor is to open."""
    addresses: list[str] = re.findall(r"http://[^\s,]+", turn)
    (page,) = addresses
    return page


async def picture(page: Page, name: str) -> None:
    if os.environ.get("FORESTAY_PICTURES"):
        await page.screenshot(path=PICTURES / f"demo-{name}.png")


async def test_a_visitor_plays_the_five_acts(demo: Demo, browser: Browser, tmp_path: Path) -> None:
    page = await browser.new_page(viewport={"width": 1280, "height": 800})
    strip = page.get_by_role("status", name="Notice")
    await demo.shows(BEGIN)
    (link,) = re.findall(r"http://\S+", demo.printed)
    await page.goto(link)
    await page.wait_for_url("**/inbox")
    await expect(strip).to_contain_text("P3")
    demo.enter()
    for act, number in (("P4", 2), ("P0", 3), ("P1", 4)):
        await demo.shows(BEGIN, number)
        await expect(strip).to_contain_text(act)
        demo.enter()

    # A rule for eleven jobs that wait.
    turn = await demo.turn(0)
    await expect(strip).to_contain_text("Your turn: open http")
    await page.goto(_address(turn))
    await write(page.get_by_role("textbox", name="Condition"), CONDITION)
    await expect(page.locator("[data-truth]")).to_have_attribute("data-truth", "true")
    await page.get_by_role("group", name="Available steps").get_by_role("button", name="Run again", exact=True).click()
    await page.get_by_role("button", name="Check against all reference incidents, and replay").click()
    await expect(page.get_by_text(re.compile(r"\d+ incidents were replayed"))).to_be_visible()
    await picture(page, "rule")
    await page.get_by_role("button", name="Add in shadow mode").click()
    await page.get_by_role("button", name="Promote").click()

    # An event that suspends three runs.
    await page.goto(_address(await demo.turn(1)))
    await page.get_by_role("button", name=f"Raise {TRIGGER}").click()
    await expect(page.locator("[data-status]")).to_have_attribute("data-status", "completed")
    await picture(page, "event")

    # An approval that is refused.
    await demo.shows(BEGIN, 5)
    demo.enter()
    await page.goto(f"{_address(await demo.turn(2))}?view=questions")
    card = page.get_by_role("article")
    await card.get_by_role("radio", name="No").check()
    await card.get_by_role("button", name="Answer").click()
    await demo.shows(END)
    await page.goto((tmp_path / "report.html").as_uri())
    await expect(page.get_by_text("played 5 of 5 acts as promised")).to_be_visible()
    await picture(page, "report")
    demo.enter()
    assert await demo.process.wait() == 0, demo.printed
    assert "not as promised" not in demo.printed
