"""Enrols pilots by secrets that work once.

The store keeps only the digest of a secret. One version-checked write decides which pilot used it; a pilot whose answer
was lost repeats the request with the same number and finds its own name, whichever server it asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from forestay.domain.pilots.enrolment import (
    LONGEST,
    MARK,
    Enrolment,
    EnrolmentCandidate,
    ForAnother,
    NotGood,
    digest,
    give_up,
    redeem,
)
from forestay.ports.clock import Clock, Ids
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Permanent, Transient
from forestay.ports.jobs.job_store import Written
from forestay.services.shared.document_update import update_document

KIND = "enrolment"


class EnrolmentDecider(Protocol):
    """Decides the outcome of an enrolment when a pilot presents its secret."""

    def __call__(
        self, enrolment: Enrolment, who: EnrolmentCandidate, *, now: int
    ) -> Enrolment | NotGood | ForAnother: ...


class EnrolmentSecret(NamedTuple):
    """A new secret, shown once, and until when it is valid (milliseconds since 1970)."""

    text: str
    expires: int


@dataclass(slots=True)
class PilotEnrolment:
    """The service."""

    documents: DocumentStore
    clock: Clock
    ids: Ids

    async def make(
        self, *, tenant: str, site: str, launch: str, by: str, seconds: int, owner: str = ""
    ) -> EnrolmentSecret:
        """A secret for one pilot, perhaps of one owner's jobs only; `Transient` if the store did not take it for sure."""
        if not 1 <= seconds <= LONGEST:
            raise Permanent(f"a secret is valid for 1 to {LONGEST} seconds")
        text = MARK + self.ids.claim() + self.ids.claim()
        enrolment = Enrolment(tenant, site, launch, by, self.clock.now() + 1000 * seconds, owner=owner)
        (written,) = await self.documents.put([(_document(text, enrolment), None)])
        if not isinstance(written, Written):
            raise Transient("the enrolment could not be stored; try again")
        return EnrolmentSecret(text, enrolment.expires)

    async def redeem(self, secret: str, who: EnrolmentCandidate) -> Enrolment | NotGood | ForAnother:
        """Enrol a pilot; the answer contains its name, the same one on a repeat. `Transient`: unsure, repeat the call."""
        return await self._use(secret, who, redeem)

    async def give_up(self, secret: str, who: EnrolmentCandidate) -> Enrolment | NotGood | ForAnother:
        """Handle the report of a pilot whose machine is unfit: it is not enrolled, and the secret of a launch is used up."""
        return await self._use(secret, who, give_up)

    async def _use(
        self, secret: str, who: EnrolmentCandidate, decide: EnrolmentDecider
    ) -> Enrolment | NotGood | ForAnother:
        def used(stored: StoredDocument | None) -> tuple[Document | None, Enrolment | NotGood | ForAnother]:
            # Called again after a write that was refused or unsure: the recorded pilot has used it, and may be this one.
            if stored is None:
                return None, NotGood()
            before = Enrolment.from_plain(stored.document.tenant, stored.document.body)
            after = decide(before, who, now=self.clock.now())
            if not isinstance(after, Enrolment) or after == before:
                return None, after
            return _document(secret, after), after

        unsure = "it is unknown who used the enrolment secret; try again"
        return await update_document(self.documents, _name(secret), used, unsure=unsure)


def _name(secret: str) -> str:
    return f"{KIND}:{digest(secret)}"


def _document(secret: str, enrolment: Enrolment) -> Document:
    return Document(_name(secret), enrolment.tenant, KIND, enrolment.as_plain())
