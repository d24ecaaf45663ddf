"""The schemas of responses, for the interface's description; the routes write them without these."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from forestay.apps.server.http.problems import TITLES

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class Out(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)  # only the description of the interface needs them


class FieldErrorOut(Out):
    at: str
    detail: str


class ProblemOut(Out):
    """Any error, by RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldErrorOut] = []


class NothingOut(Out):
    pass


Responses = dict[int | str, dict[str, Any]]

ALWAYS = (401, 403, 422, 429, 503)
WITH_BODY = (400, 408, 413)


def errors(*statuses: int, body: bool = False) -> Responses:
    """The errors that a route may return, in addition to the common ones."""
    wanted = sorted({*ALWAYS, *statuses, *(WITH_BODY if body else ())})
    schema = {"$ref": "#/components/schemas/ProblemOut"}
    return {
        status: {"description": TITLES[status], "content": {"application/problem+json": {"schema": schema}}}
        for status in wanted
    }
