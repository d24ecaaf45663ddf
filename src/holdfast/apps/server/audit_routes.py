"""Routes to read the audit log."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from holdfast.apps.server.answers import Out, Time, errors
from holdfast.apps.server.desk import Operator, TheDesk
from holdfast.apps.server.job_routes import json_answer
from holdfast.apps.server.models import INT64
from holdfast.formats.audit_json import entry_public

router = APIRouter(prefix="/v1", tags=["audit"])


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
    desk: TheDesk,
    who: Operator,
    start: Annotated[int | None, Query(ge=1, le=INT64)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Entries of the tenant's audit log in order: from a number on, or the last ones."""
    entries, head = await desk.services.parts.audit.read(who.tenant, start=start, limit=limit)
    return json_answer(
        {"entries": [entry_public(one) for one in entries], "head": {"number": head.number, "hash": head.hash}}
    )
