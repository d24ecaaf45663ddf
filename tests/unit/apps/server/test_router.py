"""A route is analysed when it is first needed, and is then what FastAPI makes of it."""

from __future__ import annotations

from typing import Annotated

import httpx
import pytest
from fastapi import FastAPI, Query
from fastapi.routing import APIRoute

from forestay.apps.server.http.router import Router, add_routes
from forestay.apps.server.http.schemas import Model

pytestmark = pytest.mark.finding("F-G3")


class CountIn(Model):
    count: int


def application() -> FastAPI:
    router = Router("/v1", tags=["numbers"])

    @router.get("/double")
    async def double(number: Annotated[int, Query(ge=1)]) -> dict[str, int]:
        return {"double": 2 * number}

    @router.post("/counts/{name}", status_code=201)
    async def count(name: str, body: CountIn) -> dict[str, int]:
        return {name: body.count}

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    add_routes(app, [router])
    return app


def analysed(app: FastAPI) -> list[str]:
    return [route.path for route in app.routes if isinstance(route, APIRoute) and "dependant" in vars(route)]


async def test_a_route_is_analysed_when_it_answers_its_first_request() -> None:
    app = application()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        assert analysed(app) == []
        assert (await client.get("/v1/elsewhere")).status_code == 404
        assert (await client.put("/v1/double")).status_code == 405
        assert (await client.get("/v1/double?number=0")).status_code == 422
        assert (await client.get("/v1/double?number=2")).json() == {"double": 4}
        assert analysed(app) == ["/v1/double"]
        answer = await client.post("/v1/counts/sheep", json={"count": 3})
        assert (answer.status_code, answer.json()) == (201, {"sheep": 3})
        assert (await client.post("/v1/counts/sheep", json={"count": 3, "more": 1})).status_code == 422


def test_all_routes_are_described() -> None:
    app = application()
    described = app.openapi()["paths"]
    assert described["/v1/double"]["get"]["operationId"] == "numbers-double"
    assert "requestBody" in described["/v1/counts/{name}"]["post"]
    assert analysed(app) == ["/v1/double", "/v1/counts/{name}"]


def test_what_a_route_does_not_have_is_an_error() -> None:
    route = application().routes[-1]
    for _ in range(2):  # also when it was analysed
        with pytest.raises(AttributeError, match="colour"):
            _ = route.colour  # type: ignore[attr-defined]
