"""The server as a site agent sees it: the demand on the site, and the record of its launches.

Calls raise `Transient` when no server answers, `Conflict` when another agent manages the site, `Permanent` when the request or the token is wrong.
Every call may be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from forestay.domain.jobs.resources import Resources
from forestay.domain.sites.fleet import PilotCount
from forestay.domain.sites.launch import LaunchReport, LaunchState


class QueuedGroup(NamedTuple):
    """Queued jobs that may run at the site and need similar resources."""

    name: str
    tasks: int
    need: Resources
    owner: str = ""
    """Whose they are, at a site that runs jobs as their submitters."""


@dataclass(frozen=True, slots=True)
class SeenLaunch:
    """A launch as the server just reported it. Ages are seconds by the server's clock, so that no two clocks are compared."""

    id: str
    name: str
    """The batch job's name."""
    size: str
    """With the owner, where its pilot is one owner's (`size_for`)."""
    state: LaunchState
    age: float
    """Since it was planned."""
    tried: float
    """Since the last attempt to submit it was recorded."""
    since: float
    """Since its last change."""
    tries: int = 1
    batch_job: str = ""
    pilot: str = ""
    word: str = ""
    """A word for how it ended."""
    cancel: bool = False
    """Its pilot fell silent: cancel its batch job."""


class SiteDemand(NamedTuple):
    """The demand on the site, and its launches."""

    groups: Sequence[QueuedGroup]
    sizes: Mapping[str, PilotCount]
    launches: Sequence[SeenLaunch]
    """All launches that have not ended."""


class ReportResult(NamedTuple):
    """The outcome of a report."""

    noted: bool
    detail: str
    pilot: str
    """The pilot that registered from the launch; empty for none so far."""


class SiteApi(Protocol):
    """The port."""

    async def hello(self, report: Mapping[str, object]) -> None:
        """Announce that this agent manages the site, and report the site's state."""
        ...

    async def demand(self) -> SiteDemand: ...

    async def ended(self) -> Sequence[SeenLaunch]:
        """The launches that ended in the last hours."""
        ...

    async def plan(self, launches: Mapping[str, str]) -> None:
        """Record launches, by id with their sizes; returns when they are durable."""
        ...

    async def report(self, reports: Sequence[LaunchReport]) -> Mapping[str, ReportResult]: ...

    async def enrol(self, launch: str, *, seconds: int, owner: str = "") -> str:
        """A secret by which the pilot of a launch may register, once; with an owner, for the jobs of that owner only."""
        ...
