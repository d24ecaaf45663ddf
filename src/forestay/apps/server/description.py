"""The OpenAPI description of the interface: what FastAPI knows of the routes, and what it does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from forestay.apps.server.http.answers import ProblemOut
from forestay.apps.server.http.problems import GA4GH
from forestay.apps.server.jobs.job_filters import NUMBERS, TEXTS, TIMES
from forestay.domain.jobs.job_document import State
from forestay.ports.jobs.job_store import COUNT_FIELDS, SORT_FIELDS


def describe(app: FastAPI) -> None:
    """Generate the application's description, once."""
    made: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not made:
            made.update(_made(app))
        return made

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation says


def _made(app: FastAPI) -> dict[str, Any]:
    api = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        license_info=app.license_info,
        routes=app.routes,
        tags=[
            {"name": "jobs", "description": "For people and programs: submit, search, read and control jobs."},
            {"name": "runs", "description": "Flows and their runs."},
            {"name": "wes", "description": "The GA4GH Workflow Execution Service."},
            {
                "name": "safeguards",
                "description": "Safeguards: emergency stop, storms, limits and approvals.",
            },
            {"name": "engines", "description": "For other engines: report events, carry out commands."},
            {"name": "audit", "description": "The audit log."},
            {"name": "watch", "description": "Monitoring: events, pilots, alerts, status, metrics."},
            {"name": "tes", "description": "GA4GH TES 1.1, for any TES client."},
            {"name": "tes-short", "description": "The same at the path that some clients use."},
            {"name": "pilots", "description": "For pilots: registration, heartbeats, claims, completions."},
        ],
    )
    parts = api.setdefault("components", {})
    parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}}
    parts["schemas"]["ProblemOut"] = ProblemOut.model_json_schema(ref_template="#/components/schemas/{model}")
    parts["schemas"] |= parts["schemas"]["ProblemOut"].pop("$defs")
    api["security"] = [{"token": []}]
    for path, operations in api["paths"].items():
        if path.startswith(GA4GH):  # an invalid request is a 400 there
            for operation in operations.values():
                operation["responses"].pop("422", None)
                for status, response in operation["responses"].items():
                    content = response.get("content", {})
                    if status >= "4" and "text/plain" in content:  # errors are JSON, whatever the good response is
                        content["application/json"] = content.pop("text/plain")
    return api


def filters() -> dict[str, Any]:
    """The query parameters of a search, which the routes read themselves."""
    return {"parameters": list(_filters())}


def _filters() -> Iterator[dict[str, Any]]:
    def many(name: str, words: str, **schema: Any) -> dict[str, Any]:
        items = {"type": "array", "maxItems": 100, "items": {"type": "string"} | schema}
        return {"name": name, "in": "query", "description": words, "schema": items}

    def one(name: str, words: str, **schema: Any) -> dict[str, Any]:
        return {"name": name, "in": "query", "description": words, "schema": schema}

    yield many("state", "Jobs in any of these states.", enum=[state.value for state in State])
    for name in TEXTS:
        yield many(name, f"Jobs with any of these as their {name.replace('_', ' ')}.")
    yield many("label", "Jobs with all of these labels, each written key=value.", pattern="^[^=]*=")
    yield one("held", "Jobs that are held, or not.", type="string", enum=["true", "false"])
    for name in NUMBERS:
        words = name.replace("_", " ")
        yield one(f"min_{name}", f"Jobs with at least this {words}.", type="integer", format="int64")
        yield one(f"max_{name}", f"Jobs with at most this {words}.", type="integer", format="int64")
    for name in TIMES:
        words = name.replace("_", " ")
        yield one(f"{name}_after", f"Jobs {words} at this time or later.", type="string", format="date-time")
        yield one(f"{name}_before", f"Jobs {words} at this time or earlier.", type="string", format="date-time")


SORTS = sorted(name for field in SORT_FIELDS for name in (field, f"-{field}"))
COUNTS = sorted(COUNT_FIELDS)
