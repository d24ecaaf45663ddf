"""Routes of the fleet page, one for each tab: sites with their history, pilots, hosts, caches; and change notifications."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any, Literal

from fastapi import Query, Response

from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.event_stream import EventStream, event
from forestay.apps.server.http.request_context import RequestContext, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.scheduling.routes import HostOut, host_told
from forestay.domain.pilots.pilot import Pilot, PilotState
from forestay.domain.pilots.presence import Presence, presence
from forestay.domain.scheduling.host_health import HostHealth, HostStatus
from forestay.formats.jobs.job_public import time_text
from forestay.ports.errors import PortError
from forestay.services.operations.usage_history import STEPS, HistorySpan
from forestay.services.pilots.input_counter import STEP, WAYS
from forestay.services.sites.fleet_view import FleetStatus
from forestay.services.sites.site_registry import Site

router = Router(prefix="/v1/fleet", tags=["watch"])
LOOK_EVERY = 3.0
MOST = 200
"""The most rows of a tab; the total is shown beside them."""
Few = Annotated[int, Query(ge=1, le=MOST)]
CLOSED_FIRST = (HostStatus.CLOSED, HostStatus.PROBING, HostStatus.OPEN)


class SiteFleetOut(Out):
    site: str
    agent: bool
    """Whether one of our agents manages it."""
    host: str
    seen: Time | None
    overdue: bool
    trouble: str
    batch: str
    max_pilots: int | None
    coming: int
    """Pilots requested from its batch system that have not registered."""
    busy: int
    idle: int
    silent: int
    draining: int
    slots: int
    running: int
    """Jobs."""
    cpus: int
    pilots_over: list[int]
    """Pilots at the end of each step."""
    slots_over: list[int]


class FleetOut(Out):
    at: Time
    since: Time
    step: int
    """Seconds."""
    starts: list[Time]
    sites: list[SiteFleetOut]
    hosts_open: int
    hosts_closed: int
    """Closed, or on trial."""
    whole: bool
    """All pilots were counted; otherwise the 10,000 that registered last."""


class FleetPilotOut(Out):
    id: str
    site: str
    host: str
    state: Literal["alive", "silent", "gone"]
    slots: int
    cpus: int
    running: int
    registered: Time
    changed: Time
    drain: str
    note: str


class FleetPilotsOut(Out):
    pilots: list[FleetPilotOut]
    total: int


class FleetHostOut(HostOut):
    pilots: int
    slots: int
    running: int
    ended: int
    """Jobs that ended there in the last hour."""
    faulted: int
    """Jobs whose last attempt failed there, and that wait for a decision."""


class FleetHostsOut(Out):
    hosts: list[FleetHostOut]
    """Those that get no jobs first."""
    total: int


class InputsOut(Out):
    cache: int
    """From the pilot's own cache."""
    neighbour: int
    """From another pilot of the host."""
    peer: int
    """From another host of the site."""
    element: int
    """From storage."""


class PilotCacheOut(Out):
    pilot: str
    host: str
    site: str
    files: int | None
    """Files in its cache; null if this server has no report on it."""
    inputs: InputsOut


class InputStepOut(Out):
    at: Time
    inputs: InputsOut


class FleetCachesOut(Out):
    since: Time
    """Counted by this server since then; other servers have their own counts."""
    step: int
    steps: list[InputStepOut]
    inputs: InputsOut
    pilots: list[PilotCacheOut]
    total: int


