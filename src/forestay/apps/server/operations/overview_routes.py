"""The route of the overview: the results of a tenant's jobs in a period."""

from __future__ import annotations

import asyncio
from typing import Literal

from fastapi import Response

from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.request_context import TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.domain.rules.incident_outcome import OutcomeKind
from forestay.formats.jobs.job_public import time_text
from forestay.formats.rules.replay_json import hours
from forestay.services.operations.usage_history import FailedJobOutcomes, HistorySpan, UsageReport, WaitTimes

router = Router(tags=["watch"])


class WaitTimesOut(Out):
    looked: int
    """Jobs whose wait was read: of each step those that ended last."""
    median: float | None
    """Seconds from submission to the first claim."""
    most: float | None
    """So long or less for nine of ten."""


class FatesOut(Out):
    jobs: int
    """Jobs that had a failure, each counted once, ended or not: the base of the shares."""
    recovered: int
    """Succeeded, and no person had acted on the failure."""
    by_hand: int
    """Succeeded after a person had acted on it, alone or for a group."""
    not_well: int
    """Failed, cancelled, or declared done by a person."""
    open: int
    """Not ended yet."""
    core_hours_saved: float
    """The core-hours of attempts that succeeded after a failure on which no person acted."""


class CauseOut(Out):
    cause: str
    incidents: int
    steps: list[int]
    """Incidents in each step."""
    fates: FatesOut


class OverviewOut(Out):
    span: Literal["hour", "day", "week", "month"]
    at: Time
    since: Time
    step: int
    """Seconds; the last step is not over yet."""
    starts: list[Time]
    """When each step begins."""
    submitted: list[int]
    well: list[int]
    """Jobs that succeeded in each step."""
    failed: list[int]
    cancelled: list[int]
    waits: list[WaitTimesOut]
    wait: WaitTimesOut
    status: dict[str, int]
    """Jobs that have not ended, by state, now."""
    incidents: int
    waiting: int
    """Failures of any time that wait for a person now, as the inbox counts them: without snoozed ones."""
    looked: int
    """Incidents whose jobs were read to determine the outcomes: the newest."""
    fates: FatesOut
    causes: list[CauseOut]
    """The most frequent first."""


@router.get("/v1/overview", response_model=OverviewOut, responses=errors())
async def overview(context: TheDesk, who: Viewer, span: HistorySpan = HistorySpan.DAY) -> Response:
    """The results of the tenant's jobs in the last hour, day, week or month; up to 15 seconds old."""
    services = context.services
    past, waiting = await asyncio.gather(
        services.usage_history.look(who.tenant, span), services.inbox.count(who.tenant)
    )
    return json_answer(_shown(past, waiting))


def _shown(past: UsageReport, waiting: int) -> dict[str, object]:
    totals: dict[str, int] = {}
    for other_cause in past.causes:
        for cause, many in other_cause.items():
            totals[cause] = totals.get(cause, 0) + many
    return {
        "span": past.span.value,
        "at": time_text(past.at),
        "since": time_text(past.since),
        "step": past.step // 1000,
        "starts": [time_text(past.since + place * past.step) for place in range(len(past.submitted))],
        "submitted": list(past.submitted),
        "well": [counts.get("completed", 0) + counts.get("forced_complete", 0) for counts in past.ended],
        "failed": [counts.get("failed", 0) for counts in past.ended],
        "cancelled": [counts.get("cancelled", 0) for counts in past.ended],
        "waits": [_waits(wait) for wait in past.waits],
        "wait": _waits(past.wait),
        "status": dict(past.status),
        "incidents": sum(past.incidents.values()),
        "waiting": waiting,
        "looked": past.looked,
        "fates": _fates(past.fates),
        "causes": [
            {
                "cause": cause,
                "incidents": many,
                "steps": [other_cause.get(cause, 0) for other_cause in past.causes],
                "fates": _fates(past.by_cause.get(cause, FailedJobOutcomes())),
            }
            for cause, many in sorted(totals.items(), key=lambda total: (-total[1], total[0]))
        ],
    }


def _waits(waits: WaitTimes) -> dict[str, object]:
    return waits._asdict()


def _fates(fates: FailedJobOutcomes) -> dict[str, object]:
    came = fates.came
    return {
        "jobs": fates.jobs,
        "recovered": came[OutcomeKind.RECOVERED],
        "by_hand": came[OutcomeKind.BY_HAND],
        "not_well": fates.judged - came[OutcomeKind.RECOVERED] - came[OutcomeKind.BY_HAND],
        "open": came[OutcomeKind.OPEN],
        "core_hours_saved": hours(fates.saved),
    }
