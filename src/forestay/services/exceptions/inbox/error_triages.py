"""Stores the triage state of errors: one version-checked document for each error that somebody has triaged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from forestay.domain.exceptions.incidents.error_triage import QUIET, ErrorState, ErrorTriage, TriageAct
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.services.shared.document_update import update_document

KIND = "error-triage"
UNTOUCHED = ErrorTriage()
"""The state of an error that nobody has triaged."""


@dataclass(slots=True)
class ErrorTriages:
    """The service."""

    documents: DocumentStore
    clock: Clock

    async def get(self, tenant: str, fingerprints: Iterable[str]) -> Mapping[str, ErrorTriage]:
        """The triage states of those errors that have one."""
        names = {_name(tenant, fingerprint): fingerprint for fingerprint in fingerprints if fingerprint}
        found = await self.documents.get(sorted(names)) if names else {}
        return {names[name]: _triage(stored) for name, stored in found.items()}

    async def quiet(self, tenant: str, last_seen: Mapping[str, int]) -> frozenset[str]:
        """The errors that are snoozed, or resolved and not seen since; `last_seen`: when each happened last."""
        now = self.clock.now()
        triages = await self.get(tenant, last_seen)
        return frozenset(name for name, triage in triages.items() if triage.state_at(now, last_seen[name]) in QUIET)

    async def snoozed(self, tenant: str) -> frozenset[str]:
        """All errors that are snoozed now; as the store's searches have it."""
        now, prefix = self.clock.now(), _name(tenant, "")
        return frozenset(
            stored.document.id.removeprefix(prefix)
            for stored in await self.documents.find(KIND, tenant=tenant)
            if _triage(stored).state_at(now, 0) is ErrorState.SNOOZED
        )

    async def say(
        self,
        tenant: str,
        fingerprint: str,
        act: TriageAct,
        *,
        by: str,
        why: str,
        assignee: str = "",
        until: int = 0,
    ) -> ErrorTriage:
        """Record a person's triage; `Transient` if the store does not accept it."""
        name, now = _name(tenant, fingerprint), self.clock.now()

        def changed(stored: StoredDocument | None) -> tuple[Document, ErrorTriage]:
            before = _triage(stored) if stored is not None else UNTOUCHED
            triage = before.after(act, by=by, at=now, why=why, assignee=assignee, until=until)
            return Document(name, tenant, KIND, asdict(triage)), triage

        unsure = "it is not certain that this was recorded; look at the error again"
        return await update_document(self.documents, name, changed, unsure=unsure)


def _name(tenant: str, fingerprint: str) -> str:
    return f"{KIND}:{tenant}:{fingerprint}"


def _triage(stored: StoredDocument) -> ErrorTriage:
    body: dict[str, Any] = dict(stored.document.body)
    return ErrorTriage(**{**body, "state": ErrorState(body["state"])})
