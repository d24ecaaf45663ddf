"""Routes for hosts: which of them get jobs and why not, and closing and opening one by hand."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Response
from pydantic import Field

from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.request_context import Operator, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import Model, Name, Reason
from forestay.domain.scheduling.host_health import HostHealth, explained
from forestay.formats.jobs.job_json import Json
from forestay.formats.jobs.job_public import time_text

router = Router(prefix="/v1/hosts", tags=["hosts"])
HostName = Annotated[Name, Path(description="As its pilots report it.")]


class HostOut(Out):
    host: str
    status: Literal["open", "closed", "probing"]
    words: str
    """Its state in words."""
    failures: int
    """Jobs that failed fast there since the last success."""
    causes: list[str]
    since: Time | None
    until: Time | None
    probe_at: Time | None
    by: str
    reason: str


class HostsOut(Out):
    hosts: list[HostOut]


class CloseHostIn(Model):
    reason: Annotated[Reason, Field(min_length=1)]
    seconds: int | None = Field(default=None, ge=1, le=31_536_000)
    """For how long; default: until it is opened."""


class OpenHostIn(Model):
    reason: Annotated[Reason, Field(min_length=1)]


@router.get("", response_model=HostsOut, responses=errors())
async def hosts(context: TheDesk, who: Viewer) -> Response:
    """The hosts that request jobs, and those that get none, with the reason."""
    healths = await context.services.hosts.all(who.tenant)
    now = context.services.components.clock.now()
    work_words = context.services.hosts.said_of_work
    return json_answer(
        {"hosts": [host_told(healths[name], now, work_words(who.tenant, name)) for name in sorted(healths)]}
    )


@router.post("/{host}/close", response_model=HostOut, responses=errors(body=True))
async def close(context: TheDesk, who: Operator, host: HostName, body: CloseHostIn) -> Response:
    """Close a host: it gets no more jobs. Running jobs continue."""
    await context.note(who, "close host", host, why=body.reason)
    closed = await context.services.hosts.close(
        who.tenant, host, by=who.subject, reason=body.reason, seconds=body.seconds
    )
    context.services.fleet.changed(who.tenant)
    return json_answer(host_told(closed, context.services.components.clock.now()))


@router.post("/{host}/open", response_model=HostOut, responses=errors(body=True))
async def open_(context: TheDesk, who: Operator, host: HostName, body: OpenHostIn) -> Response:
    """Open a host, whoever closed it; its failures are cleared."""
    await context.note(who, "open host", host, why=body.reason)
    opened = await context.services.hosts.open(who.tenant, host)
    context.services.fleet.changed(who.tenant)
    return json_answer(host_told(opened, context.services.components.clock.now()))


def host_told(health: HostHealth, now: int, work: str = "") -> Json:
    return {
        "host": health.host,
        "status": health.status.value,
        "words": explained(health, now) + (f"; {work}" if work else ""),
        "failures": len(health.failures),
        "causes": sorted({each.cause for each in health.failures if each.cause}),
        "since": time_text(health.since) if health.since else None,
        "until": time_text(health.until) if health.until else None,
        "probe_at": time_text(health.probe_at) if health.probe_at else None,
        "by": health.by,
        "reason": health.reason,
    }
