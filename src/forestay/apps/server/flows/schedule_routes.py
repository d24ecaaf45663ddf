"""Routes for schedules: runs of a flow that are started at set times."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Response
from pydantic import Field

from forestay.apps.server.flows.flow_routes import FlowName, Version, engine_of
from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import RequestContext, Submitter, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Model, PlainValue, Reason
from forestay.domain.flows.execution.run_names import run_keyed
from forestay.domain.flows.schedule import DAY, MAX_CATCH_UP, MAX_CRON, NAME, Overlap, RunSchedule, start_key
from forestay.formats.jobs.job_public import time_text
from forestay.ports.errors import NotFound, Permanent
from forestay.ports.flows.schedules import StoredSchedule
from forestay.ports.operations.identity import Principal, Role
from forestay.services.flows.run_schedules import RunSchedules

router = Router(prefix="/v1", tags=["schedules"])


class ScheduleIn(Model):
    flow: Version | FlowName
    """The version of a stored flow, or the name of a Python flow."""
    cron: Annotated[list[Annotated[str, Field(min_length=1, max_length=200)]], Field(min_length=1, max_length=MAX_CRON)]
    params: dict[Annotated[str, Field(max_length=200)], PlainValue] = Field(default_factory=dict, max_length=1000)
    time_zone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    catch_up: Annotated[int, Field(ge=1, le=MAX_CATCH_UP)] = DAY
    """Seconds."""
    overlap: Overlap = Overlap.SKIP
    paused: bool = False
    note: Reason = ""


class ScheduledRunOut(Out):
    at: Time
    run: str


class ScheduleOut(Out):
    name: str
    owner: str
    flow: str
    flow_name: str
    params: dict[str, Any]
    cron: list[str]
    time_zone: str
    catch_up: int
    overlap: Overlap
    paused: bool
    note: str
    next: list[Time]
    recent: list[ScheduledRunOut]
    """The runs that it started lately, the newest first."""
    missed: int
    """Starts that were skipped because they were too late."""
    skipped: int
    """Starts that were skipped because a run had not ended."""


class SchedulesOut(Out):
    schedules: list[ScheduleOut]


class ScheduleReasonIn(Model):
    reason: Reason = ""


def schedule_public(tenant: str, stored: StoredSchedule) -> dict[str, object]:
    schedule = stored.schedule
    recent = [
        {"at": time_text(at), "run": run_keyed(tenant, stored.owner, start_key(schedule.name, at))}
        for at in stored.recent
    ]
    return {
        "name": schedule.name,
        "owner": stored.owner,
        "flow": schedule.flow,
        "flow_name": stored.flow_name,
        "params": dict(schedule.params),
        "cron": list(schedule.cron),
        "time_zone": schedule.time_zone,
        "catch_up": schedule.catch_up,
        "overlap": schedule.overlap.value,
        "paused": schedule.paused,
        "note": schedule.note,
        "next": [time_text(at) for at in stored.next],
        "recent": recent,
        "missed": stored.missed,
        "skipped": stored.skipped,
    }


def schedules_of(context: RequestContext) -> RunSchedules:
    engine_of(context)  # 501 in a domain without flows
    return context.services.components.schedules()


async def _schedule(context: RequestContext, who: Principal, name: str) -> StoredSchedule:
    """A schedule of the caller's tenant; schedules of others are reported as missing."""
    missing = HttpProblem(404, f"there is no schedule {name[:64]} in tenant {who.tenant}")
    if not NAME.fullmatch(name):
        raise missing
    try:
        return await schedules_of(context).kept.get_schedule(who.tenant, name)
    except NotFound:
        raise missing from None


async def _owned(context: RequestContext, who: Principal, name: str) -> StoredSchedule:
    stored = await _schedule(context, who, name)
    if stored.owner != who.subject and not who.may(Role.OPERATOR):
        raise HttpProblem(403, f"the schedule belongs to {stored.owner}; only the owner or an operator may do this")
    return stored


@router.get("/schedules", response_model=SchedulesOut, responses=errors(501))
async def find_schedules(context: TheDesk, who: Viewer) -> Response:
    """All schedules, by name."""
    found = await schedules_of(context).kept.find_schedules(who.tenant)
    return json_answer({"schedules": [schedule_public(who.tenant, stored) for stored in found]})


