"""Seats of licences: taken before the claim of a job is written, returned when its attempt has ended.

Each licence is one version-checked document of the whole domain, with the claims that hold its seats. A server first takes seats and then writes the
claim, so there are never more claims than seats. A crash between the two leaves seats without a claim. They are found by reading
the holders' jobs, and returned only after a confirming write on the job: a claim that a stopped server may still send was decided on an
earlier version, and fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, cast

from forestay.domain.jobs.claim import confirm
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.jobs.lifecycle import TransitionRefused
from forestay.domain.jobs.requirements import LICENCES, licences_of
from forestay.domain.scheduling.licence import Licence, SeatHolder, give_back, take_seats
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import PortError, Transient
from forestay.ports.jobs.job_store import Stored
from forestay.services.shared.background_tasks import BackgroundTasks
from forestay.services.shared.checked_writer import JobMissing, ProposedWrite, WriteApplied, WriteListener, Writer
from forestay.services.shared.document_update import update_document

KIND = "licence"
OLD = 30_000
"""Milliseconds after which seats without a claim are checked: claims are normally written sooner."""
SWEEP_EVERY = 15.0
QUIET = 30
"""After this many refreshes without a query, the copy is dropped until the next query."""


class WantedSeats(NamedTuple):
    """An attempt that is about to be claimed."""

    claim: str
    document: JobDocument


@dataclass(slots=True)
class LicenceSeats(WriteListener):
    """The service."""

    part: ClassVar[str] = LICENCES
    documents: DocumentStore
    writer: Writer
    clock: Clock
    every: float = 1.0
    changed: Callable[[], None] = lambda: None
    """Called when seats became free."""
    denied: int = 0
    """Claims that were not made because no seat was free."""
    swept: int = 0
    """Seats recovered from dead servers."""
    _copy: dict[str, Licence] = field(default_factory=dict)
    _known: bool = False
    _asked: bool = False
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _swept_at: float = -1e9
    _background: BackgroundTasks = field(default_factory=BackgroundTasks)

    # -- the copy ----------------------------------------------------------------------------------------------

    def exhausted(self, document: JobDocument) -> bool:
        """Whether a job cannot get its seats now, according to the copy. True until that is known."""
        if not document.extra or LICENCES not in document.extra:
            return False
        self._asked = True
        if not self._known:
            self._wanted.set()
            return True
        return bool(self.missing(document))

    def missing(self, document: JobDocument) -> str:
        """The licence that a job waits for, as text; empty for none."""
        for name, seats in sorted(licences_of(document.extra).items()):
            licence = self._copy.get(name)
            if licence is None:
                return f"there is no licence named {name}"
            if seats > licence.seats:
                return f"licence {name} has {licence.seats} seats, and the job needs {seats}"
            if seats > licence.free:
                return f"{seats} of licence {name} needed, {licence.free} of {licence.seats} free"
        return ""

    async def waits_for(self, document: JobDocument) -> str:
        """As `missing`, read now."""
        if not document.extra or LICENCES not in document.extra:
            return ""
        await self._read(licences_of(document.extra))
        return self.missing(document)

    async def run(self) -> None:
        """Keep the copy fresh while it is queried, and recover seats of dead servers."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_EVERY):
                    await self._wanted.wait()
            unasked = 0
            while unasked < QUIET:
                asked, self._asked = self._asked, False
                with suppress(PortError):  # nothing can be claimed at such times either
                    await self.refresh()
                    if self.clock.monotonic() - self._swept_at >= SWEEP_EVERY:
                        await self.sweep()
                        self._swept_at = self.clock.monotonic()
                unasked = 0 if asked else unasked + 1
                if not self._wanted.is_set():
                    break
                await asyncio.sleep(self.every)
            self._known = False
            self._wanted.clear()

    async def refresh(self) -> None:
        """Read all licences."""
        found = [licence_from(stored) for stored in await self.documents.find(KIND)]
        before, self._copy, self._known = self._copy, {licence.name: licence for licence in found}, True
        if any(licence.free > before[licence.name].free for licence in found if licence.name in before) or not before:
            self.changed()

    async def _read(self, names: Iterable[str]) -> None:
        stored = await self.documents.get([document_name(name) for name in names])
        self._copy.update({licence.name: licence for licence in map(licence_from, stored.values())})

    # -- taking and giving back ---------------------------------------------------------------------------------

    async def take(self, wanted: Sequence[WantedSeats]) -> frozenset[str]:
        """Take the seats of attempts that are about to be claimed; returns the claims that may be written. The others have taken none."""
        granted = {want.claim for want in wanted}
        taken: dict[str, set[str]] = {}
        for name in sorted({name for want in wanted for name in licences_of(want.document.extra)}):
            asking = [want for want in wanted if want.claim in granted and name in licences_of(want.document.extra)]
            got = await self._take(name, asking)
            taken[name] = got
            granted -= {want.claim for want in asking} - got
        self.denied += len(wanted) - len(granted)
        for name, claims in taken.items():
            if lost := claims - granted:
                await self._give_back(name, lost)
        return frozenset(granted)

    async def _take(self, name: str, wanted: Sequence[WantedSeats]) -> set[str]:
        def change(stored: StoredDocument | None) -> tuple[Document | None, set[str]]:
            if stored is None:
                return None, set()
            licence, got = licence_from(stored), set()
            for claim, document in wanted:
                seats = licences_of(document.extra)[name]
                more = take_seats(licence, claim, job=document.id, seats=seats, now=self.clock.now())
                if more is not None:
                    licence = more
                    got.add(claim)
            self._copy[name] = licence
            return (document_of(licence), got) if got else (None, got)

        try:
            return await update_document(self.documents, document_name(name), change, unsure=f"seats of {name}")
        except PortError:
            return set()  # seats that may have been taken are swept

    def give_back(self, claims: Mapping[str, JobDocument]) -> None:
        """Return the seats of attempts that are over, or never began, now or at the next sweep."""
        by_name: dict[str, set[str]] = {}
        for claim, document in claims.items():
            for name in licences_of(document.extra):
                by_name.setdefault(name, set()).add(claim)
        for name, names in by_name.items():
            self._background.begin(self._give_back(name, names))

    def abandon(self, claim: str, document: JobDocument) -> None:
        """Return the seats of a refused claim. Its write may still be in flight, so the job is checked first."""
        self._background.begin(self._abandon(claim, document))

    async def _abandon(self, claim: str, document: JobDocument) -> None:
        if await attempt_is_over(self.writer, claim, document.id):
            for name in licences_of(document.extra):
                await self._give_back(name, {claim})

    async def _give_back(self, name: str, claims: set[str]) -> None:
        def change(stored: StoredDocument | None) -> tuple[Document | None, bool]:
            if stored is None:
                return None, False
            before = licence_from(stored)
            after = self._copy[name] = give_back(before, claims)
            return (None, False) if after is before else (document_of(after), True)

        with suppress(PortError):
            if await update_document(self.documents, document_name(name), change, unsure=f"seats of {name}"):
                self.changed()

    def notice(self, stored: Stored) -> None:
        """Called for each job with licences that is written here: if its attempt is over, its seats are returned."""
        document = stored.document
        if document.state is State.RUNNING:
            return
        over = {document.last.claim if document.last else "", document.former_claim or ""} - {""}
        self.give_back(dict.fromkeys(over, document))

    # -- what dead servers left -----------------------------------------------------------------------------------

    async def sweep(self, older: int = OLD) -> None:
        """Return seats whose holders' attempts are over, or never began."""
        stored = await self.documents.find(KIND)
        for licence in map(licence_from, stored):
            old = {claim: holder for claim, holder in licence.holders.items() if self.clock.now() - holder.at >= older}
            over = {claim for claim, holder in old.items() if await attempt_is_over(self.writer, claim, holder.job)}
            if over:
                self.swept += len(over)
                await self._give_back(licence.name, over)

    # -- administration --------------------------------------------------------------------------------------------

    async def all(self) -> Sequence[Licence]:
        """Every licence, by name."""
        return sorted(
            (licence_from(stored) for stored in await self.documents.find(KIND)), key=lambda licence: licence.name
        )

    async def put(self, name: str, seats: int) -> Licence:
        """Set the number of a licence's seats. Attempts keep their seats."""

        def change(stored: StoredDocument | None) -> tuple[Document | None, Licence]:
            holders = licence_from(stored).holders if stored is not None else {}
            licence = self._copy[name] = Licence(name, seats, holders)
            return document_of(licence), licence

        licence = await update_document(self.documents, document_name(name), change, unsure=f"seats of {name}")
        self.changed()
        return licence

    async def remove(self, name: str) -> bool:
        """Remove an unused licence; returns whether there was one. `Transient` while seats are in use."""
        stored = (await self.documents.get([document_name(name)])).get(document_name(name))
        if stored is None:
            return False
        if licence_from(stored).holders or not await self.documents.remove([stored]):
            raise Transient(f"seats of {name} are in use; set it to 0 seats and remove it later")
        self._copy.pop(name, None)
        return True


async def attempt_is_over(writer: Writer, claim: str, job: str) -> bool:
    """Whether an attempt certainly does not run, and never will: a claim of it that is still under way fails after this."""

    def fence(document: JobDocument) -> JobDocument | TransitionRefused:
        if document.claim is not None and document.claim.id == claim:
            return TransitionRefused("it runs")
        return confirm(document)

    (answer,) = await writer.write([ProposedWrite(job, fence, already_applied=lambda _document: False)])
    return isinstance(answer, WriteApplied | JobMissing)


def document_name(name: str) -> str:
    return f"{KIND}:{name}"


def document_of(licence: Licence) -> Document:
    holders = {claim: [holder.job, holder.seats, holder.at] for claim, holder in licence.holders.items()}
    body: dict[str, object] = {"name": licence.name, "seats": licence.seats, "holders": holders}
    return Document(document_name(licence.name), "", KIND, body)


def licence_from(stored: StoredDocument) -> Licence:
    body = cast("Mapping[str, Any]", stored.document.body)
    holders = {claim: SeatHolder(*entry[:3]) for claim, entry in body["holders"].items()}
    return Licence(body["name"], body["seats"], holders)
