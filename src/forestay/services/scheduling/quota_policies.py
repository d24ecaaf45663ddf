"""The quotas, teams and shares of every tenant: set by operators, read by every server once a second.

One document for each tenant. A server without any reads one short answer and does nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from forestay.domain.scheduling.quota import QuotaLimits, QuotaPolicy, QuotaSubject
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Conflict
from forestay.services.shared.document_update import update_document

KIND = "quota-policy"
MAX_CACHED = 10_000
"""Owners whose quotas are kept at hand: they are looked up for every candidate."""


@dataclass(slots=True)
class QuotaPolicies:
    """The service."""

    documents: DocumentStore
    known: bool = False
    """Whether the policies were read at all."""
    policies: Mapping[str, QuotaPolicy] = field(default_factory=dict)
    """By tenant; tenants without a policy are left out."""
    _limited: dict[tuple[str, str], tuple[tuple[QuotaSubject, QuotaLimits], ...]] = field(default_factory=dict)

    def of(self, tenant: str) -> QuotaPolicy | None:
        return self.policies.get(tenant)

    def limited(self, tenant: str, owner: str) -> tuple[tuple[QuotaSubject, QuotaLimits], ...]:
        """The quotas that the jobs of an owner count in."""
        key = tenant, owner
        known = self._limited.get(key)
        if known is None:
            policy = self.policies.get(tenant)
            known = policy.limited(owner) if policy is not None else ()
            if len(self._limited) >= MAX_CACHED:
                self._limited.clear()
            self._limited[key] = known
        return known

    def _set(self, policies: Mapping[str, QuotaPolicy]) -> None:
        self.policies = policies
        self._limited.clear()

    async def refresh(self) -> bool:
        """Read all policies; returns whether one has changed."""
        before, was_known = self.policies, self.known
        names = {stored.document.id for stored in await self.documents.find(KIND)}
        # What was set here a moment ago may be missing in a search.
        names |= {document_name(tenant) for tenant in self.policies}
        stored = await self.documents.get(sorted(names)) if names else {}
        policies = {
            policy.document.tenant: found for policy in stored.values() if not (found := _policy_from(policy)).empty
        }
        self.known = True
        if policies != before:
            self._set(policies)
        return self.policies is not before or not was_known

    async def read(self, tenant: str) -> QuotaPolicy:
        """The policy of one tenant, read now."""
        name = document_name(tenant)
        stored = (await self.documents.get([name])).get(name)
        return _policy_from(stored) if stored is not None else QuotaPolicy()

    async def change(self, tenant: str, change: Callable[[QuotaPolicy], QuotaPolicy | str]) -> QuotaPolicy:
        """Change the policy of a tenant; one without content is removed. `Conflict` if it would become too large."""
        name = document_name(tenant)

        def changed(stored: StoredDocument | None) -> tuple[Document | None, QuotaPolicy]:
            before = _policy_from(stored) if stored is not None else QuotaPolicy()
            after = change(before)
            if isinstance(after, str):
                raise Conflict(after)
            return (None if after == before else Document(name, tenant, KIND, after.to_dict())), after

        unsure = "the quotas could not be stored; try again"
        after = await update_document(self.documents, name, changed, unsure=unsure)
        if after.empty:
            stored = (await self.documents.get([name])).get(name)
            if stored is not None and _policy_from(stored).empty:
                await self.documents.remove([stored])
        others = {known: policy for known, policy in self.policies.items() if known != tenant}
        self._set(others if after.empty else {**others, tenant: after})
        return after


def document_name(tenant: str) -> str:
    return f"{KIND}:{tenant}"


def _policy_from(stored: StoredDocument) -> QuotaPolicy:
    return QuotaPolicy.from_dict(cast("Mapping[str, Any]", stored.document.body))
