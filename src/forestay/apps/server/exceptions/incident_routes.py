"""Incidents: what failed, what was decided, and what was done."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Response

from forestay.apps.server.exceptions.error_routes import RetryRecordOut, TriageOut, triage_public
from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.problems import HttpProblem, asked_time
from forestay.apps.server.http.request_context import RequestContext, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.domain.exceptions.incidents.error_triage import QUIET
from forestay.domain.exceptions.incidents.inbox import WaitsFor
from forestay.domain.exceptions.incidents.incident import Decision, IncidentState, as_judged
from forestay.domain.exceptions.safeguards.safeguards import CORE_HOUR
from forestay.formats.jobs.job_public import time_text
from forestay.formats.rules.incident_public import incident_public, status_public
from forestay.ports.errors import Permanent, PortError
from forestay.ports.exceptions.incident_store import IncidentQuery
from forestay.ports.flows.flow_engine import RunQuery
from forestay.services.exceptions.inbox.inbox_reader import FACETS, InboxFilter, InboxView
from forestay.services.rules.retry_records import RetryRecords

router = Router(prefix="/v1", tags=["incidents"])
MOST = 50
"""The most decisions shown for one incident."""
MOST_NAMED = 1000
"""The most causes and owners to choose from."""
HELD_RUNS = "suspended,held"
PATIENCE = 0.5
"""Seconds that the inbox waits for the flow engine; its failures matter more than the number of runs."""
Word = Annotated[str, Query(max_length=200)]
Since = Annotated[str, Query(max_length=40, description="Only those that happened at this time or later")]


class IncidentOut(Out):
    id: str
    owner: str
    type: str
    at: Time
    state: str
    due: Time | None
    cause: str
    flow: str
    run: str
    task: str
    job: str
    group: str
    fingerprint: str
    """Identifies the error: the same for the same error of the same task, whatever the paths, hosts and ids. Empty: recorded before there were fingerprints."""
    title: str
    """The error in one line, with placeholders for what varies."""
    host: str
    site: str
    exit_code: str
    """How the job's program ended: its exit code, or `signal 9`."""
    note: str


class IncidentsOut(Out):
    incidents: list[IncidentOut]
    cursor: str | None


class IncidentCountsOut(Out):
    counts: dict[str, int]


class InboxCountsOut(Out):
    cause: dict[str, int]
    owner: dict[str, int]
    host: dict[str, int]
    """Failures whose host is unknown count under the empty value."""


class DecisionOut(Out):
    n: int
    at: Time
    verdict: str
    by: str
    playbook: dict[str, Any] | None
    detail: dict[str, Any]


class StepOut(Out):
    n: int
    step: int
    action: str
    at: Time
    state: str
    detail: str


class IncidentWholeOut(IncidentOut):
    attempt: int
    engine: str
    context: dict[str, Any]
    """The evidence without secrets, the cause with what decided it, and the job as it was then."""
    retry_verdict: str
    """What another try needs, how often and after which wait, such as `same, once, after 10 min`; empty: no cause was determined."""
    advice: str
    """One sentence about another try: whether it may help, and the action taken."""
    retry_record: RetryRecordOut | None
    """The outcomes of this error's retried failures, for display only. None: it has no fingerprint, or they cannot be counted now."""
    decisions: list[DecisionOut]
    steps: list[StepOut]


class InboxGroupOut(TriageOut):
    group: str
    """The storm that it is part of; empty: none."""
    storm: bool
    """It is part of a storm, and neither snoozed nor resolved."""
    fingerprint: str
    """Their error; empty: they were recorded before there were fingerprints, and share cause and owner."""
    title: str
    """The error in one line."""
    cause: str
    owner: str
    """Empty: of several owners."""
    owners: int
    count: int
    core_hours: float
    """What another attempt of all of them would cost."""
    oldest: Time
    last_seen: Time
    host: str
    """The host on which all of them happened; empty: several hosts, or unknown."""
    incident: str
    """The oldest of them."""
    job: str
    run: str
    waits_for: str
    note: str
    next: str
    """The command for the next step."""


