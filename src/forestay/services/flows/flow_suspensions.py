"""Suspensions: one write suspends every run of a flow, including runs that start later, or sends a command to all of them.

A suspension is a document for each tenant and version of a flow. The claim path asks before it gives a job away, from a copy that is at most half a second
old; so nothing has to be written on any run or job. The submit path asks the store itself: a job that is made behind a closed suspension is held back until
every copy surely knows of it. So nothing escapes. What runs already may end.

One more document, the mark, has the names of all suspensions that say something. The copy is kept by reading the mark; the suspensions are read only when it has
changed. A server that has no job of any run to give reads nothing at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from forestay.domain.flows.events import Verb
from forestay.domain.flows.flow_suspension import FlowSuspension
from forestay.domain.jobs.job_document import JobDocument
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Conflict, PortError
from forestay.ports.jobs.job_store import Version, WriteResult
from forestay.services.scheduling.candidate_buffers import Suspensions
from forestay.services.shared.document_update import update_document, update_stored

KIND = "flow-suspension"
MARK = "flow-suspensions:mark"
QUIET = 25
"""After so many looks in a row for which nobody asked, the copy is given up until someone asks again."""
THOROUGH = 75
"""Every so many looks all suspensions are searched for: one whose writer died before it set the mark is found so."""
KNOWN_AFTER = 1000
"""Milliseconds after which every copy surely knows of a suspension."""


class TenantSuspension(NamedTuple):
    """A suspension and whose it is."""

    tenant: str
    suspension: FlowSuspension


@dataclass(slots=True)
class FlowSuspensions(Suspensions):
    """The service."""

    documents: DocumentStore
    every: float = 0.4
    changed: Callable[[], None] = lambda: None
    """Told when a suspension was opened or closed."""
    looks: int = 0
    """How often the store was asked, for metrics and tests."""
    _suspensions: Sequence[TenantSuspension] = ()
    _closed: frozenset[tuple[str, str]] = frozenset()
    _known: bool = False
    _asked: bool = False
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _mark: Version | None = None
    _looked: int = 0

    # -- the copy ----------------------------------------------------------------------------------------------

    def suspended(self, document: JobDocument) -> bool:
        """Whether nobody may claim the job, because of a suspension of its flow or of one above it. Until that is known, nobody may."""
        flow_ref = document.flow_ref
        if flow_ref is None:
            return False
        self._asked = True
        if not self._known:
            self._wanted.set()
            return True
        if not self._closed:
            return False
        return any((document.tenant, flow) in self._closed for flow in (flow_ref.flow, *flow_ref.above))

    async def run(self) -> None:
        """Keep the copy fresh while someone asks. While the store does not answer, the suspensions stay as they were known."""
        while True:
            await self._wanted.wait()
            unasked = 0
            while unasked < QUIET:
                self._asked = False
                with suppress(PortError):  # nothing can be claimed then either
                    await self.refresh()
                await asyncio.sleep(self.every)
                unasked = 0 if self._asked else unasked + 1
            self._known = False
            self._wanted.clear()

    async def refresh(self) -> None:
        """Read what has changed since the last time."""
        async with self._reading:
            suspensions = await self._read()
            before, was_known = self._closed, self._known
            if suspensions is not None:
                self._suspensions = suspensions
                self._closed = frozenset(
                    (tenant_suspension.tenant, tenant_suspension.suspension.flow)
                    for tenant_suspension in suspensions
                    if tenant_suspension.suspension.closed
                )
            self._known = True
        if self._closed != before or not was_known:
            self.changed()

    async def _read(self) -> Sequence[TenantSuspension] | None:
        """All suspensions that say something; None: nothing has changed."""
        self.looks += 1
        mark = (await self.documents.get([MARK])).get(MARK)
        version = mark.version if mark is not None else None
        thorough = not self._known or self._looked >= THOROUGH
        self._looked += 1
        if version == self._mark and not thorough:
            return None
        names = set(_names(mark))
        if thorough:
            names |= {stored.document.id for stored in await self.documents.find(KIND)}
            self._looked = 0
        stored_documents = await self.documents.get(sorted(names)) if names else {}
        self._mark = version
        return [_read_suspension(stored_document) for stored_document in stored_documents.values()]

    async def ordered(self) -> Sequence[TenantSuspension]:
        """The suspensions whose orders are still to be passed on."""
        await self.refresh()
        return [tenant_suspension for tenant_suspension in self._suspensions if tenant_suspension.suspension.orders]

    # -- realtime ----------------------------------------------------------------------------------------------

    async def closed(self, tenant: str, flows: Iterable[str]) -> bool:
        """Whether one of these flows has a closed suspension at this moment."""
        stored_documents = await self.documents.get([suspension_of(tenant, flow) for flow in flows])
        return any(_read_suspension(stored_document).suspension.closed for stored_document in stored_documents.values())

    async def suspension(self, tenant: str, version: str) -> FlowSuspension:
        name = suspension_of(tenant, version)
        stored = (await self.documents.get([name])).get(name)
        return _read_suspension(stored).suspension if stored is not None else FlowSuspension(version)

    async def suspend(self, tenant: str, version: str, holder: str) -> FlowSuspension:
        """Hold every run of a flow. `Conflict` if too many do."""
        return await self._change(tenant, version, lambda suspension: suspension.hold(holder))

    async def let_go(self, tenant: str, version: str, holder: str) -> FlowSuspension:
        """Take a holder away; others may still hold."""
        return await self._change(tenant, version, lambda suspension: suspension.let_go(holder))

    async def order(self, tenant: str, version: str, verb: Verb) -> FlowSuspension:
        """Have a verb passed on to every run that has begun. `Conflict` if too many are under way."""
        return await self._change(tenant, version, lambda suspension: suspension.order(verb))

    async def passed_on(self, tenant: str, version: str, verb: str) -> FlowSuspension:
        """Every run has been told."""
        return await self._change(tenant, version, lambda suspension: suspension.pass_on(verb))

    async def _change(
        self, tenant: str, version: str, change: Callable[[FlowSuspension], FlowSuspension | str]
    ) -> FlowSuspension:
        name = suspension_of(tenant, version)

        def changed(stored: StoredDocument | None) -> tuple[Document, FlowSuspension]:
            before = _read_suspension(stored).suspension if stored is not None else FlowSuspension(version)
            after = change(before)
            if isinstance(after, str):
                raise Conflict(after)
            return Document(name, tenant, KIND, after.as_plain()), after

        unsure = "the suspension could not be stored; try again"
        after = await update_document(self.documents, name, changed, unsure=unsure)
        await self._set_mark(name)
        self._wanted.set()
        with suppress(PortError):
            await self.refresh()
        return after

    async def _set_mark(self, name: str) -> None:
        """Make known that a suspension has changed. Always a write: whoever changes the same suspension at this moment must notice."""

        def changed(stored: Mapping[str, StoredDocument]) -> tuple[Document, None]:
            names = set(_names(stored.get(MARK))) - {name}
            if name in stored and _says_something(_read_suspension(stored[name]).suspension):
                names.add(name)
            return Document(MARK, "", "flow-suspensions-mark", {"suspensions": sorted(names)}), None

        async def write(document: Document, stored: Mapping[str, StoredDocument]) -> WriteResult:
            (result,) = await self.documents.put([(document, stored[MARK].version if MARK in stored else None)])
            return result

        unsure = "the suspension was stored but not announced; try again"
        await update_stored(lambda: self.documents.get([MARK, name]), changed, write, unsure=unsure)


def suspension_of(tenant: str, version: str) -> str:
    return f"flow-suspension:{tenant}:{version}"


def _read_suspension(stored: StoredDocument) -> TenantSuspension:
    return TenantSuspension(stored.document.tenant, FlowSuspension.from_plain(stored.document.body))


def _names(mark: StoredDocument | None) -> Sequence[str]:
    return cast("Sequence[str]", mark.document.body["suspensions"]) if mark is not None else ()


def _says_something(suspension: FlowSuspension) -> bool:
    return bool(suspension.holders or suspension.orders)
