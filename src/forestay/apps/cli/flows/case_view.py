"""A case watched until it has ended: a tree that lives on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import lasting
from forestay.apps.cli.flows.case_tree import Counts, Tree, asking, fitted, word
from forestay.apps.cli.output import CommandOutput
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

    from forestay.client.api.answers import CaseWhole, IncidentJson, ItemJson

FIRST_PAUSE, LAST_PAUSE = 0.25, 2.0
"""Seconds between two looks at a case; it is asked less often the longer it lasts."""
TICK = 0.25
MOST_WAITING = 100
PROGRESS_EVERY = 10.0
"""Seconds between two plain lines about the jobs of one item."""


class CaseView(Protocol):
    """What a case is shown by."""

    def show(self, tree: Tree) -> None: ...

    def tick(self, now: datetime) -> None: ...


def follow(session: Session, case: str, *, timeout: float | None = None) -> CaseWhole:
    """Show a case until it has ended. Ctrl-C, a timeout and a server that is away leave it as it is."""
    from forestay.client import TimedOut, Unavailable

    back = f"The run continues; to follow it again: forestay watch {case}"
    until = None if timeout is None else time.monotonic() + timeout
    try:
        with _view(session.out) as view:
            pause = FIRST_PAUSE
            while True:
                whole = session.client.case(case)
                waiting = _waiting(session, whole)
                view.show(Tree(whole, session.client.now(), _counts(session, whole), waiting))
                if whole["ended"] is not None:
                    return whole
                if until is not None and time.monotonic() >= until:
                    raise TimedOut(f"the run is still {word(whole)}. {back}")
                _pause(session, view, pause if until is None else min(pause, max(0.0, until - time.monotonic())))
                pause = min(LAST_PAUSE, pause * 1.2)
    except KeyboardInterrupt:
        session.out.say(f"\n{back}")
        raise
    except Unavailable:
        session.out.say(back)
        raise


def _pause(session: Session, view: CaseView, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(TICK, left))
        view.tick(session.client.now())


def _counts(session: Session, case: CaseWhole) -> dict[str, Counts]:
    """The jobs of the rounds under way as the store has them: the case itself is told of ends in batches."""
    if session.out.quiet or not any(item["count"] > 1 and item["state"] == "running" for item in case["items"]):
        return {}

    def by_work(*states: str) -> dict[str, int]:
        return session.client.count_jobs("work", {"case": case["id"], "state": states})

    running, well, bad = by_work("running"), by_work("completed", "forced_complete"), by_work("failed", "cancelled")
    works = running.keys() | well.keys() | bad.keys()
    return {one: Counts(0, running.get(one, 0), well.get(one, 0), bad.get(one, 0)) for one in works}


def _waiting(session: Session, case: CaseWhole) -> list[IncidentJson]:
    """What nobody but a person can answer: without a word of it the case would seem to stand still."""
    if session.out.quiet or case["ended"] is not None:
        return []
    return session.client.find_incidents({"case": case["id"], "state": "held"}, limit=MOST_WAITING).incidents


@contextmanager
def _view(out: CommandOutput) -> Iterator[CaseView]:
    if not out.shows_progress:
        yield _Lines(out)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, no_color=not out.colour_err, highlight=False, soft_wrap=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield _OnTerminal(live)


class _OnTerminal:
    """Draws the tree anew in its place."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._tree: Tree | None = None

    def show(self, tree: Tree) -> None:
        self._tree = tree
        self._live.update(self._drawn(tree), refresh=True)

    def tick(self, now: datetime) -> None:
        if self._tree is not None:
            self.show(replace(self._tree, now=now))

    def _drawn(self, tree: Tree) -> Group:
        from rich.console import Group
        from rich.text import Text

        width, height = self._live.console.size
        lines = [Text(tree.head(), style="bold", no_wrap=True, overflow="ellipsis")]
        # The last picture stays on the screen, as long as it is; before that there is only so much room.
        room = 10_000 if tree.case["ended"] else height - 2
        for line in fitted(tree.lines(width - 2), room):
            drawn = Text("  ", no_wrap=True, overflow="ellipsis")
            drawn.append(line.rails, style="dim").append(f"{line.mark} ", style=line.colour)
            drawn.append(line.text).append(f"  {line.more}", style="" if line.colour == "red" else "dim")
            lines.append(drawn)
        return Group(*lines)


class _Lines:
    """Says what has changed, a line a change."""

    def __init__(self, out: CommandOutput) -> None:
        self._out = out
        self._case = ""
        self._items: dict[str, tuple[str, int]] = {}
        self._told: dict[str, tuple[float, int]] = {}
        self._waiting = 0

    def show(self, tree: Tree) -> None:
        if not self._case:
            self._say(tree, f"run {tree.case['id']} of {tree.case['name']}")
        for item in tree.case["items"]:
            known = (item["state"], item["round"])
            if self._items.get(item["id"], ("waiting", 0)) != known:
                self._say(tree, f"{item['id']}: {tree.told(item)}")
            elif not self._out.quiet and item["state"] == "running":
                self._progress(tree, item)
            self._items[item["id"]] = known
        if len(tree.waiting) > self._waiting:
            self._say(tree, asking(tree.waiting))
        self._waiting = len(tree.waiting)
        if self._case != tree.case["state"] and (self._case or tree.case["state"] != "running"):
            self._say(tree, f"run {word(tree.case)}" + (f" after {lasting(tree.age())}" if tree.case["ended"] else ""))
        self._case = tree.case["state"]

    def tick(self, now: datetime) -> None:
        """Nothing lives here."""

    def _progress(self, tree: Tree, item: ItemJson) -> None:
        count = tree.count(item)
        ended, at = count.well + count.bad, time.monotonic()
        last, before = self._told.get(item["id"], (at, 0))
        if item["id"] not in self._told or (ended != before and at - last >= PROGRESS_EVERY):
            if item["id"] in self._told:
                self._say(tree, f"{item['id']}: {tree.told(item)}")
            self._told[item["id"]] = (at, ended)

    def _say(self, tree: Tree, text: str) -> None:
        self._out.say(f"{tree.now.astimezone().strftime('%H:%M:%S')} {neutral.line(text)}")
