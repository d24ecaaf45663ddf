"""Errors as `application/problem+json`; under the interfaces of GA4GH as their clients read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from forestay.formats.jobs.job_public import time_millis
from forestay.ports.errors import Conflict, NotFound, Permanent, PortError, Transient

TITLES = {
    400: "Invalid request",
    401: "Authentication required",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    413: "Request too large",
    422: "Invalid request",
    429: "Too many",
    431: "Request head too large",
    501: "Not available here",
    503: "Store unavailable",
}
GA4GH = ("/ga4gh/", "/v1/tasks", "/v1/service-info")
"""Clients of these interfaces expect `msg` and `status_code`."""
MOST_FIELDS = 100
"""The most invalid fields that one response lists."""
STATUS: Mapping[type[PortError], int] = {Transient: 503, Permanent: 400, Conflict: 409, NotFound: 404}


class HttpProblem(HTTPException):
    """A problem to report to the caller, with its position in the request."""

    def __init__(self, status: int, detail: str, errors: Sequence[Mapping[str, object]] = ()) -> None:
        super().__init__(status, detail)
        self.errors = errors


def invalid_fields(errors: Sequence[Mapping[str, Any]]) -> HttpProblem:
    """The errors in a body, field by field."""
    shown = [{"at": ".".join(map(str, error["loc"])), "detail": error["msg"]} for error in errors[:MOST_FIELDS]]
    return HttpProblem(422, f"{len(errors)} field(s) are invalid", shown)


def body_of(status: int, detail: str, errors: Sequence[Mapping[str, object]] = ()) -> dict[str, Any]:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": TITLES.get(status, "Error"),
        "status": status,
        "detail": detail,
    }
    if errors:
        body["errors"] = list(errors)
    return body


def ga4gh_body(status: int, detail: str, errors: Sequence[Mapping[str, object]] = ()) -> dict[str, Any]:
    """The body of an error for GA4GH clients: all details are in the message, since there is no other place for them."""
    lines = [detail, *(f"{error['at']}: {error['detail']}" for error in errors)]
    return {"msg": "; ".join(lines), "status_code": status}


def answer(status: int, detail: str, errors: Sequence[Mapping[str, object]] = (), *, path: str = "") -> Response:
    """An error in the form of the requested path."""
    ga4gh = path.startswith(GA4GH)
    body = ga4gh_body(status, detail, errors) if ga4gh else body_of(status, detail, errors)
    headers = {}
    if status in (408, 431):
        headers["Connection"] = "close"  # do not wait for the rest of the request
    if status in (429, 503):
        headers["Retry-After"] = "1"
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    media_type = "application/json" if ga4gh else "application/problem+json"
    return Response(orjson.dumps(body), status, headers, media_type=media_type)


def install(app: FastAPI) -> None:
    """Install the handlers that return every error in this form."""

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        errors = error.errors if isinstance(error, HttpProblem) else ()
        return answer(error.status_code, str(error.detail), errors, path=request.url.path)

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> Response:
        problem = invalid_fields(error.errors())
        status = 400 if request.url.path.startswith(GA4GH) else 422
        return answer(status, problem.detail, problem.errors, path=request.url.path)

    @app.exception_handler(PortError)
    async def _port(request: Request, error: PortError) -> Response:
        status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
        return answer(status, str(error), path=request.url.path)


def asked_time(text: str | None, field: str) -> int | None:
    """A time in a request in milliseconds; a problem if it is invalid."""
    if text is None:
        return None
    try:
        return time_millis(text)
    except (ValueError, OverflowError):
        raise HttpProblem(422, f"{field} is not a time; use the form 2026-05-01T12:00:00Z") from None
