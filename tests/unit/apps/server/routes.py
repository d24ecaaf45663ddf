"""The routes of a server, and whether its answers are what it says of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import BaseRoute


def routes_of(app: FastAPI) -> list[APIRoute]:
    return list(_walk(app.routes))


def _walk(routes: Sequence[BaseRoute]) -> Iterator[APIRoute]:
    for route in routes:
        if (included := getattr(route, "original_router", None)) is not None:
            yield from _walk(included.routes)
        else:
            # Anything but an ordinary route (a mount, a web socket, static files) would pass by the checks.
            assert isinstance(route, APIRoute), f"{route} is not one that the tests know how to ask"
            yield route


def as_described(app: FastAPI) -> dict[str, list[Any]]:
    """Hooks for a client: each answer must be one that the description of its route has."""
    routes = routes_of(app)

    async def check(answer: httpx.Response) -> None:
        method, path = answer.request.method, answer.request.url.path
        for route in routes:
            if method in (route.methods or ()) and route.path_regex.match(path):
                await _check(answer, route)
                return
        assert answer.status_code in (404, 405), f"{method} {path} is no route of ours: {answer.status_code}"

    return {"response": [check]}


async def _check(answer: httpx.Response, route: APIRoute) -> None:
    text = f"{answer.request.method} {route.path} answered {answer.status_code}"
    good = route.status_code or 200
    if answer.status_code != good:
        assert answer.status_code in route.responses, f"{text}, which its description does not have"
        if (model := route.responses[answer.status_code].get("model")) is not None:
            assert answer.headers["content-type"] == "application/json", text
            model.model_validate_json(await answer.aread())
            return
        assert answer.headers["content-type"] == "application/problem+json", text
    elif answer.headers["content-type"].startswith("text/event-stream") and route.response_model is not None:
        assert "text/event-stream" in route.responses.get(good, {}).get("content", {}), text
    elif route.response_model is not None:
        assert issubclass(route.response_model, BaseModel)
        assert answer.headers["content-type"] == "application/json", text
        route.response_model.model_validate_json(await answer.aread())
