"""Pages of responses, and the final states of jobs and runs. The contents of a response: `schemas`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from forestay.client.api.schemas import IncidentJson, Job, RunHistoryEventJson, RunJson, StoryLine


FINAL = frozenset({"completed", "forced_complete", "failed", "cancelled"})
"""States that no job leaves."""
WELL = frozenset({"completed", "forced_complete"})
"""Final states of jobs that count as done."""
STATES = ("available", "running", "faulted", "completed", "forced_complete", "failed", "cancelled")
RUN_WELL = frozenset({"completed", "forced_complete"})
"""States of ended runs that count as done."""


class JobList(NamedTuple):
    """A page of jobs in order, and a cursor for the next page; no cursor: this is the last."""

    jobs: list[Job]
    cursor: str | None


class StoryPage(NamedTuple):
    """A page of a run's story, oldest first, and a cursor for the next page; no cursor: this is the last."""

    story: list[StoryLine]
    cursor: str | None


class RunList(NamedTuple):
    """A page of runs, newest first, and a cursor for the next page; no cursor: this is the last."""

    runs: list[RunJson]
    cursor: str | None


class HistoryList(NamedTuple):
    """A page of a run's history, oldest first, and a cursor for the next page; no cursor: this is the last."""

    history: list[RunHistoryEventJson]
    cursor: str | None


class IncidentList(NamedTuple):
    """A page of incidents, and a cursor for the next page."""

    incidents: list[IncidentJson]
    cursor: str | None
