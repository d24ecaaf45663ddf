"""Follows a run until it has ended: a live tree on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from forestay.apps.cli import neutral
from forestay.apps.cli.amounts import lasting
from forestay.apps.cli.flows.run_tree import Counts, Tree, asking, fitted, word
from forestay.apps.cli.output import CommandOutput
from forestay.apps.cli.session import Session

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

    from forestay.client.api.schemas import IncidentJson, RunDetails, TaskJson

FIRST_PAUSE, LAST_PAUSE = 0.25, 2.0
"""Seconds between two polls of a run; the longer it lasts, the less often it is polled."""
TICK = 0.25
MOST_WAITING = 100
PROGRESS_EVERY = 10.0
"""Seconds between two plain lines about the jobs of one task."""


class RunView(Protocol):
    """What a run is shown by."""

    def show(self, tree: Tree) -> None: ...

    def tick(self, now: datetime) -> None: ...


def follow(session: Session, run: str, *, timeout: float | None = None) -> RunDetails:
    """Show a run until it has ended. Ctrl-C, a timeout and an unreachable server leave it as it is."""
    from forestay.client import TimedOut, Unavailable

    back = f"The run continues; to follow it again: forestay watch {run}"
    until = None if timeout is None else time.monotonic() + timeout
    try:
        with _view(session.out) as view:
            pause = FIRST_PAUSE
            while True:
                whole = session.client.run(run)
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


def _pause(session: Session, view: RunView, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(TICK, left))
        view.tick(session.client.now())


def _counts(session: Session, run: RunDetails) -> dict[str, Counts]:
    """The jobs of the active rounds as in the store: the run itself receives completions in batches."""
    if session.out.quiet or not any(task["count"] > 1 and task["state"] == "running" for task in run["tasks"]):
        return {}

    def by_work(*states: str) -> dict[str, int]:
        return session.client.count_jobs("work", {"run": run["id"], "state": states})

    running, well, bad = by_work("running"), by_work("completed", "forced_complete"), by_work("failed", "cancelled")
    works = running.keys() | well.keys() | bad.keys()
    return {work: Counts(0, running.get(work, 0), well.get(work, 0), bad.get(work, 0)) for work in works}


def _waiting(session: Session, run: RunDetails) -> list[IncidentJson]:
    """The failures that only a person can answer: without them the run would seem to be stuck."""
    if session.out.quiet or run["ended"] is not None:
        return []
    return session.client.find_incidents({"run": run["id"], "state": "held"}, limit=MOST_WAITING).incidents


@contextmanager
def _view(out: CommandOutput) -> Iterator[RunView]:
    if not out.shows_progress:
        yield _Lines(out)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, no_color=not out.colour_err, highlight=False, soft_wrap=False)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield _OnTerminal(live)


class _OnTerminal:
    """Redraws the tree in place."""

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
        # The last tree stays on the screen in full; before that it is limited to the screen.
        room = 10_000 if tree.run["ended"] else height - 2
        for line in fitted(tree.lines(width - 2), room):
            drawn = Text("  ", no_wrap=True, overflow="ellipsis")
            drawn.append(line.rails, style="dim").append(f"{line.mark} ", style=line.colour)
            drawn.append(line.text).append(f"  {line.more}", style="" if line.colour == "red" else "dim")
            lines.append(drawn)
        return Group(*lines)


class _Lines:
    """Prints changes, one a line."""

    def __init__(self, out: CommandOutput) -> None:
        self._out = out
        self._run = ""
        self._tasks: dict[str, tuple[str, int]] = {}
        self._told: dict[str, tuple[float, int]] = {}
        self._waiting = 0

    def show(self, tree: Tree) -> None:
        if not self._run:
            self._say(tree, f"run {tree.run['id']} of {tree.run['name']}")
        for task in tree.run["tasks"]:
            known = (task["state"], task["round"])
            if self._tasks.get(task["id"], ("waiting", 0)) != known:
                self._say(tree, f"{task['id']}: {tree.told(task)}")
            elif not self._out.quiet and task["state"] == "running":
                self._progress(tree, task)
            self._tasks[task["id"]] = known
        if len(tree.waiting) > self._waiting:
            self._say(tree, asking(tree.waiting))
        self._waiting = len(tree.waiting)
        if self._run != tree.run["state"] and (self._run or tree.run["state"] != "running"):
            self._say(tree, f"run {word(tree.run)}" + (f" after {lasting(tree.age())}" if tree.run["ended"] else ""))
        self._run = tree.run["state"]

    def tick(self, now: datetime) -> None:
        """Nothing to refresh."""

    def _progress(self, tree: Tree, task: TaskJson) -> None:
        count = tree.count(task)
        ended, at = count.well + count.bad, time.monotonic()
        last, before = self._told.get(task["id"], (at, 0))
        if task["id"] not in self._told or (ended != before and at - last >= PROGRESS_EVERY):
            if task["id"] in self._told:
                self._say(tree, f"{task['id']}: {tree.told(task)}")
            self._told[task["id"]] = (at, ended)

    def _say(self, tree: Tree, text: str) -> None:
        self._out.say(f"{tree.now.astimezone().strftime('%H:%M:%S')} {neutral.line(text)}")
