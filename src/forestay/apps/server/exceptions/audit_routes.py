"""Routes to read the audit log."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response

from forestay.apps.server.http.answers import Out, Time, errors
from forestay.apps.server.http.request_context import Operator, TheDesk, json_answer
from forestay.apps.server.http.router import Router
from forestay.apps.server.http.schemas import INT64
from forestay.formats.rules.audit_json import entry_public

router = Router(prefix="/v1", tags=["audit"])


class EntryOut(Out):
    number: int
    at: Time
    by: str
    what: str
    on: str
    why: str
    detail: dict[str, Any]
    before: str
    """The hash of the entry before."""
    hash: str


class HeadOut(Out):
    """The last entry of the log."""

    number: int
    hash: str


class AuditOut(Out):
    entries: list[EntryOut]
    head: HeadOut


@router.get("/audit", response_model=AuditOut, responses=errors())
async def read_audit(
    context: TheDesk,
    who: Operator,
    start: Annotated[int | None, Query(ge=1, le=INT64)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Entries of the tenant's audit log in order: from a number on, or the last ones."""
    entries, head = await context.services.components.audit.read(who.tenant, start=start, limit=limit)
    return json_answer(
        {"entries": [entry_public(entry) for entry in entries], "head": {"number": head.number, "hash": head.hash}}
    )
