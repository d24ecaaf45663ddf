"""The description of the interface: published, current, and whole."""

from __future__ import annotations

import json
from typing import Any

from scripts import openapi
from tests.unit.apps.server.routes import routes_of
from tests.unit.apps.server.running import RunningServer

from forestay.apps.server.http.problems import GA4GH
from forestay.apps.server.pages.page_routes import PAGES


def test_the_published_description_is_current() -> None:
    assert openapi.PLACE.read_text(encoding="utf-8") == openapi.described(), "run: just openapi"


async def test_a_server_describes_itself_as_published(local: RunningServer, tenant: str) -> None:
    answer = await local.person("viewer", tenant=tenant).get("/openapi.json")
    assert answer.json() == json.loads(openapi.PLACE.read_text(encoding="utf-8"))


def _operations(local: RunningServer) -> list[tuple[str, str, dict[str, Any]]]:
    paths: dict[str, dict[str, dict[str, Any]]] = local.app.openapi()["paths"]
    return [(method, path, other_method) for path, methods in paths.items() for method, other_method in methods.items()]


def test_every_route_is_described(local: RunningServer) -> None:
    described = {(method.upper(), path) for method, path, _ in _operations(local)}
    routes = {(method, route.path) for route in routes_of(local.app) for method in route.methods or ()}
    pages = {
        ("GET", name)
        for name in ("/openapi.json", "/login", "/login/provider", "/login/back", "/assets/{name}", *PAGES)
    }
    # The SOAP face is described by docs/reference/job-service.wsdl.
    assert routes - described == {*pages, ("POST", "/soap/jobs")}
    assert described <= routes


def test_every_operation_says_what_it_answers_and_refuses(local: RunningServer) -> None:
    api = local.app.openapi()
    assert api["security"] == [{"token": []}]
    names = [operation["operationId"] for _, _, operation in _operations(local)]
    assert len(names) == len(set(names))
    for method, path, operation in _operations(local):
        text = f"{method} {path}"
        assert operation["description"], text
        good = {status for status in operation["responses"] if status.startswith("2")}
        assert len(good - {"202"}) == 1, f"{text}: one answer, unless it may wait for approval"
        for kind, content in [part for status in good for part in operation["responses"][status]["content"].items()]:
            assert content["schema"], text
            if kind == "application/json":
                assert content["schema"]["$ref"], f"{text} does not say what it answers"
        ga4gh = path.startswith(GA4GH)
        kind = "application/json" if ga4gh else "application/problem+json"
        for status in ("401", "403", "400" if ga4gh else "422", "503"):
            assert set(operation["responses"][status]["content"]) == {kind}, text
        assert "security" not in operation, f"{text} is open"


def test_every_reference_leads_somewhere(local: RunningServer) -> None:
    api = local.app.openapi()
    values: list[str] = []

    def look(part: Any) -> None:
        if isinstance(part, dict):
            values.extend(value for key, value in part.items() if key == "$ref")
            for value in part.values():
                look(value)
        elif isinstance(part, list):
            for value in part:
                look(value)

    look(api)
    assert values
    for reference in set(values):
        assert reference.removeprefix("#/components/schemas/") in api["components"]["schemas"], reference
