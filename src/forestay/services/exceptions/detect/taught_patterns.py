"""Stores the patterns that operators teach: one version-checked document for each tenant, read by every process that classifies failures.

Beside it there is a note for each new pattern until the waiting failures were classified again by it: the process that adds the pattern may die before that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.exceptions.causes.failure_pattern import FailurePattern
from forestay.domain.exceptions.causes.taught_pattern import MOST, CorrectedCause, TaughtPack, TaughtPattern
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Conflict, NotFound, Transient
from forestay.ports.exceptions.classifiers import SitePatterns
from forestay.services.shared.document_update import update_document
from forestay.services.shared.recent import Recent

KIND = "taught-patterns"
NOTE = "taught-pattern-note"
FRESH = 2.0
"""Seconds for which a process may use its copy of the patterns."""
TENANTS = 1_000
"""The most tenants whose patterns are cached."""
EVERYBODY_KNOWS = 15_000
"""Milliseconds after which every process has the new patterns, and a search finds what was classified by the old ones."""
UNSURE = "it is not certain that this was recorded; list the taught patterns"


class TaughtNote(NamedTuple):
    """Waiting failures must be classified again by this pattern."""

    tenant: str
    pattern: str
    at: int
    stored: StoredDocument


@dataclass(slots=True)
class TaughtPatterns(SitePatterns):
    """The service."""

    documents: DocumentStore
    clock: Clock
    _known: Recent[str, tuple[float, TaughtPack, tuple[FailurePattern, ...]]] = field(
        default_factory=lambda: Recent(TENANTS)
    )

    async def patterns(self, tenant: str) -> tuple[FailurePattern, ...]:
        at, known = self.clock.monotonic(), self._known.get(tenant)
        if known is not None and at - known[0] < FRESH:
            return known[2]
        try:
            pack = await self.pack(tenant)
        except Transient:
            if known is None:
                raise
            return known[2]
        return self._remembered(tenant, pack)

    async def pack(self, tenant: str) -> TaughtPack:
        """The tenant's pack in the store now."""
        stored = (await self.documents.get([_name(tenant)])).get(_name(tenant))
        return _pack(stored)

    async def teach(self, tenant: str, pattern: TaughtPattern, *, instead_of: Sequence[str] = ()) -> TaughtPack:
        """Add a pattern, or replace the one of its name, and note that waiting failures must be classified again. `Conflict` if there are too many."""

        def change(pack: TaughtPack) -> TaughtPack:
            changed = pack.with_pattern(pattern, instead_of=instead_of)
            if len(changed.patterns) > MOST:
                raise Conflict(f"there are {MOST} taught patterns already; remove one that is not needed any more")
            return changed

        pack = await self._write(tenant, change)
        name, body = _note_name(tenant, pattern.name), {"pattern": pattern.name, "at": self.clock.now()}
        await update_document(
            self.documents, name, lambda _stored: (Document(name, tenant, NOTE, body), None), unsure=UNSURE
        )
        return pack

    async def forget(self, tenant: str, name: str) -> TaughtPack:
        """Remove a pattern; `NotFound`."""

        def change(pack: TaughtPack) -> TaughtPack:
            if pack.get(name) is None:
                raise NotFound("there is no such taught pattern")
            return pack.without(name)

        return await self._write(tenant, change)

    async def correct(self, tenant: str, incident: str, cause: Cause, by: str) -> TaughtPack:
        """Store the cause that a person assigned to a failure: patterns are tested against it from now on."""
        correction = CorrectedCause(incident, cause, by, self.clock.now())
        return await self._write(tenant, lambda pack: pack.with_correction(correction))

    async def notes(self) -> Sequence[TaughtNote]:
        """The patterns, of all tenants, by which waiting failures must be classified again; up to a second old."""
        return [
            TaughtNote(stored.document.tenant, str(body["pattern"]), int(str(body["at"])), stored)
            for stored in await self.documents.find(NOTE)
            for body in [stored.document.body]
        ]

    def is_known_to_all(self, note: TaughtNote) -> bool:
        """Whether every process has the pattern by now, so that no failure is classified without it any more."""
        return self.clock.now() - note.at >= EVERYBODY_KNOWS

    async def done(self, note: TaughtNote) -> None:
        """Remove a note when the waiting failures were classified again; if its pattern was added anew meanwhile, the note is kept."""
        await self.documents.remove([note.stored])

    async def _write(self, tenant: str, change: Callable[[TaughtPack], TaughtPack]) -> TaughtPack:
        def changed(stored: StoredDocument | None) -> tuple[Document, TaughtPack]:
            pack = change(_pack(stored))
            return Document(_name(tenant), tenant, KIND, pack.to_dict()), pack

        pack = await update_document(self.documents, _name(tenant), changed, unsure=UNSURE)
        self._remembered(tenant, pack)
        return pack

    def _remembered(self, tenant: str, pack: TaughtPack) -> tuple[FailurePattern, ...]:
        known = self._known.get(tenant)
        # The same object until something changes, so that a classifier made from it can be reused.
        patterns = (
            known[2]
            if known is not None and known[1].version == pack.version
            else tuple(pattern.pattern() for pattern in pack.patterns)
        )
        self._known[tenant] = self.clock.monotonic(), pack, patterns
        return patterns


def _name(tenant: str) -> str:
    return f"{KIND}:{tenant}"


def _note_name(tenant: str, pattern: str) -> str:
    return f"{NOTE}:{tenant}:{pattern}"


def _pack(stored: StoredDocument | None) -> TaughtPack:
    return TaughtPack() if stored is None else TaughtPack.from_dict(stored.document.body)
