"""Claims that are written together with their jobs: a waiting pilot gets a job in the same write that creates it.

The document comes to be as if the job had been queued and then claimed, with both lines in its story. The law is that of every
claim: only an acknowledged write starts work. After an unclear answer the document is read, and if it carries the claim a confirming
write settles it. If the job is not there, the claim is dropped for ever and the job is created without one; should the first
write take effect after all, the claim that nobody knows of is taken away again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from forestay.domain.jobs.job_document import JobDocument
from forestay.ports.jobs.job_store import Stored

Asking = TypeVar("Asking")


@dataclass(slots=True)
class FirstClaims(Generic[Asking]):
    """The claims of one creating write. The writer must close them, whatever the result."""

    claims: dict[str, tuple[Asking, JobDocument]]
    """By job: whose request it is for, and the document with the claim."""
    closing: Callable[[FirstClaims[Asking]], None]
    status: dict[str, Stored] = field(default_factory=dict)
    """Acknowledged: these pilots have their jobs."""
    strays: list[Stored] = field(default_factory=list)
    """Claims that were dropped and yet stand."""
    _dropped: set[str] = field(default_factory=set)

    def claimed(self, document: JobDocument) -> JobDocument:
        """The document to create: with its claim if it has one here."""
        known = self.claims.get(document.id)
        return document if known is None else known[1]

    def drop(self, job: str) -> None:
        """The job was not there when it was looked for: its claim is never used again."""
        if job in self.claims:
            self._dropped.add(job)

    def settled(self, stored: Stored) -> None:
        """A document was acknowledged; it may carry the claim, or be another's that was there before."""
        known = self.claims.get(stored.document.id)
        held = stored.document.claim
        if known is None or held is None or known[1].claim is None or held.id != known[1].claim.id:
            return
        if stored.document.id in self._dropped:
            self.strays.append(stored)
        else:
            self.status[stored.document.id] = stored

    def close(self) -> None:
        """Answer the requests whose claims stand; the others wait on."""
        self.closing(self)


class FirstClaimer(Protocol):
    """Gives jobs to waiting pilots in the write that creates them: `ClaimDispatcher`."""

    def claim_first(self, documents: Sequence[JobDocument]) -> FirstClaims[Any] | None:
        """Claims for jobs that are about to be created; None: no pilot waits."""
        ...
