"""The metrics endpoint for Prometheus of a process that has no other HTTP interface."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from forestay.adapters.prometheus.metrics import CONTENT_TYPE, Metrics
from forestay.apps.uvicorn_signals import UvicornWithoutSignals
from forestay.ports.errors import Permanent, Transient
from forestay.ports.operations.identity import BadToken, Role
from forestay.services.operations.authenticator import Authenticator


@asynccontextmanager
async def metrics_endpoint(metrics: Metrics, callers: Authenticator, *, listen: str, port: int) -> AsyncIterator[None]:
    """Serves metrics to viewers, with a token of ours or of the identity provider, while the context is open; without a port there is no endpoint. `Permanent` if the port is not available."""
    if not port:
        yield
        return

    async def show(request: Request) -> Response:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        try:
            who = await callers.verify(token) if scheme.lower() == "bearer" else None
        except BadToken:
            who = None
        except Transient as error:  # the identity provider was never reached
            return PlainTextResponse(f"{error}\n", 503)
        if who is None:
            return PlainTextResponse("a viewer's token is required: Authorization: Bearer <token>\n", 401)
        if not who.may(Role.VIEWER):
            return PlainTextResponse("the role viewer is required\n", 403)
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    app = Starlette(routes=[Route("/metrics", show, methods=["GET"])])
    config = uvicorn.Config(
        app, host=listen, port=port, loop="none", lifespan="off", log_config=None, access_log=False, server_header=False,
        timeout_keep_alive=75, timeout_graceful_shutdown=1,
    )  # fmt: skip
    door = UvicornWithoutSignals(config)
    serving = asyncio.create_task(door.serve())
    while not door.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.02)
    if not door.started:
        raise Permanent(f"{listen}:{port}: the port for metrics is not available; set another metrics_port")
    try:
        yield
    finally:
        door.should_exit = True
        await serving