class InboxOut(Out):
    groups: list[InboxGroupOut]
    """The most expensive groups."""
    count: int
    """The number of waiting incidents, including those in groups that are not shown."""
    core_hours: float
    """What another attempt of all of them would cost."""
    many: int
    """The number of all groups."""
    causes: list[str]
    """The causes of all groups, to choose from."""
    owners: list[str]
    approvals: int
    """The number of groups that need an approval."""
    snoozed: int
    """The number of snoozed groups, which are left out."""
    more: bool
    """There are more groups than are shown."""
    held_runs: int | None
    """Runs that make no progress until somebody decides: `GET /v1/runs?state=suspended,held`; null: unknown."""


async def _held_runs(context: RequestContext, tenant: str) -> int | None:
    engine = context.services.components.engine
    if engine is None:
        return 0
    with suppress(PortError, TimeoutError):
        async with asyncio.timeout(PATIENCE):
            return await engine.count(RunQuery(tenant, state=HELD_RUNS, open=True))
    return None


def _query(tenant: str, state: str, since: str = "", **wanted: str) -> IncidentQuery:
    try:
        states = frozenset(IncidentState(part) for part in state.split(",") if part)
    except ValueError:
        known = ", ".join(incident_state.value for incident_state in IncidentState)
        raise HttpProblem(400, f"{state!r} is not a state of an incident; use one of {known}") from None
    texts: dict[str, Any] = {name: value for name, value in wanted.items() if value}
    return IncidentQuery(tenant, states=states, since=asked_time(since or None, "since"), **texts)


@router.get("/incidents", response_model=IncidentsOut, responses=errors(400))
async def find_incidents(
    context: TheDesk,
    who: Viewer,
    state: Annotated[str, Query(max_length=200, description="One or several, separated by commas: held, open, …")] = "",
    cause: Word = "",
    owner: Word = "",
    flow: Word = "",
    run: Word = "",
    job: Word = "",
    group: Word = "",
    fingerprint: Word = "",
    host: Word = "",
    site: Word = "",
    exit_code: Word = "",
    since: Since = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str | None, Query(max_length=4000)] = None,
) -> Response:
    """Find incidents, the newest first."""
    wanted = {"cause": cause, "owner": owner, "flow": flow, "run": run, "job": job, "group": group}
    tags = {"fingerprint": fingerprint, "host": host, "site": site, "exit_code": exit_code}
    query = _query(who.tenant, state, since, **wanted, **tags)
    try:
        page = await context.services.components.incidents.find(query, limit=limit, cursor=cursor)
    except Permanent as error:
        raise HttpProblem(400, str(error)) from error
    shown = [status_public(stored.status) for stored in page.statuses]
    return json_answer({"incidents": shown, "cursor": page.cursor})


def _inbox_filter(
    view: Annotated[
        InboxView | None, Query(description="What to look at; without it all that waits for somebody")
    ] = None,
    cause: Word = "",
    owner: Word = "",
    fingerprint: Word = "",
    host: Word = "",
    since: Since = "",
    snoozed: Annotated[Literal["hide", "show"], Query(description="Whether snoozed errors are listed")] = "hide",
) -> InboxFilter:
    return InboxFilter(
        view=view,
        owner=owner or None,
        cause=cause or None,
        fingerprint=fingerprint or None,
        host=host or None,
        since=asked_time(since or None, "since"),
        snoozed=snoozed == "show",
    )


WantedGroups = Annotated[InboxFilter, Depends(_inbox_filter)]


