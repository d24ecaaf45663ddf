"""Routes for the inbox: that something in it has changed, and what people do to its groups, step by step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Path, Response
from pydantic import Field

from forestay.apps.server.flows.flow_routes import engine_of
from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.desk import Desk, Operator, TheDesk, Viewer
from forestay.apps.server.http.event_stream import EventStream, event
from forestay.apps.server.http.problems import Problem
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Model, NoNul, Reason
from forestay.apps.server.jobs.job_routes import json_answer
from forestay.domain.exceptions.incidents.inbox_act import Fate, Reach, Remedy, Target, Tried, why_not_yet
from forestay.domain.exceptions.incidents.incident import OWN_ENGINE
from forestay.domain.exlets.exlet import Exlet
from forestay.formats.jobs.job_public import time_text
from forestay.ports.errors import Conflict, NotFound, PortError
from forestay.ports.exceptions.incident_store import IncidentQuery
from forestay.ports.operations.identity import Principal
from forestay.services.exceptions.inbox.act_on_inbox import Act, ActOnInbox
from forestay.services.exceptions.inbox.list_inbox import STATES
from forestay.services.exceptions.raise_triggers import RaiseTriggers

router = Router(prefix="/v1/inbox", tags=["incidents"])
LOOK_EVERY = 2.0
ActName = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class ActIn(Model):
    cause: Annotated[str, Field(min_length=1, max_length=200)]
    owner: Annotated[str, Field(max_length=200)] = ""
    """Empty: whosever they are."""
    do: Remedy
    exlet: Annotated[str, Field(max_length=64)] = ""
    """The name of a kept exlet, if one is to be carried out."""
    reach: Reach
    """To how many: `one`, `ten`, `all` (500 in one act)."""
    after: Annotated[NoNul, Field(max_length=64)] = ""
    """The act before it, which must have gone well; of `ten` and `all`."""
    anyway: bool = False
    """Do it although the act before it did not go well, or there was none."""
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
    cause: str
    owner: str
    do: Literal["retry", "cancel", "exlet"]
    exlet: str
    reach: Literal["one", "ten", "all"]
    whole: bool
    """Nothing of the group was left when it was chosen."""
    well: int
    bad: int
    pending: int
    next: Literal["one", "ten", "all"] | None
    """What may be done now."""
    not_yet: str
    """Why not more, in words."""
    members: list[ActMemberOut]


def _service(desk: Desk) -> ActOnInbox:
    parts = desk.services.parts
    # Without incidents: those of an act are settled together, not one by one.
    steer = replace(desk.services.steer, incidents=None)
    return ActOnInbox(parts.incidents, parts.store, parts.slips, steer, parts.clock)


def _shown(act: Act, tried: Tried) -> dict[str, Any]:
    after = {Reach.ONE: Reach.TEN, Reach.TEN: Reach.ALL, Reach.ALL: Reach.ALL}[act.reach]
    why = why_not_yet(act.target, after, tried)
    return {
        "id": act.id,
        "by": act.by,
        "at": time_text(act.at),
        "why": act.why,
        "cause": act.target.cause,
        "owner": act.target.owner,
        "do": act.target.remedy.value,
        "exlet": act.target.exlet,
        "reach": act.reach.value,
        "whole": act.whole,
        "well": tried.count(Fate.WELL),
        "bad": tried.count(Fate.BAD),
        "pending": tried.count(Fate.PENDING),
        "next": None if why is not None or act.whole else after.value,
        "not_yet": why or "",
        "members": [
            {"incident": one.incident, "job": one.job, "fate": fate.value, "detail": one.refused}
            for one, fate in zip(act.members, tried.fates, strict=True)
        ],
    }


@router.post("/acts", status_code=201, response_model=ActOut, responses=errors(404, 409, body=True))
async def act_on_group(desk: TheDesk, who: Operator, body: ActIn) -> Response:
    """Do something to one of a group, to ten, or to all of it. More than one wants an act before it that went well; its reason is kept."""
    if bool(body.exlet) != (body.do is Remedy.EXLET):
        raise Problem(422, "name an exlet if one is to be carried out, and none otherwise")
    service, target = _service(desk), Target(body.cause, body.owner, body.do, body.exlet)
    exlet = (await desk.services.parts.exlets.get(who.tenant, body.exlet)).exlet if body.exlet else None
    if not body.anyway:
        before = await service.look(await service.get(who.tenant, body.after)) if body.after else None
        if (why := why_not_yet(target, body.reach, before)) is not None:
            raise Problem(409, why)
    chosen = await service.choose(who.tenant, target, body.reach)
    if not chosen.standings:
        raise Problem(409, "nothing of that kind waits for a person any more")
    name = desk.services.parts.ids.claim()
    touched: dict[str, Any] = {
        "incidents": [one.id for one in chosen.standings[:100]],
        "many": len(chosen.standings),
        "act": name,
    }
    on = f"{body.cause} of {body.owner or 'all'}"
    if body.anyway:
        touched["anyway"] = True
    await desk.note(who, f"inbox.{body.do.value}", on, why=body.reason, exlet=body.exlet, **touched)

    async def launch(incident: str) -> str:
        assert exlet is not None  # noqa: S101 - looked at above
        return await _launch(desk, who, incident, exlet)

    act = await service.act(
        who.tenant, name, target, body.reach, chosen, by=who.subject, why=body.reason, launch=launch
    )
    return json_answer(_shown(act, await service.look(act)), 201)


async def _launch(desk: Desk, who: Principal, incident: str, exlet: Exlet) -> str:
    parts = desk.services.parts
    found = (await parts.incidents.get_incidents([incident])).get(incident)
    if found is None:
        return "it is gone"
    problems = await parts.exlets.problems(who.tenant, exlet, found.kind)
    if problems:
        return str(problems[0].message)
    try:
        home = engine_of(desk) if found.engine == OWN_ENGINE else desk.services.engines
        await RaiseTriggers(parts.exceptions, home, parts.store, parts.clock).launch(found, exlet, by=who.subject)
    except (Conflict, NotFound) as error:
        return str(error)
    return ""


@router.get("/acts/{act}", response_model=ActOut, responses=errors(404))
async def read_act(desk: TheDesk, who: Viewer, act: ActName) -> Response:
    """An act, and what came of it until now."""
    service = _service(desk)
    found = await service.get(who.tenant, act)
    return json_answer(_shown(found, await service.look(found)))


@router.get("/changes", status_code=200, response_class=EventStream, responses=errors())
async def inbox_changes(desk: TheDesk, who: Viewer) -> Response:
    """Says when what waits has changed: an event `inbox` with how many wait, at once and at most every two seconds."""
    return EventStream(_changes(desk, who.tenant), desk.stopping)


async def _changes(desk: Desk, tenant: str) -> AsyncGenerator[bytes, None]:
    incidents = desk.services.parts.incidents
    told: tuple[int, int] | None = None
    quiet = 0
    while True:
        try:
            counts = await incidents.count(IncidentQuery(tenant, states=STATES), by="state")
            newest = await incidents.find(IncidentQuery(tenant), sort="-changed", limit=1)
            now = (sum(counts.values()), newest.found[0].standing.changed if newest.found else 0)
        except PortError:
            now = told or (0, 0)
        if now != told:
            told, quiet = now, 0
            yield event("inbox", {"waiting": now[0]})
        elif (quiet := quiet + 1) % 5 == 0:
            yield event("ping", {})
        await asyncio.sleep(LOOK_EVERY)
