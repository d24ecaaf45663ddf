"""Routes for monitoring: events, pilots, alerts, status, metrics, and the interface's own description."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from importlib.metadata import version
from typing import Annotated

from fastapi import Header, Query, Request, Response
from starlette.responses import PlainTextResponse

from forestay.adapters.prometheus.metrics import CONTENT_TYPE
from forestay.apps.server.description import filters
from forestay.apps.server.http.answers import errors
from forestay.apps.server.http.event_stream import EventStream, event
from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import RequestContext, TheDesk, Viewer, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.jobs.job_filters import job_query, wanted
from forestay.apps.server.operations.watch_answers import AlertsOut, StatusOut
from forestay.domain.jobs.hash_slots import own_hash_slots
from forestay.formats.jobs.job_public import job_public, time_text, transition_public
from forestay.ports.jobs.job_store import JobQuery
from forestay.services.jobs.job_events import EventCursor, JobEvent

router = Router(tags=["watch"])
PING = 10.0


@router.get("/v1/events", status_code=200, response_class=EventStream, responses=errors(400), openapi_extra=filters())
async def events(
    request: Request, context: TheDesk, who: Viewer, last_event_id: Annotated[str | None, Header(max_length=200)] = None
) -> Response:
    """Every transition of the jobs that a search would find, from now on or from the last event that was read."""
    query = job_query(request.query_params, who.tenant)
    try:
        mark = EventCursor.read(last_event_id) if last_event_id else None
    except ValueError:
        raise HttpProblem(400, "Last-Event-ID is not a valid event id") from None
    return EventStream(_events(context, query, who.tenant, mark), context.stopping)


async def _events(
    context: RequestContext, query: JobQuery, tenant: str, mark: EventCursor | None
) -> AsyncGenerator[bytes, None]:
    follow = context.services.job_events
    fits = wanted(query)
    async with follow.listen(tenant, fits) as listener:
        yield event("open", {})
        again: set[tuple[str, int]] = set()
        if mark is not None:
            if follow.too_old(mark):
                yield event("lost", {"detail": "the last event is more than an hour old; search for earlier changes"})
            async for missed in follow.missed(mark, replace(query, tenant=tenant)):
                if fits(missed.document):
                    again.add((missed.document.id, missed.line.rev))
                    yield _told(missed)
        while True:
            try:
                async with asyncio.timeout(PING):
                    news = await listener.queue.get()
            except TimeoutError:
                yield event("ping", {})
                continue
            if news is None:
                yield event("lost", {"detail": "events arrived faster than they were read; search, then reconnect"})
                return
            if (news.document.id, news.line.rev) not in again:
                yield _told(news)


def _told(news: JobEvent) -> bytes:
    body = {"job": job_public(news.document), "transition": transition_public(news.line)}
    return event("job", body, number=str(EventCursor(news.line.at, news.document.id, news.line.rev)))


@router.get("/v1/alerts", response_model=AlertsOut, responses=errors())
async def alerts(context: TheDesk, who: Viewer, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
    """Alerts for people, the newest first."""
    store = context.services.components.store
    records = [
        *await store.find_records(kind="alert", tenant=who.tenant, newest_first=True, limit=limit),
        *await store.find_records(kind="alert", tenant="", newest_first=True, limit=limit),
    ]
    records.sort(key=lambda record: -record.at)
    shown = [
        {"id": record.id, "at": time_text(record.at), "job": record.job or None, **record.body}
        for record in records[:limit]
    ]
    return json_answer({"alerts": shown})


@router.get("/v1/status", response_model=StatusOut, responses=errors())
async def status(context: TheDesk, who: Viewer) -> Response:
    """The state of the domain, as this server sees it."""
    services = context.services
    counts = await context.open_jobs.get(who.tenant, lambda: services.usage_history.open_jobs(who.tenant))
    alive = services.heartbeats.alive
    return json_answer(
        {
            "version": version("forestay"),
            "you": {"subject": who.subject, "tenant": who.tenant, "roles": sorted(who.roles)},
            "server": services.name,
            "servers": [
                {"name": name, "url": url, "slots": len(own_hash_slots(name, alive))}
                for name, url in sorted(alive.items())
            ],
            "store": services.components.settings.store_url.split(":", 1)[0],
            "lease": services.components.settings.lease,
            "slots_served": services.claims.buffers.slots_served,
            "requests_waiting": services.claims.waiting,
            "channels": services.channels.open_count,
            "jobs": dict(counts),
        }
    )


@router.get("/metrics", response_class=PlainTextResponse, responses=errors())
async def metrics(context: TheDesk, _who: Viewer) -> Response:
    """The metrics of this server, for Prometheus."""
    return Response(context.metrics.text(), media_type=CONTENT_TYPE)


@router.get("/openapi.json", include_in_schema=False, responses=errors())
async def openapi(request: Request, _who: Viewer) -> Response:
    """This interface, described."""
    return json_answer(request.app.openapi())
