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
    """Some of the jobs found, in order, and where to go on; no cursor: this was the last."""

    jobs: list[Job]
    cursor: str | None


class StoryPage(NamedTuple):
    """Some of a run's story, the oldest first, and where to go on; no cursor: this was the last."""

    story: list[StoryLine]
    cursor: str | None


class RunList(NamedTuple):
    """Some of the runs found, the newest first, and where to go on; no cursor: this was the last."""

    runs: list[RunJson]
    cursor: str | None


class HistoryList(NamedTuple):
    """Some of what happened, the oldest first, and where to go on; no cursor: this was the last."""

    history: list[RunHistoryEventJson]
    cursor: str | None


class IncidentList(NamedTuple):
    """Some incidents, and where to go on."""

    incidents: list[IncidentJson]
    cursor: str | None
