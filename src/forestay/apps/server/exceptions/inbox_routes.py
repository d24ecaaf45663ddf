"""Routes of the inbox: change notifications, and people's actions on its groups, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Path, Response
from pydantic import Field

from forestay.apps.server.flows.flow_routes import engine_of
from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.event_stream import EventStream, event
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import Operator, RequestContext, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Model, NoNul, Reason
from forestay.domain.exceptions.incidents.inbox_action import (
    InboxOutcome,
    InboxRemedy,
    InboxTarget,
    Reach,
    TriedAction,
    why_not_yet,
)
from forestay.domain.exceptions.incidents.incident import OWN_ENGINE
from forestay.domain.playbooks.playbook import Playbook
from forestay.formats.jobs.job_public import time_text
from forestay.ports.errors import Conflict, NotFound, PortError
from forestay.ports.exceptions.incident_store import IncidentQuery
from forestay.ports.operations.identity import Principal
from forestay.services.exceptions.inbox.inbox_actions import InboxAction, InboxActions
from forestay.services.exceptions.triggers import Triggers

router = Router(prefix="/v1/inbox", tags=["incidents"])
LOOK_EVERY = 2.0
ActName = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class ActIn(Model):
    fingerprint: Annotated[str, Field(max_length=64)] = ""
    """Their error; empty: any error."""
    cause: Annotated[str, Field(max_length=200)] = ""
    """Empty: any cause; then `fingerprint` is required."""
    owner: Annotated[str, Field(max_length=200)] = ""
    """Empty: any owner."""
    do: InboxRemedy
    playbook: Annotated[str, Field(max_length=64)] = ""
    """The name of a stored playbook, if one is to be carried out."""
    reach: Reach
    """How many: `one`, `ten`, `all` (500 in one action)."""
    after: Annotated[NoNul, Field(max_length=64)] = ""
    """For `ten` and `all`: the previous action, which must have succeeded."""
    anyway: bool = False
    """Do it although the previous action did not succeed, or there was none."""
    reason: Reason = Field(min_length=1)


class ActMemberOut(Out):
    incident: str
    job: str
    fate: Literal["pending", "well", "bad"]
    detail: str


class ActOut(Out):
    id: str
    by: str
    at: Time
    why: str
    fingerprint: str
    cause: str
    owner: str
    do: Literal["retry", "cancel", "playbook"]
    playbook: str
    reach: Literal["one", "ten", "all"]
    whole: bool
    """The action covered the whole rest of the group."""
    well: int
    bad: int
    pending: int
    next: Literal["one", "ten", "all"] | None
    """The reach that is permitted now."""
    not_yet: str
    """Why no larger reach is permitted, in words."""
    members: list[ActMemberOut]


def _service(context: RequestContext) -> InboxActions:
    parts = context.services.components
    # Without incidents: those of an action are settled together, not one by one.
    steer = replace(context.services.steer, incidents=None)
    return InboxActions(parts.incidents, parts.store, parts.documents, steer, parts.clock)


def _shown(act: InboxAction, tried: TriedAction) -> dict[str, Any]:
    after = {Reach.ONE: Reach.TEN, Reach.TEN: Reach.ALL, Reach.ALL: Reach.ALL}[act.reach]
    why = why_not_yet(act.target, after, tried)
    return {
        "id": act.id,
        "by": act.by,
        "at": time_text(act.at),
        "why": act.why,
        "fingerprint": act.target.fingerprint,
        "cause": act.target.cause,
        "owner": act.target.owner,
        "do": act.target.remedy.value,
        "playbook": act.target.playbook,
        "reach": act.reach.value,
        "whole": act.whole,
        "well": tried.count(InboxOutcome.WELL),
        "bad": tried.count(InboxOutcome.BAD),
        "pending": tried.count(InboxOutcome.PENDING),
        "next": None if why is not None or act.whole else after.value,
        "not_yet": why or "",
        "members": [
            {"incident": member.incident, "job": member.job, "fate": fate.value, "detail": member.refused}
            for member, fate in zip(act.members, tried.fates, strict=True)
        ],
    }


@router.post("/acts", status_code=201, response_model=ActOut, responses=errors(404, 409, 501, body=True))
async def act_on_group(context: TheDesk, who: Operator, body: ActIn) -> Response:
    """Act on one failure of a group, on ten, or on all. More than one requires a previous action that succeeded; the reason is recorded."""
    if bool(body.playbook) != (body.do is InboxRemedy.PLAYBOOK):
        raise HttpProblem(422, "`playbook` is required for `do: playbook` and not allowed otherwise")
    if not (body.fingerprint or body.cause):
        raise HttpProblem(422, "name the failures by `fingerprint` or by `cause`")
    service = _service(context)
    target = InboxTarget(body.cause, body.owner, body.do, body.playbook, body.fingerprint)
    playbook = (
        (await context.services.components.playbooks.get(who.tenant, body.playbook)).playbook if body.playbook else None
    )
    if not body.anyway:
        before = await service.look(await service.get(who.tenant, body.after)) if body.after else None
        if (why := why_not_yet(target, body.reach, before)) is not None:
            raise HttpProblem(409, why)
    chosen = await service.choose(who.tenant, target, body.reach)
    if not chosen.statuses:
        raise HttpProblem(409, "no failure of this kind needs attention any more")
    name = context.services.components.ids.claim()
    touched: dict[str, Any] = {
        "incidents": [status.id for status in chosen.statuses[:100]],
        "many": len(chosen.statuses),
        "act": name,
    }
    many = len(chosen.statuses)
    about = body.cause
    if body.fingerprint:
        about = chosen.statuses[0].title
        touched["fingerprint"] = body.fingerprint
        touched["title"] = about
    on = f"{many} {'failure' if many == 1 else 'failures'} of {body.owner or 'all'}: {about}"
    if body.anyway:
        touched["anyway"] = True
    await context.note(who, f"inbox.{body.do.value}", on, why=body.reason, playbook=body.playbook, **touched)

    async def launch(incident: str) -> str:
        assert playbook is not None  # noqa: S101 - looked at above
        return await _launch(context, who, incident, playbook)

    act = await service.act(
        who.tenant, name, target, body.reach, chosen, by=who.subject, why=body.reason, launch=launch
    )
    if refused := [member for member in act.members if member.refused]:
        await context.note_refusal(
            who, f"inbox.{body.do.value}", on, f"{len(refused)} of {many} were refused: {refused[0].refused}",
            incidents=[member.incident for member in refused[:100]], many=len(refused), act=name,
        )  # fmt: skip
    return json_answer(_shown(act, await service.look(act)), 201)


async def _launch(context: RequestContext, who: Principal, incident: str, playbook: Playbook) -> str:
    parts = context.services.components
    found_incident = (await parts.incidents.get_incidents([incident])).get(incident)
    if found_incident is None:
        return "it no longer exists"
    problems = await parts.playbooks.problems(who.tenant, playbook, found_incident.kind)
    if problems:
        return str(problems[0].message)
    try:
        home = engine_of(context) if found_incident.engine == OWN_ENGINE else context.services.engines
        await Triggers(parts.pipeline, home, parts.store, parts.clock).launch(found_incident, playbook, by=who.subject)
    except (Conflict, NotFound) as error:
        return str(error)
    return ""


@router.get("/acts/{act}", response_model=ActOut, responses=errors(404))
async def read_act(context: TheDesk, who: Viewer, act: ActName) -> Response:
    """An action, and its outcome so far."""
    service = _service(context)
    action = await service.get(who.tenant, act)
    return json_answer(_shown(action, await service.look(action)))


@router.get("/changes", status_code=200, response_class=EventStream, responses=errors())
async def inbox_changes(context: TheDesk, who: Viewer) -> Response:
    """Reports changes of the inbox: an event `inbox` with the number of failures that wait for a person (without snoozed ones) and the site's notice to everybody who has a page open, at once and at most every two seconds."""
    return EventStream(_changes(context, who.tenant), context.stopping)


async def _changes(context: RequestContext, tenant: str) -> AsyncGenerator[bytes, None]:
    incidents = context.services.components.incidents
    last: tuple[int, int, str] | None = None
    quiet = 0
    while True:
        try:
            waiting = await context.services.inbox.count(tenant)
            newest = await incidents.find(IncidentQuery(tenant), sort="-changed", limit=1)
            inbox = (waiting, newest.statuses[0].status.changed if newest.statuses else 0)
        except PortError:
            inbox = last[:2] if last is not None else (0, 0)
        now = (*inbox, await context.notice.text())
        if now != last:
            last, quiet = now, 0
            yield event("inbox", {"waiting": now[0], "notice": now[2]})
        elif (quiet := quiet + 1) % 5 == 0:
            yield event("ping", {})
        await asyncio.sleep(LOOK_EVERY)
