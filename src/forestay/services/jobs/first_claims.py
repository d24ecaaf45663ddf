"""Claims that are written together with their jobs: a waiting pilot gets a job in the same write that creates it.

The document looks as if the job had been queued and then claimed, with both lines in its story. The rule is that of every
claim: only an acknowledged write starts work. After an unclear result the document is read, and if it carries the claim a confirming
write settles it. If the job does not exist, the claim is dropped for ever and the job is created without one; if the first
write takes effect after all, the unknown claim is released again.
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
    """By job: the pilot's request, and the document with the claim."""
    closing: Callable[[FirstClaims[Asking]], None]
    status: dict[str, Stored] = field(default_factory=dict)
    """The acknowledged documents: these pilots have their jobs."""
    strays: list[Stored] = field(default_factory=list)
    """Claims that were dropped but are stored after all."""
    _dropped: set[str] = field(default_factory=set)

    def claimed(self, document: JobDocument) -> JobDocument:
        """The document to create: with its claim if it has one here."""
        known = self.claims.get(document.id)
        return document if known is None else known[1]

    def drop(self, job: str) -> None:
        """Drop the claim of a job that did not exist when it was read: it is never used again."""
        if job in self.claims:
            self._dropped.add(job)

    def settled(self, stored: Stored) -> None:
        """Called for each acknowledged document, which carries the claim or existed before."""
        known = self.claims.get(stored.document.id)
        held = stored.document.claim
        if known is None or held is None or known[1].claim is None or held.id != known[1].claim.id:
            return
        if stored.document.id in self._dropped:
            self.strays.append(stored)
        else:
            self.status[stored.document.id] = stored

    def close(self) -> None:
        """Answer the requests whose claims are stored; the others keep waiting."""
        self.closing(self)


class FirstClaimer(Protocol):
    """Gives jobs to waiting pilots in the write that creates them: `ClaimDispatcher`."""

    def claim_first(self, documents: Sequence[JobDocument]) -> FirstClaims[Any] | None:
        """Claims for jobs that are about to be created; None: no pilot waits."""
        ...