@router.get("/inbox", response_model=InboxOut, responses=errors())
async def read_inbox(
    context: TheDesk,
    who: Viewer,
    wanted: WantedGroups,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of groups")] = 200,
) -> Response:
    """Incidents that wait for a person, in groups by error; the most expensive first."""
    reading = context.services.inbox.groups(who.tenant, wanted, most=limit)
    inbox, held_runs = await asyncio.gather(reading, _held_runs(context, who.tenant))
    groups = [
        {
            "group": group.place.group,
            "storm": bool(group.place.group) and inbox.state(group) not in QUIET,
            "fingerprint": group.place.fingerprint,
            "title": oldest.title if oldest is not None else "",
            "cause": group.place.cause,
            "owner": group.place.owner,
            "owners": group.owners,
            "count": group.count,
            "core_hours": round(group.core_seconds / CORE_HOUR, 2),
            "oldest": time_text(group.at),
            "last_seen": time_text(group.newest),
            "host": group.host,
            "incident": group.oldest,
            "job": oldest.job if oldest is not None else "",
            "run": oldest.run if oldest is not None else "",
            "waits_for": group.place.waits.value,
            "note": oldest.note if oldest is not None else "",
            "next": group.next_step(oldest),
            **triage_public(inbox.triage(group), inbox.state(group)),
        }
        for group in inbox.groups
        for oldest in [inbox.oldest.get(group.oldest)]
    ]
    body = {
        "groups": groups,
        "count": sum(group.count for group in inbox.all),
        "core_hours": round(sum(group.core_seconds for group in inbox.all) / CORE_HOUR, 2),
        "many": len(inbox.all),
        "causes": sorted({group.place.cause for group in inbox.all})[:MOST_NAMED],
        "owners": sorted({owner for group in inbox.all for owner in group.owner_names})[:MOST_NAMED],
        "approvals": sum(group.place.waits is WaitsFor.APPROVAL for group in inbox.all),
        "snoozed": inbox.snoozed,
        "more": inbox.more,
        "held_runs": held_runs,
    }
    return json_answer(body)


@router.get("/inbox/counts", response_model=InboxCountsOut, responses=errors())
async def count_inbox(context: TheDesk, who: Viewer, wanted: WantedGroups) -> Response:
    """The number of failures that `GET /v1/inbox` would list for each other cause, owner and host, the most frequent first; in the view `recovered` of the thousand answered last."""
    facets = await context.services.inbox.facets(who.tenant, wanted)
    return json_answer({by: dict(facets[by]) for by in FACETS})


@router.get("/incidents/counts", response_model=IncidentCountsOut, responses=errors(400))
async def count_incidents(
    context: TheDesk,
    who: Viewer,
    by: Literal[
        "cause", "owner", "state", "flow", "kind", "group", "fingerprint", "host", "site", "exit_code"
    ] = "cause",
    state: Annotated[str, Query(max_length=200)] = "",
    cause: Word = "",
    owner: Word = "",
    fingerprint: Word = "",
    host: Word = "",
    site: Word = "",
    since: Since = "",
) -> Response:
    """How many incidents there are of each kind."""
    query = _query(who.tenant, state, since, cause=cause, owner=owner, fingerprint=fingerprint, host=host, site=site)
    counts = await context.services.components.incidents.count(query, by=by)
    return json_answer({"counts": dict(counts)})


@router.get("/incidents/{incident}", response_model=IncidentWholeOut, responses=errors(404))
async def read_incident(context: TheDesk, who: Viewer, incident: str) -> Response:
    """One incident: its evidence, its cause, the decisions with their rules, and all steps taken."""
    incidents = context.services.components.incidents
    found_incident = (await incidents.get_incidents([incident])).get(incident)
    status = (await incidents.get_statuses([incident])).get(incident)
    if found_incident is None or status is None or found_incident.tenant != who.tenant:
        raise HttpProblem(404, "there is no such incident")
    decisions: list[Decision] = []
    # One by one, since a search may not include the newest yet.
    while (
        len(decisions) < MOST and (decision := await incidents.get_decision(incident, len(decisions) + 1)) is not None
    ):
        decisions.append(decision)
    record = await RetryRecords(incidents, context.services.components.store).of(status.status)
    return json_answer(
        incident_public(
            as_judged(found_incident, status.status), status.status, decisions, await incidents.steps(incident), record
        )
    )
