"""Suspensions: one write suspends every run of a flow, including runs that start later, or sends a command to all of them.

A suspension is a document for each tenant and version of a flow. The claim path checks a copy that is at most half a second old before it gives a job to a
pilot; so nothing has to be written on any run or job. The submit path reads the store itself: a job that is created under a closed suspension is held back
until every copy is certain to know of it. So no job escapes. Running jobs may end.

One more document, the mark, has the names of all suspensions with content. The copy is refreshed by reading the mark; the suspensions are read only when it has
changed. A server without jobs of runs to give reads nothing at all.
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
from forestay.services.scheduling.job_eligibility import Suspensions
from forestay.services.shared.document_update import update_document, update_stored

KIND = "flow-suspension"
MARK = "flow-suspensions:mark"
QUIET = 25
"""After this many refreshes in a row without a query, the copy is dropped until the next query."""
THOROUGH = 75
"""After this many refreshes all suspensions are searched: this finds one whose writer died before it set the mark."""
KNOWN_AFTER = 1000
"""Milliseconds after which every copy is certain to know of a suspension."""


class TenantSuspension(NamedTuple):
    """A suspension and its tenant."""

    tenant: str
    suspension: FlowSuspension


@dataclass(slots=True)
class FlowSuspensions(Suspensions):
    """The service."""

    documents: DocumentStore
    every: float = 0.4
    changed: Callable[[], None] = lambda: None
    """Called when a suspension was opened or closed."""
    looks: int = 0
    """The number of reads of the store, for metrics and tests."""
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
        """Whether the job may not be claimed because its flow, or one above it, is suspended. True as long as that is not known."""
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
        """Keep the copy fresh while it is queried. While the store does not answer, the last known suspensions apply."""
        while True:
            await self._wanted.wait()
            unasked = 0
            while unasked < QUIET:
                self._asked = False
                with suppress(PortError):  # nothing can be claimed at such times either
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
        """All suspensions with content; None: nothing has changed."""
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
        """The suspensions whose orders have yet to be passed on."""
        await self.refresh()
        return [tenant_suspension for tenant_suspension in self._suspensions if tenant_suspension.suspension.orders]

    # -- realtime ----------------------------------------------------------------------------------------------

    async def closed(self, tenant: str, flows: Iterable[str]) -> bool:
        """Whether one of these flows has a closed suspension now."""
        stored_documents = await self.documents.get([suspension_of(tenant, flow) for flow in flows])
        return any(_read_suspension(stored_document).suspension.closed for stored_document in stored_documents.values())

    async def suspension(self, tenant: str, version: str) -> FlowSuspension:
        name = suspension_of(tenant, version)
        stored = (await self.documents.get([name])).get(name)
        return _read_suspension(stored).suspension if stored is not None else FlowSuspension(version)

    async def suspend(self, tenant: str, version: str, holder: str) -> FlowSuspension:
        """Hold every run of a flow. `Conflict` if there are too many holders."""
        return await self._change(tenant, version, lambda suspension: suspension.hold(holder))

    async def let_go(self, tenant: str, version: str, holder: str) -> FlowSuspension:
        """Remove a holder; others may remain."""
        return await self._change(tenant, version, lambda suspension: suspension.let_go(holder))

    async def order(self, tenant: str, version: str, verb: Verb) -> FlowSuspension:
        """Pass a verb on to every run that has begun. `Conflict` if too many orders are in progress."""
        return await self._change(tenant, version, lambda suspension: suspension.order(verb))

    async def passed_on(self, tenant: str, version: str, verb: str) -> FlowSuspension:
        """Record that every run has received the verb."""
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
        """Announce that a suspension has changed. Always a write, so that a concurrent change of the same suspension is noticed."""

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