@router.get("/schedules/{name}", response_model=ScheduleOut, responses=errors(404, 501))
async def read_schedule(context: TheDesk, who: Viewer, name: str) -> Response:
    """One schedule, with its next times and the runs that it started lately."""
    return json_answer(schedule_public(who.tenant, await _schedule(context, who, name)))


@router.put("/schedules/{name}", response_model=ScheduleOut, responses=errors(404, 501, body=True))
async def put_schedule(context: TheDesk, who: Submitter, name: str, body: ScheduleIn) -> Response:
    """Create or replace a schedule; it is pinned to the flow as it is now. Its runs belong to who created it."""
    parts = context.services.components
    schedules = schedules_of(context)
    version = body.flow
    if re.fullmatch(r"[0-9a-f]{64}", version) is None:
        python = parts.folder.flows().get(version)
        if python is None:
            raise HttpProblem(404, f"there is no Python flow {version}; GET /v1/flows lists all")
        version = await parts.flows.put_python(python, tenant=who.tenant)
    schedule = RunSchedule(
        name,
        version,
        tuple(body.cron),
        body.params,
        body.time_zone,
        body.catch_up,
        body.overlap,
        body.paused,
        body.note,
    )
    owner = who.subject
    try:
        owner = (await _owned(context, who, name)).owner
    except HttpProblem as problem:
        if problem.status_code != 404:
            raise
    await context.note(who, "schedule.put", name, owner=owner, why=body.note, flow=version)
    try:
        await schedules.put(who.tenant, owner, schedule)
    except NotFound as error:
        raise HttpProblem(404, str(error)) from error
    except Permanent as error:
        raise HttpProblem(422, str(error)) from error
    return json_answer(schedule_public(who.tenant, await _schedule(context, who, name)))


@router.post("/schedules/{name}/pause", response_model=ScheduleOut, responses=errors(404, 501, body=True))
async def pause_schedule(context: TheDesk, who: Submitter, name: str, body: ScheduleReasonIn) -> Response:
    """Start no more runs until it is resumed; active runs continue."""
    return await _pause(context, who, name, body.reason, paused=True)


@router.post("/schedules/{name}/resume", response_model=ScheduleOut, responses=errors(404, 501, body=True))
async def resume_schedule(context: TheDesk, who: Submitter, name: str, body: ScheduleReasonIn) -> Response:
    """Start runs again, from the next time on."""
    return await _pause(context, who, name, body.reason, paused=False)


async def _pause(context: RequestContext, who: Principal, name: str, reason: str, *, paused: bool) -> Response:
    stored = await _owned(context, who, name)
    what = "schedule.pause" if paused else "schedule.resume"
    await context.note(who, what, name, owner=stored.owner, why=reason)
    note = reason or f"{'paused' if paused else 'resumed'} by {who.subject}"
    await schedules_of(context).kept.pause_schedule(who.tenant, name, paused=paused, note=note)
    return json_answer(schedule_public(who.tenant, await _schedule(context, who, name)))


@router.post("/schedules/{name}/run", response_model=ScheduleOut, responses=errors(404, 501, body=True))
async def run_schedule(context: TheDesk, who: Submitter, name: str, body: ScheduleReasonIn) -> Response:
    """Start a run now, even if another one has not ended or the schedule is paused."""
    stored = await _owned(context, who, name)
    await context.note(who, "schedule.run", name, owner=stored.owner, why=body.reason)
    await schedules_of(context).kept.trigger_schedule(who.tenant, name)
    return json_answer(schedule_public(who.tenant, await _schedule(context, who, name)))


@router.delete("/schedules/{name}", response_model=ScheduleOut, responses=errors(404, 501))
async def delete_schedule(context: TheDesk, who: Submitter, name: str) -> Response:
    """Delete a schedule; its runs continue. Returns the deleted schedule."""
    stored = await _owned(context, who, name)
    await context.note(who, "schedule.delete", name, owner=stored.owner)
    await schedules_of(context).kept.delete_schedule(who.tenant, name)
    gone = stored._replace(schedule=replace(stored.schedule, paused=True), next=())
    return json_answer(schedule_public(who.tenant, gone))
