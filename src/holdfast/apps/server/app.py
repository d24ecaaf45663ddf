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

from holdfast.adapters.prometheus.metrics import Metrics
from holdfast.apps.server import (
    approval_routes,
    audit_routes,
    brake_routes,
    case_routes,
    conversation_routes,
    engine_routes,
    enrolment_routes,
    exlet_routes,
    file_routes,
    fleet_page_routes,
    fleet_routes,
    flow_routes,
    host_routes,
    inbox_routes,
    incident_routes,
    job_routes,
    login_routes,
    overview_routes,
    page_routes,
    peer_routes,
    peering_routes,
    pilot_routes,
    place_routes,
    problems,
    replay_routes,
    rule_check_routes,
    rule_routes,
    site_routes,
    soap_routes,
    tes_routes,
    trigger_routes,
    upload_routes,
    watch_routes,
    wes_routes,
)
from holdfast.apps.server.description import describe
from holdfast.apps.server.desk import Desk
from holdfast.apps.server.gate import Gate, prompt_protocol
from holdfast.apps.server.quick_beat import QuickBeat
from holdfast.apps.server.tls import certificate_kept, refuse_withdrawn, tls_options
from holdfast.apps.settings import Settings
from holdfast.apps.wiring.loops import run_loops, stop
from holdfast.apps.wiring.parts import make_parts
from holdfast.apps.wiring.server import ServerParts
from holdfast.ports.errors import Permanent

log = structlog.get_logger()


def make_app(services: ServerParts) -> FastAPI:
    """The application around one server's services; they run while it does."""
    metrics = Metrics(services.samples)
    desk = Desk(services, metrics, peers_for=services.caches.peers_for)

    @asynccontextmanager
    async def life(_app: FastAPI) -> AsyncIterator[None]:
        await services.parts.store.open()
        loops = asyncio.create_task(run_loops(services.loops()))
        try:
            yield
        finally:
            await stop(loops)
            await services.relays.close()
            with suppress(Exception):
                await services.parts.pilots.drop_sheets(services.name)
            await services.trying.close()
            await services.parts.store.close()

    app = FastAPI(
        title="Holdfast",
        version=version("holdfast"),
        description="Job documents that are never lost and never doubled.",
        license_info={"name": "Apache-2.0"},
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: f"{route.tags[0]}-{route.name}",
        lifespan=life,
    )
    app.state.desk = desk
    problems.install(app)
    app.include_router(job_routes.router)
    app.include_router(conversation_routes.router)
    app.include_router(conversation_routes.downstream_router)
    app.include_router(flow_routes.router)
    app.include_router(case_routes.router)
    app.include_router(trigger_routes.router)
    app.include_router(engine_routes.router)
    app.include_router(brake_routes.router)
    app.include_router(approval_routes.router)
    app.include_router(audit_routes.router)
    app.include_router(place_routes.router)
    app.include_router(incident_routes.router)
    app.include_router(inbox_routes.router)
    app.include_router(rule_routes.router)
    app.include_router(rule_check_routes.router)
    app.include_router(exlet_routes.router)
    app.include_router(replay_routes.router)
    app.include_router(enrolment_routes.router)
    app.include_router(fleet_routes.router)
    app.include_router(pilot_routes.router)
    app.include_router(host_routes.router)
    app.include_router(site_routes.router)
    app.include_router(peer_routes.router)
    app.include_router(peering_routes.router)
    app.include_router(upload_routes.router)
    app.include_router(file_routes.router)
    app.include_router(watch_routes.router)
    app.include_router(overview_routes.router)
    app.include_router(fleet_page_routes.router)
    app.include_router(wes_routes.router)
    app.include_router(soap_routes.router)
    for router in tes_routes.routers:
        app.include_router(router)
    app.include_router(page_routes.api)
    app.include_router(page_routes.router)
    app.include_router(login_routes.router)
    describe(app)
    app.add_middleware(Gate, settings=services.parts.settings, metrics=metrics)
    app.state.beats = QuickBeat(desk, metrics)
    return app


class HttpServer(uvicorn.Server):
    """Tells the open streams when it stops, so that a pilot's channel closed by us is not taken for its death."""

    async def shutdown(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        app = self.config.app
        assert isinstance(app, FastAPI)  # noqa: S101 - we made it
        app.state.desk.stopping.set()
        app.state.desk.services.claims.dismiss()
        await super().shutdown(sockets)  # type: ignore[arg-type]


def server_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """How the application is served."""
    config = uvicorn.Config(
        app,
        host=settings.listen,
        port=settings.port,
        loop="none",
        http=prompt_protocol(settings.head_seconds, app.state.beats),
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
    """The socket to serve on; `Permanent` says what to do when it cannot be had."""
    family = socket.AF_INET6 if ":" in settings.listen else socket.AF_INET
    own = socket.socket(family)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        own.bind((settings.listen, settings.port))
    except OSError as error:
        own.close()
        why = error.strerror or "it cannot be used"
        raise Permanent(f"{settings.listen}:{settings.port}: {why}; give another with --port") from error
    return own


async def serve(settings: Settings) -> None:
    """Run one server until it is told to stop."""
    own = listening(settings)
    services = ServerParts(make_parts(settings))
    server = HttpServer(server_config(make_app(services), settings))
    log.info("server", name=services.name, url=settings.public_url, store=settings.store_url.split(":", 1)[0])
    async with certificate_kept(server.config, settings):
        await server.serve(sockets=[own])
    if not server.started:
        raise SystemExit(6)
