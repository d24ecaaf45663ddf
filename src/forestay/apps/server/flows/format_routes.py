"""Routes of the flow formats that packages add."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Response

from forestay.apps.flow_formats import InstalledFormats
from forestay.apps.server.http.answers import errors
from forestay.apps.server.http.request_context import Submitter
from forestay.apps.server.http.router import Router
from forestay.domain.flows.definition.flow_format import PACKAGES
from forestay.ports.flows.flow_format import NotInstalled


def routers(formats: InstalledFormats) -> Iterator[Router]:
    """The routers of installed packages; for each missing one a router that says what to install."""
    for name in PACKAGES:
        try:
            yield from formats.get(name).routers()
        except NotInstalled as error:
            yield _refusing(name, error)


def _refusing(name: str, error: NotInstalled) -> Router:
    router = Router(prefix="/v1", tags=["runs"])

    @router.post(f"/flows/{name}", include_in_schema=False, responses=errors(400))
    async def refuse(who: Submitter) -> Response:
        raise error

    return router
