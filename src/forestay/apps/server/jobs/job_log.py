"""The log of a job: the end of an attempt's output, or all of it while it is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import NamedTuple

from forestay.apps.server.http.problems import HttpProblem
from forestay.apps.server.http.request_context import RequestContext
from forestay.domain.jobs.job_document import JobDocument
from forestay.ports.jobs.job_store import Record, Stored

LOGS = frozenset({"log", "evidence", "late-completion"})
PING = 10
"""Seconds of silence after which a follower receives a sign of life."""


class _ReportedEnd(NamedTuple):
    """A reported end of an attempt."""

    generation: int
    attempt: int
    claim: str
    pilot: str


async def stored_log(context: RequestContext, document: JobDocument, attempt: int | None) -> str:
    """The end of the output of the newest ended attempt, or of the given one."""
    records = await context.services.components.store.find_records(job=document.id, tenant=document.tenant, limit=1000)
    refused = {_told(record) for record in records if record.kind == "late-completion"}
    counted: dict[int, str] = {}
    others: dict[int, str] = {}
    for record in records:
        if record.kind in LOGS:
            end = _told(record)
            # Ends that do not count may come from anyone; one is shown only if there is no other.
            texts = others if end in refused else counted
            texts.setdefault(end.attempt, str(record.body.get("log_tail", "")))
    last = document.last.token.attempt if document.last else None
    if attempt is None:
        attempt = last or max(counted or others, default=None)
    for texts in (counted, others):
        if attempt in texts:
            return texts[attempt]
    if attempt is not None and attempt == last:
        return ""
    raise HttpProblem(404, "no attempt has finished yet; use follow for a running one")


def _told(record: Record) -> _ReportedEnd:
    ending = record.body.get("ending")
    assert isinstance(ending, dict)  # noqa: S101 - we wrote it
    return _ReportedEnd(ending["generation"], ending["attempt"], ending["claim"], str(record.body.get("pilot")))


async def followed_log(context: RequestContext, stored: Stored, attempt: int | None) -> AsyncGenerator[str, None]:
    """The output of a running attempt, until it ends; for an ended one the stored output.

    Yields an empty text now and then, as a sign of life.
    """
    document = stored.document
    held = document.claim
    if held is None or (attempt is not None and attempt != document.attempt):
        yield await stored_log(context, document, attempt)
        return
    queue: asyncio.Queue[tuple[int, str, bool]] = asyncio.Queue(1000)
    followed = (held.pilot, held.id)
    context.logs.setdefault(followed, set()).add(queue)
    seen = quiet = 0
    try:
        if not context.services.channels.order(held.pilot, "log", {"claim": held.id, "follow": True}):
            await context.services.steer.order(document, "log", follow=True)
        while True:
            try:
                async with asyncio.timeout(1.0):
                    pieces = [await queue.get()]
            except TimeoutError:
                still = await _still(context, document)
                pieces = [
                    piece for piece in await _from_store(context, document, held.id) if piece[0] >= seen or piece[2]
                ]
                if not pieces and not still:
                    if not seen:  # its pilot never answered the order; only the output reported at the end is available
                        await context.services.components.store.refresh()
                        yield await stored_log(context, document, document.attempt)
                    return
                quiet += 1
                if quiet % PING == 0:
                    yield ""
            for offset, text, last in pieces:
                end = offset + len(text.encode())
                if end > seen:
                    skip = max(0, seen - offset)
                    yield text.encode()[skip:].decode(errors="replace")
                    seen = end
                if last:
                    return
    finally:
        context.logs[followed].discard(queue)
        if not context.logs[followed]:
            del context.logs[followed]


async def _from_store(context: RequestContext, document: JobDocument, claim: str) -> list[tuple[int, str, bool]]:
    """Pieces that the pilot sent to another server."""
    records = await context.services.components.store.find_records(
        job=document.id, kind="live-log", tenant=document.tenant, limit=1000
    )
    pieces = [
        (int(str(record.body["offset"])), str(record.body["text"]), bool(record.body["last"]))
        for record in records
        if record.body.get("claim") == claim
    ]
    return sorted(pieces)


async def _still(context: RequestContext, document: JobDocument) -> bool:
    stored = (await context.services.components.store.get([document.id])).get(document.id)
    return stored is not None and stored.document.claim == document.claim
