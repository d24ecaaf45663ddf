"""What an act of the demonstration is, and what it may use: the client, and the processes that it kills."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, TypeVar

from forestay.client import AsyncForestayClient
from forestay.client.api import calls, incident_calls

if TYPE_CHECKING:
    from forestay.apps.demo.site import DemoSite
    from forestay.client.api.schemas import IncidentJson, IncidentWhole, Job, RunDetails, TransitionJson

T = TypeVar("T")
PATIENCE = 600.0
"""Seconds for which Forestay may take; a busy machine takes many times what a quiet one does."""
FINAL = frozenset({"completed", "failed", "cancelled"})


class NotAsPromisedError(Exception):
    """An act came out otherwise than it promises."""


@dataclass(frozen=True, slots=True)
class ActFigure:
    """A measured value, with where it was read."""

    name: str
    value: int | float | str
    source: str


@dataclass(slots=True)
class ActResult:
    """What came of an act."""

    figures: list[ActFigure] = field(default_factory=list)
    summary: str = ""
    """One line for the terminal."""
    runs: list[str] = field(default_factory=list)
    diagram: str = ""
    """A picture for the report, as SVG."""

    def figure(self, name: str, value: float | str, source: str) -> None:
        self.figures.append(ActFigure(name, value, source))


@dataclass(slots=True)
class DemoStage:
    """What the acts share."""

    site: DemoSite
    client: AsyncForestayClient
    auto: bool
    show: Callable[[str], None]
    """Show a line to the visitor."""

    def expect(self, holds: object, what: str) -> None:
        if not holds:
            raise NotAsPromisedError(what)

    async def visitor(self, what: str, act: Callable[[], Awaitable[object]]) -> None:
        """Something that the visitor does: by the same requests without one."""
        if self.auto:
            await act()
        else:
            self.show(f"  Your turn: {what}")
            self.site.notice.write_text(f"Your turn: {what}", encoding="utf-8")

    async def until(self, condition: Callable[[], Awaitable[T | None]], what: str, *, by_visitor: bool = False) -> T:
        """Wait for a condition, and give its value. For a visitor there is no limit."""
        give_up = time.monotonic() + PATIENCE
        while not (value := await condition()):
            if time.monotonic() > give_up and (self.auto or not by_visitor):
                raise NotAsPromisedError(f"waited {PATIENCE:.0f} s in vain for {what}")
            await asyncio.sleep(0.2)
        return value

    async def start_run(self, flow: str, **params: object) -> str:
        """Start a run of a flow of this package."""
        return (await self.client.start_run(await self.store_flow(flow), params))["id"]

    async def store_flow(self, flow: str) -> str:
        text = files("forestay.apps.demo").joinpath("flows", f"{flow}.yaml").read_text(encoding="utf-8")
        return (await self.client.store_flow(text))["version"]

    async def ended(self, run: str, state: str = "completed") -> RunDetails:
        async def over() -> RunDetails | None:
            details = await self.client.run(run)
            return details if details["ended"] else None

        details = await self.until(over, f"the end of run {run[:8]}")
        self.expect(details["state"] == state, f"run {run[:8]} is {details['state']}, not {state}: {details['reason']}")
        return details

    async def jobs(self, **filters: str | Sequence[str]) -> list[Job]:
        """All jobs that a search finds."""
        jobs: list[Job] = []
        cursor: str | None = None
        while True:
            page = await self.client.find_jobs(filters, limit=calls.LARGEST_PAGE, cursor=cursor)
            jobs += page.jobs
            cursor = page.cursor
            if cursor is None:
                return jobs

    async def story(self, job: Job | str) -> list[TransitionJson]:
        return (await self.client.story(job if isinstance(job, str) else job["id"]))["story"]

    async def find_incidents(self, **filters: str) -> list[IncidentJson]:
        """The incidents that a search finds, the newest first."""
        return (await self.client.send(incident_calls.find_incidents(filters, limit=100))).incidents

    async def incidents(self, **filters: str) -> list[IncidentWhole]:
        """The same, with their decisions and steps."""
        incidents = await self.find_incidents(**filters)
        return [await self.client.send(incident_calls.incident(incident["id"])) for incident in incidents]


@dataclass(frozen=True, slots=True)
class Act:
    """One act: which paper it shows, and how it is played."""

    paper: str
    """Its number, as the project's list of papers has it."""
    title: str
    contributes: str
    play: Callable[[DemoStage, ActResult], Awaitable[None]]
    """Fills the result in; `NotAsPromisedError` if something comes out otherwise."""
