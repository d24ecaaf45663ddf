"""A person's hands at a page, a mouse or a keyboard, and a count of what they did: of real events, as the page gets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from playwright.async_api import Locator, Page, expect

By = Literal["mouse", "keyboard"]
WALK = 150
"""So many steps by Tab are a way that nobody goes."""
COUNTER = """
(() => {
    const KEPT = "hands";
    const count = () => sessionStorage.setItem(KEPT, String(Number(sessionStorage.getItem(KEPT) ?? "0") + 1));
    const types = (at) => at instanceof HTMLElement && (at.isContentEditable || /^(TEXTAREA|SELECT)$/.test(at.tagName)
        || (at.tagName === "INPUT" && !/^(checkbox|radio|button|submit)$/.test(at.type)));
    addEventListener("click", (event) => { if (event.isTrusted && event.detail > 0) count(); }, true);
    addEventListener("keydown", (event) => {
        if (!event.isTrusted || event.ctrlKey || event.metaKey || event.altKey) return;
        const shortcut = event.key.length === 1 && !types(event.target) && !/^[jk]$/.test(event.key);
        if (event.key === "Enter" || shortcut) count();
    }, true);
})()
"""
"""Counts clicks, and keys that activate: Enter, Space and single-letter shortcuts. Typing a text, and going to a place by Tab, arrows, j and k, is not counted; a click into a field is."""


@dataclass(eq=False)
class Hands:
    """One way to use a page, and how often something was pressed."""

    page: Page
    by: By

    @classmethod
    async def at(cls, page: Page, by: By) -> Hands:
        await page.add_init_script(COUNTER)
        return cls(page, by)

    async def clicks(self) -> int:
        return cast("int", await self.page.evaluate("Number(sessionStorage.getItem('hands') ?? '0')"))

    async def begin(self, address: str) -> None:
        """Come to a page; what was done before does not count."""
        await self.page.goto(address)
        await expect(self.page.get_by_role("heading", level=1)).to_be_visible()
        await self.page.evaluate("sessionStorage.removeItem('hands')")

    async def go_to(self, place: Locator) -> None:
        """To a place by keys alone; the way there must exist."""
        await expect(place).to_be_visible()
        for _ in range(WALK):
            if await place.evaluate("(at) => at === document.activeElement"):
                return
            await self.page.keyboard.press("Tab")
        raise AssertionError(f"{place} cannot be reached by Tab")

    async def press(self, place: Locator) -> None:
        await expect(place).to_be_enabled()
        if self.by == "mouse":
            await place.click()
        else:
            await self.go_to(place)
            await self.page.keyboard.press("Enter")

    async def choose_tab(self, name: str) -> None:
        """A tab of a list of tabs, in which the keyboard goes by arrows."""
        tab = self.page.get_by_role("tab", name=name)
        if self.by == "mouse":
            await tab.click()
            return
        await self.go_to(self.page.get_by_role("tab", selected=True))
        while not await tab.evaluate("(at) => at === document.activeElement"):
            await self.page.keyboard.press("ArrowRight")
        await self.page.keyboard.press("Enter")

    async def write(self, place: Locator, text: str) -> None:
        """A text into a field; one that has the focus already needs no click."""
        await expect(place).to_be_visible()
        if self.by == "keyboard":
            await self.go_to(place)
        elif not await place.evaluate("(at) => at === document.activeElement"):
            await place.click()
        await self.page.keyboard.type(text)
