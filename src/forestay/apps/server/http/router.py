"""Routes of the HTTP interface, each of which FastAPI analyses when it is first needed.

FastAPI analyses a route when it is declared: it reads the signature, builds a validator for each parameter and the
schema of the response. For all routes that takes more processor time than the rest of the start of a server, of which
only a few are then used. FastAPI would do it a second time for routes of an included router.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from enum import Enum
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from forestay.apps.server.http.json_bodies import JsonRequest


class Route(APIRoute):
    """A route that is analysed when it answers its first request, or is described; matching a path does not need the analysis."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.path, self.endpoint = path, endpoint
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.methods = set(options["methods"] or ["GET"])
        self._options: dict[str, Any] = options

    def __getattr__(self, name: str) -> Any:
        """Called for attributes that the analysis sets, before it was done."""
        if name.startswith("__") or "_options" not in self.__dict__:
            raise AttributeError(f"a route has no attribute {name}")
        super().__init__(self.path, self.endpoint, **self.__dict__.pop("_options"))
        return getattr(self, name)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's own handler, with bodies of bounded shape that are parsed in slices."""
        handler = super().get_route_handler()
        annotation = self.body_field.field_info.annotation if self.body_field is not None else None
        model = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None

        async def handle(request: Request) -> Response:
            bounded = JsonRequest(request.scope, request.receive, request._send)  # noqa: SLF001 - as FastAPI describes it
            bounded.model = model
            return await handler(bounded)

        return handle


class Router(APIRouter):
    """The routes of one module."""

    def __init__(self, prefix: str = "", *, tags: list[str | Enum], route_class: type[Route] = Route) -> None:
        super().__init__(
            prefix=prefix,
            tags=tags,
            route_class=route_class,
            generate_unique_id_function=lambda route: f"{route.tags[0]}-{route.name}",
        )


def add_routes(app: FastAPI, routers: Iterable[Router]) -> None:
    """Add these routes to the application; the first that matches a request answers."""
    for router in routers:
        app.router.routes.extend(router.routes)
