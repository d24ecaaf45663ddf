"""Routes for the operators of pilots: list them and what they run, and drain them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from forestay.apps.server.http.answers import NothingOut, errors
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import Operator, RequestContext, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.pilots.pilot_answers import DrainedOut, PilotsOut
from forestay.apps.server.pilots.schemas import DrainIn, RevokeIn
from forestay.domain.jobs.job_document import State
from forestay.domain.pilots.pilot import Pilot, PilotState
from forestay.formats.jobs.job_json import Json
from forestay.formats.jobs.job_public import time_text
from forestay.formats.jobs.pilot_json import pilot_to_json
from forestay.ports.jobs.job_store import JobQuery
from forestay.services.pilots.pilot_drain import PilotSelection
from forestay.services.sites.fleet_view import MOST_PILOTS

router = Router(tags=["watch"])


@router.get("/v1/pilots", response_model=PilotsOut, responses=errors())
async def pilots(context: TheDesk, who: Viewer, state: Annotated[str | None, Query(max_length=20)] = None) -> Response:
    """The pilots of the tenant, newest first, with what they do; and those that have not begun to run."""
    parts = context.services.components
    pilots = await parts.pilots.find_pilots(tenant=who.tenant, state=state, limit=MOST_PILOTS)
    running = JobQuery(tenant=who.tenant, states=frozenset({State.RUNNING}))
    held = await parts.store.count(running, by="pilot") if pilots else {}
    inactive = await _inactive(context, who.tenant) if state in (None, "inactive") else []
    shown = [_shown(pilot, held.get(pilot.id, 0)) for pilot in pilots]
    return json_answer({"pilots": shown, "whole": len(pilots) < MOST_PILOTS, "inactive": inactive})


def _shown(pilot: Pilot, claims: int) -> Json:
    alive = pilot.state is PilotState.ALIVE
    return pilot_to_json(pilot) | {
        "registered": time_text(pilot.registered),
        "changed": time_text(pilot.changed),
        "activity": ("busy" if claims else "idle") if alive else None,
        "claims": claims,
    }


async def _inactive(context: RequestContext, tenant: str) -> list[Json]:
    """The launches whose pilots have not registered: they wait in the queue of their batch system, or are just starting."""
    services = context.services
    return [
        {
            "launch": launch.id,
            "site": launch.site,
            "state": launch.state.value,
            "batch_job": launch.batch_job,
            "planned": time_text(launch.planned),
        }
        for site in await services.sites.all(tenant)
        for launch in await services.launches.open(tenant, site.name)
        if not launch.pilot
    ]


@router.post("/v1/pilots/drain", response_model=DrainedOut, responses=errors(404, body=True))
async def drain(context: TheDesk, who: Operator, body: DrainIn) -> Response:
    """Drain pilots: they take no more jobs, finish those that they run, and exit."""
    if not (body.pilots or body.site or body.host):
        raise HttpProblem(422, "select pilots by name, site or host")
    drains = context.services.drains
    chosen = await drains.choose(who.tenant, PilotSelection(tuple(body.pilots), body.site, body.host))
    missing = sorted({*body.pilots} - {pilot.id for pilot in chosen})
    if missing:
        raise HttpProblem(404, f"no such live pilot: {', '.join(missing)[:500]}")
    names = [pilot.id for pilot in chosen]
    if names:
        which = names[0] if len(names) == 1 else f"{len(names)} pilots"
        await context.note(who, "drain", which, why=body.reason, pilots=names[:100], site=body.site, host=body.host)
        await drains.drain(chosen, by=who.subject, reason=body.reason)
        context.services.fleet.changed(who.tenant)
    return json_answer({"pilots": names})


@router.post("/v1/pilots/{pilot}/revoke", response_model=NothingOut, responses=errors(404, body=True))
async def revoke(context: TheDesk, who: Operator, pilot: str, body: RevokeIn) -> Response:
    """Revoke a pilot: from then on it is refused everywhere, and its jobs run again when its lease has ended."""
    known = await context.services.components.pilots.get_pilot(pilot) if len(pilot) <= 64 else None
    if known is None or known.pilot.tenant != who.tenant:
        raise HttpProblem(404, f"there is no pilot {pilot[:64]}")
    await context.note(who, "revoke", pilot, why=body.reason, host=known.pilot.host, site=known.pilot.site)
    await context.services.revocations.revoke(known.pilot, by=who.subject, reason=body.reason)
    context.services.fleet.changed(who.tenant)
    return json_answer({})
