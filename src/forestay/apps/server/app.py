"""The HTTP interface as one application, and how it is served."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version

import structlog
import uvicorn
from fastapi import FastAPI

from forestay.adapters.prometheus.metrics import Metrics
from forestay.apps.compose.components import make_components
from forestay.apps.compose.loops import run_loops, stop
from forestay.apps.compose.server import ServerComponents
from forestay.apps.config.settings import Settings
from forestay.apps.server.data import file_routes, upload_routes
from forestay.apps.server.description import describe
from forestay.apps.server.exceptions import (
    approval_routes,
    audit_routes,
    engine_routes,
    error_routes,
    inbox_routes,
    incident_routes,
    safeguard_routes,
    teach_routes,
    trigger_routes,
)
from forestay.apps.server.flows import (
    compensation_routes,
    dry_run_routes,
    event_routes,
    flow_routes,
    format_routes,
    question_routes,
    run_routes,
    schedule_routes,
)
from forestay.apps.server.http import problems
from forestay.apps.server.http.caller_limits import CallerLimits
from forestay.apps.server.http.request_context import RequestContext
from forestay.apps.server.http.request_limits import RequestLimits, bounded_http_protocol
from forestay.apps.server.http.router import add_routes
from forestay.apps.server.http.tls import certificate_kept, refuse_withdrawn, tls_options
from forestay.apps.server.insertion import conversation_routes, tes_routes, wes_routes
from forestay.apps.server.jobs import job_routes
from forestay.apps.server.operations import login_routes, overview_routes, size_routes, watch_routes
from forestay.apps.server.pages import fleet_page_routes, page_routes
from forestay.apps.server.pages.site_notice import SiteNotice
from forestay.apps.server.peers import peer_routes, peering_routes
from forestay.apps.server.pilots import checkpoint_routes, enrolment_routes, fleet_routes, pilot_routes
from forestay.apps.server.rules import late_bound_routes, playbook_routes, replay_routes, rule_check_routes, rule_routes
from forestay.apps.server.scheduling import licence_routes, quota_routes
from forestay.apps.server.scheduling import routes as host_routes
from forestay.apps.server.sites import routes as site_routes
from forestay.ports.errors import Permanent
from forestay.services.shared.coalescing_cache import CoalescingCache

log = structlog.get_logger()
COUNTS_FRESH = 3.0
"""Seconds for which the counts of a status are cached."""
ROUTERS = (
    pilot_routes.router,
    job_routes.router,
    conversation_routes.router,
    conversation_routes.downstream_router,
    flow_routes.router,
    dry_run_routes.router,
    run_routes.router,
    question_routes.router,
    compensation_routes.router,
    schedule_routes.router,
    event_routes.router,
    trigger_routes.router,
    engine_routes.router,
    safeguard_routes.router,
    approval_routes.router,
    audit_routes.router,
    late_bound_routes.router,
    incident_routes.router,
    inbox_routes.router,
    error_routes.router,
    teach_routes.router,
    rule_routes.router,
    rule_check_routes.router,
    playbook_routes.router,
    replay_routes.router,
    enrolment_routes.router,
    fleet_routes.router,
    host_routes.router,
    licence_routes.router,
    quota_routes.router,
    site_routes.router,
    peer_routes.router,
    peering_routes.router,
    upload_routes.router,
    checkpoint_routes.router,
    file_routes.router,
    watch_routes.router,
    overview_routes.router,
    size_routes.router,
    fleet_page_routes.router,
    wes_routes.router,
    *tes_routes.routers,
    page_routes.api,
    page_routes.router,
    login_routes.router,
)
"""Routes are tried in this order, and the first that matches answers; pilots send most requests, so theirs come first."""


def make_app(services: ServerComponents) -> FastAPI:
    """The application with one server's services, which run while it does."""
    metrics = Metrics(services.samples)
    settings = services.components.settings
    callers = CallerLimits(settings.caller_streams, settings.caller_bytes, settings.caller_requests)
    counted = CoalescingCache[str, dict[str, int]](services.components.clock, COUNTS_FRESH)
    notice = SiteNotice(settings.notice, services.components.clock)
    context = RequestContext(services, metrics, callers, counted, notice, peers_for=services.caches.peers_for)

    @asynccontextmanager
    async def life(_app: FastAPI) -> AsyncIterator[None]:
        await services.components.store.open()
        loops = asyncio.create_task(run_loops(services.loops()))
        try:
            yield
        finally:
            await stop(loops)
            await services.relays.close()
            with suppress(Exception):
                await services.components.pilots.drop_heartbeat_pages(services.name)
            await services.trying.close()
            await services.components.store.close()

    app = FastAPI(
        title="Forestay",
        version=version("forestay"),
        description="Jobs that are never lost and outputs that never appear twice.",
        license_info={"name": "Apache-2.0"},
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=life,
    )
    app.state.context = context
    problems.install(app)
    add_routes(app, [*ROUTERS, *format_routes.routers(services.components.formats)])
    describe(app)
    app.add_middleware(RequestLimits, settings=settings, metrics=metrics)
    return app


class HttpServer(uvicorn.Server):
    """Notifies open streams when it stops, so that a pilot whose channel is closed by us is not taken for dead."""

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        app = self.config.app
        assert isinstance(app, FastAPI)  # noqa: S101 - we made it
        app.state.context.stopping.set()
        app.state.context.services.claims.dismiss()
        await super().shutdown(sockets)  # type: ignore[arg-type]


def server_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """The configuration of uvicorn."""
    config = uvicorn.Config(
        app,
        host=settings.listen,
        port=settings.port,
        loop="none",
        http=bounded_http_protocol(settings.head_seconds),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=5,
        **tls_options(settings),
    )
    refuse_withdrawn(config, settings)
    return config


def listening(settings: Settings) -> socket.socket:
    """The socket to serve on; `Permanent` says what to do if it is not available."""
    family = socket.AF_INET6 if ":" in settings.listen else socket.AF_INET
    own = socket.socket(family)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        own.bind((settings.listen, settings.port))
    except OSError as error:
        own.close()
        why = error.strerror or "it cannot be used"
        raise Permanent(f"{settings.listen}:{settings.port}: {why}; choose another with --port") from error
    return own


async def serve(settings: Settings) -> None:
    """Run one server until it is told to stop."""
    own = listening(settings)
    services = ServerComponents(make_components(settings))
    server = HttpServer(server_config(make_app(services), settings))
    log.info("server", name=services.name, url=settings.public_url, store=settings.store_url.split(":", 1)[0])
    async with certificate_kept(server.config, settings):
        await server.serve(sockets=[own])
    if not server.started:
        raise SystemExit(6)