@router.get("", response_model=FleetOut, responses=errors())
async def fleet(context: TheDesk, who: Viewer, span: HistorySpan = HistorySpan.DAY) -> Response:
    """The tenant's sites, with how many pilots they have and had; up to 3 seconds old."""
    now = await context.services.fleet.look(who.tenant)
    step, steps = STEPS[span]
    since = (now.at // step - steps + 1) * step
    starts = [since + place * step for place in range(steps)]
    past = presence(now.pilots, [min(now.at, start + step) for start in starts])
    known = {site.name: site for site in now.sites}
    closed = sum(host.status is not HostStatus.OPEN for host in now.hosts.values())
    hosts = _hosts(now)
    return json_answer(
        {
            "at": time_text(now.at),
            "since": time_text(since),
            "step": step // 1000,
            "starts": [time_text(start) for start in starts],
            "sites": [
                _site(name, known.get(name), now, past.get(name) or Presence([0] * steps, [0] * steps, [0] * steps))
                for name in sorted({*known, *past})
            ],
            "hosts_open": len(hosts) - closed,
            "hosts_closed": closed,
            "whole": now.whole,
        }
    )


def _site(name: str, site: Site | None, now: FleetStatus, past: Presence) -> dict[str, Any]:
    here = [pilot for pilot in now.pilots if pilot.site == name]
    alive = [pilot for pilot in here if pilot.state is PilotState.ALIVE]
    busy = sum(now.running.get(pilot.id, 0) > 0 for pilot in alive)
    report: Mapping[str, Any] = site.report if site is not None else {}
    return {
        "site": name,
        "agent": site is not None,
        "host": site.host if site is not None else "",
        "seen": time_text(site.seen) if site is not None else None,
        "overdue": site is not None and site.overdue(now.at),
        "trouble": str(report.get("trouble") or ""),
        "batch": str(report.get("batch") or ""),
        "max_pilots": most if isinstance(most := report.get("max_pilots"), int) else None,
        "coming": now.coming.get(name, 0),
        "busy": busy,
        "idle": len(alive) - busy,
        "silent": sum(pilot.state is PilotState.SILENT for pilot in here),
        "draining": sum(bool(pilot.drain) for pilot in alive),
        "slots": sum(pilot.slots for pilot in alive),
        "running": sum(now.running.get(pilot.id, 0) for pilot in alive),
        "cpus": sum(pilot.resources.cpus for pilot in alive),
        "pilots_over": past.pilots,
        "slots_over": past.slots,
    }


@router.get("/pilots", response_model=FleetPilotsOut, responses=errors())
async def fleet_pilots(
    context: TheDesk,
    who: Viewer,
    state: Literal["alive", "silent", "gone"] | None = None,
    site: Annotated[str | None, Query(max_length=64)] = None,
    host: Annotated[str | None, Query(max_length=255)] = None,
    limit: Few = 100,
) -> Response:
    """Pilots, the newest first; without a state those that are not gone."""
    now = await context.services.fleet.look(who.tenant)
    pilots = [
        pilot
        for pilot in now.pilots
        if (pilot.state is not PilotState.GONE if state is None else pilot.state.value == state)
        and site in (None, pilot.site)
        and host in (None, pilot.host)
    ]
    return json_answer({"pilots": [_pilot(pilot, now) for pilot in pilots[:limit]], "total": len(pilots)})


def _pilot(pilot: Pilot, now: FleetStatus) -> dict[str, Any]:
    return {
        "id": pilot.id,
        "site": pilot.site,
        "host": pilot.host,
        "state": pilot.state.value,
        "slots": pilot.slots,
        "cpus": pilot.resources.cpus,
        "running": now.running.get(pilot.id, 0),
        "registered": time_text(pilot.registered),
        "changed": time_text(pilot.changed),
        "drain": pilot.drain,
        "note": pilot.note,
    }


def _hosts(now: FleetStatus) -> dict[str, HostHealth]:
    """The hosts with pilots, and those with a health record."""
    alive = {pilot.host for pilot in now.pilots if pilot.state is PilotState.ALIVE}
    return {host: HostHealth(host) for host in alive} | dict(now.hosts)


@router.get("/hosts", response_model=FleetHostsOut, responses=errors())
async def fleet_hosts(context: TheDesk, who: Viewer, limit: Few = 100) -> Response:
    """Hosts, those that get no jobs first, with why; and what they did in the last hour."""
    looks = context.services.fleet
    now = await looks.look(who.tenant)
    hosts = _hosts(now)
    ended = await looks.ended_by_host(who.tenant) if hosts else {}
    faulted = await looks.faulted_by_host(who.tenant) if hosts else {}
    pilots, slots, running = Counter[str](), Counter[str](), Counter[str]()
    for pilot in now.pilots:
        if pilot.state is PilotState.ALIVE:
            pilots[pilot.host] += 1
            slots[pilot.host] += pilot.slots
            running[pilot.host] += now.running.get(pilot.id, 0)
    first = sorted(
        hosts.values(), key=lambda health: (CLOSED_FIRST.index(health.status), -len(health.failures), health.host)
    )
    shown = [
        host_told(health, now.at)
        | {
            "pilots": pilots[health.host],
            "slots": slots[health.host],
            "running": running[health.host],
            "ended": ended.get(health.host, 0),
            "faulted": faulted.get(health.host, 0),
        }
        for health in first[:limit]
    ]
    return json_answer({"hosts": shown, "total": len(hosts)})


@router.get("/caches", response_model=FleetCachesOut, responses=errors())
async def fleet_caches(context: TheDesk, who: Viewer, limit: Few = 100) -> Response:
    """The sources from which pilots got the inputs of jobs, as reported to this server since its start; and the number of files in caches."""
    services = context.services
    counts = services.inputs.of(who.tenant)
    caches = {pilot: (host, site, files) for pilot, host, site, files in services.caches.sizes(who.tenant)}
    names = [*caches, *(pilot for pilot in reversed(counts.pilots) if pilot not in caches)]
    shown = []
    for pilot in names[:limit]:
        site, _ = context.places.get(pilot, ("", 0))
        host, site, files = caches.get(pilot) or (context.hosts.get(pilot, ""), site, None)
        inputs = _inputs(counts.pilots.get(pilot, {}))
        shown.append({"pilot": pilot, "host": host, "site": site, "files": files, "inputs": inputs})
    whole = Counter[str]()
    for other_pilot in counts.pilots.values():
        whole.update(other_pilot)
    return json_answer(
        {
            "since": time_text(services.inputs.since),
            "step": STEP // 1000,
            "steps": [{"at": time_text(at), "inputs": _inputs(step)} for at, step in counts.steps],
            "inputs": _inputs(whole),
            "pilots": shown,
            "total": len(names),
        }
    )


def _inputs(ways: Mapping[str, int]) -> dict[str, int]:
    return {way: ways.get(way, 0) for way in WAYS}


@router.get("/changes", status_code=200, response_class=EventStream, responses=errors())
async def fleet_changes(context: TheDesk, who: Viewer) -> Response:
    """Says when pilots have come, gone or changed what they do, or hosts were closed or opened: an event `fleet`, at once and at most every three seconds."""
    return EventStream(_changes(context, who.tenant), context.stopping)


async def _changes(context: RequestContext, tenant: str) -> AsyncGenerator[bytes, None]:
    last: object = None
    quiet = 0
    while True:
        try:
            now = await context.services.fleet.look(tenant)
            seen: object = (
                [(pilot.id, pilot.state, pilot.changed, now.running.get(pilot.id, 0)) for pilot in now.pilots],
                sorted(
                    (health.host, health.status, health.since, len(health.failures)) for health in now.hosts.values()
                ),
                [(site.name, site.overdue(now.at), site.report.get("trouble")) for site in now.sites],
                now.coming,
            )
        except PortError:
            seen = last or ()
        if seen != last:
            last, quiet = seen, 0
            yield event("fleet", {})
        elif (quiet := quiet + 1) % 4 == 0:
            yield event("ping", {})
        await asyncio.sleep(LOOK_EVERY)
