"""A person at a real Chromium: logged in by a link, watched for what the page's policy refuses and for what no screen reader could use."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import BrowserContext, Error, Locator, Page, Request, Response, expect
from tests.live.run_site import TENANT
from tests.system.web.acts import Asked
from tests.unit.apps.server.running import RunningServer, until

ROOT = Path(__file__).resolve().parents[3]
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
PICTURES = ROOT / "docs" / "how-to" / "pages"
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}


def chromium() -> str:
    """The browser's program; a missing one fails the test, since a skipped proof would look like a proof."""
    for name in (os.environ.get("FORESTAY_TEST_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome"):
        if name and (program := shutil.which(name)):
            return program
    pytest.fail("there is no Chromium; install the system's package `chromium`", pytrace=False)


async def write(editor: Locator, text: str) -> None:
    """Put a text in the place of what an editor of code holds, by its own keys: it hears of a selection that was made past it only later."""
    await editor.click()
    await editor.press("Control+a")
    await editor.press("Delete")
    if text:
        await editor.page.keyboard.insert_text(text)


@dataclass(eq=False)
class Person:
    """One person and their browser."""

    name: str
    server: RunningServer
    context: BrowserContext
    page: Page
    refused: list[str] = field(default_factory=list)
    """What the page's policy did not let through, and errors that nobody caught."""
    asked: list[Request] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What the server did not do."""
    acted: list[Asked] = field(default_factory=list)
    """What it did."""

    @classmethod
    async def log_in(
        cls, context: BrowserContext, server: RunningServer, name: str, *roles: str, tenant: str = TENANT
    ) -> Person:
        page = await context.new_page()
        person = cls(name, server, context, page)
        page.on("console", lambda worker: person._heard(worker.type, worker.text))
        page.on("pageerror", lambda error: person.refused.append(str(error)))
        page.on("request", lambda request: person.asked.append(request))
        page.on("response", person._answered)
        link = await server.person(*roles, tenant=tenant, subject=name).post("/v1/logins")
        assert link.status_code == 201, link.text
        await page.goto(link.json()["url"])
        await page.wait_for_url("**/inbox")
        # Who goes on before the page stands breaks off what it loads, and hears it complain.
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        return person

    def _heard(self, kind: str, text: str) -> None:
        if kind == "error" and ("Content Security Policy" in text or "Content-Security-Policy" in text):
            self.refused.append(text)

    def _answered(self, answer: Response) -> None:
        if answer.status >= 400:
            self.problems.append(f"{answer.status} {answer.request.method} {answer.url}")
        elif answer.request.method != "GET":
            body = answer.request.post_data_json or {}
            self.acted.append(Asked(answer.request.method, urlsplit(answer.url).path, body))

    async def seen(self) -> str:
        """What is on the page, for a test that failed."""
        try:
            text = await self.page.locator("body").inner_text(timeout=5_000)
        except Error as error:
            text = str(error)
        return (
            f"{self.name} at {self.page.url}\nrefused: {self.refused}\nproblems: {self.problems[-10:]}\n{text[:3000]}"
        )

    async def leave(self) -> None:
        """Leave the page that stands, so that what it asks for late is not taken for the next one's."""
        await self.page.goto("about:blank")
        self.asked.clear()

    async def open(self, path: str) -> None:
        await self.page.goto(f"{self.server.services.components.settings.public_url}{path}")

    async def check(self) -> None:
        """Nothing that the policy refuses, nothing serious for people who do not see or do not use a mouse."""
        assert self.refused == []
        await self._still()
        # By the debugger's door: the page's own policy lets no foreign script in.
        await self.page.evaluate(AXE.read_text(encoding="utf-8"))
        fields: dict[str, Any] = await self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        bad = [
            (violation["id"], violation["impact"], [node["html"][:200] + " :: " + node["failureSummary"][:300] for node in violation["nodes"][:4]])
            for violation in fields["violations"]
            if violation["impact"] in ("serious", "critical")
        ]  # fmt: skip
        assert bad == [], json.dumps(bad, indent=1)

    async def _still(self) -> None:
        """Wait until nothing moves; asked from here, as the page's policy lets nothing in that would look by itself."""

        async def still() -> bool:
            return bool(
                await self.page.evaluate("document.getAnimations().every((one) => one.playState !== 'running')")
            )

        await until(still, "the page to be still")

    async def picture(self, name: str) -> None:
        """For the documents, where they are asked for: every run would change all of them a little."""
        if not os.environ.get("FORESTAY_PICTURES"):
            return
        PICTURES.mkdir(parents=True, exist_ok=True)
        await self._still()
        await self.page.screenshot(path=PICTURES / f"{name}.png")
