"""Writes and reads the audit log.

Entries that are written at the same time go into one page. A page is created under the number after the last; if another process was
first, the entries are chained anew onto its page and take the next number. An unclear result is settled by reading the page back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from forestay.domain.exceptions.safeguards.audit import (
    MAX_ENTRIES,
    AuditEntry,
    AuditHead,
    AuditNote,
    head_of,
    next_page,
)
from forestay.ports.clock import Clock, Ids
from forestay.ports.errors import Transient
from forestay.ports.exceptions.audit import AuditStore

TRIES = 100
UNSURE = 3
"""Writes without a clear result after which the caller gets an error."""
AHEAD = 16
"""Pages after the last known one that are read at once."""


class PendingNotes(NamedTuple):
    """Notes of one caller, and who waits for them."""

    notes: Sequence[AuditNote]
    done: asyncio.Future[Sequence[AuditEntry]]


@dataclass(slots=True)
class AuditLog:
    """The service."""

    store: AuditStore
    clock: Clock
    ids: Ids
    anchored: Callable[[str, AuditHead], None] = lambda _tenant, _head: None
    """Called with the tenant and the new head after each page, for a log that is kept elsewhere."""
    pages: int = 0
    """The number of pages written, for metrics and tests."""
    _heads: dict[str, AuditHead] = field(default_factory=dict)
    _waiting: dict[str, list[PendingNotes]] = field(default_factory=dict)
    _writing: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def write(self, tenant: str, notes: Sequence[AuditNote]) -> Sequence[AuditEntry]:
        """Write entries; they are durable when this returns. `Transient`: they may not be."""
        if not notes:
            return ()
        if len(notes) > MAX_ENTRIES:
            return [
                entry
                for start in range(0, len(notes), MAX_ENTRIES)
                for entry in await self.write(tenant, notes[start : start + MAX_ENTRIES])
            ]
        done: asyncio.Future[Sequence[AuditEntry]] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, []).append(PendingNotes(notes, done))
        if tenant not in self._writing:
            self._writing[tenant] = asyncio.create_task(self._write_waiting(tenant))
        return await done

    async def read(
        self, tenant: str, *, start: int | None = None, limit: int = 100
    ) -> tuple[Sequence[AuditEntry], AuditHead]:
        """Entries in order, from a number on or the last ones, and the present end of the chain."""
        head = await self.head(tenant)
        first = max(1, head.number - limit + 1 if start is None else start)
        entries: list[AuditEntry] = []
        number = await self._page_of(tenant, first, head) if first <= head.number else head.page + 1
        while number <= head.page and len(entries) < limit:
            # By number, not by search: a missing page must be noticed.
            wanted = range(number, min(number + AHEAD, head.page + 1))
            pages = await self.store.get(tenant, wanted)
            entries += [
                entry for page in wanted if page in pages for entry in pages[page].entries if entry.number >= first
            ]
            number += AHEAD
        return entries[:limit], head

    async def head(self, tenant: str) -> AuditHead:
        """The present end of the chain."""
        known = self._heads.get(tenant)
        if known is None:
            last = await self.store.last(tenant)
            known = head_of(last) if last is not None else AuditHead()
        while True:
            numbers = range(known.page + 1, known.page + AHEAD + 1)
            pages = await self.store.get(tenant, numbers)
            for number in numbers:
                if number not in pages:
                    self._heads[tenant] = known
                    return known
                known = head_of(pages[number])

    async def _page_of(self, tenant: str, entry: int, head: AuditHead) -> int:
        """The number of the page from which to read. Entries that a search does not show yet are near the end."""
        found_pages = await self.store.find(tenant, entry=entry, limit=1)
        if found_pages:
            return found_pages[0].number
        number = head.page
        while number > 1:
            pages = await self.store.get(tenant, range(max(1, number - AHEAD), number + 1))
            if any(page.entries[0].number <= entry for page in pages.values()):
                break
            number -= AHEAD
        return max(1, number - AHEAD)

    # -- writing -----------------------------------------------------------------------------------------------

    async def _write_waiting(self, tenant: str) -> None:
        """Write until no caller waits; one page at a time."""
        try:
            while self._waiting.get(tenant):
                taken = self._take(tenant)
                try:
                    entries = await self._append(
                        tenant, [note for pending_notes in taken for note in pending_notes.notes]
                    )
                except Exception as error:  # those who wait must get every error
                    for notes in taken:
                        if not notes.done.done():
                            notes.done.set_exception(error)
                    continue
                for pending_notes in taken:
                    own, entries = entries[: len(pending_notes.notes)], entries[len(pending_notes.notes) :]
                    if not pending_notes.done.done():
                        pending_notes.done.set_result(own)
        finally:
            del self._writing[tenant]

    def _take(self, tenant: str) -> list[PendingNotes]:
        """The callers whose notes fit into one page, oldest first."""
        waiting, taken, count = self._waiting[tenant], list[PendingNotes](), 0
        while waiting and count + len(waiting[0].notes) <= MAX_ENTRIES:
            count += len(waiting[0].notes)
            taken.append(waiting.pop(0))
        return taken

    async def _append(self, tenant: str, notes: Sequence[AuditNote]) -> Sequence[AuditEntry]:
        name = self.ids.claim()
        head = self._heads.get(tenant) or await self.head(tenant)
        page = next_page(head, notes, tenant=tenant, name=name, now=self.clock.now())
        unsure = 0
        for _ in range(TRIES):
            try:
                written = await self.store.add(page)
            except Transient:
                # It may exist, or still be created. Writing the same page again is harmless: there is one page for a number.
                unsure += 1
                if unsure > UNSURE:
                    raise
                await asyncio.sleep(0.05 * unsure)
                written = False
            if not written:
                status = (await self.store.get(tenant, [page.number])).get(page.number)
                if status is None:
                    continue
                written = status.name == name
            if written:
                head = self._heads[tenant] = head_of(page)
                self.pages += 1
                self.anchored(tenant, head)
                return page.entries
            head = await self.head(tenant)
            page = next_page(head, notes, tenant=tenant, name=name, now=self.clock.now())
        raise Transient("the audit log could not be written: too many concurrent writes; try again")
