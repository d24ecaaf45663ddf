"""Reads all records of a kind, however many there are, page by page."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from forestay.ports.jobs.job_store import JobStore, Record

PAGE = 1_000


async def record_pages(
    store: JobStore, *, kind: str, tenant: str | None = None, since: int | None = None, size: int = PAGE
) -> AsyncGenerator[Sequence[Record], None]:
    """Pages of records, oldest first, up to the newest; none is empty. Several may have the same time: a page continues after a record, not after a time."""
    after: tuple[int, str] | None = None
    while True:
        page = await store.find_records(kind=kind, tenant=tenant, since=since, after=after, limit=size)
        if page:
            yield page
        if len(page) < size:
            return
        after = page[-1].at, page[-1].id
