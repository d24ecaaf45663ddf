"""Fair shares of the owners of a tenant, where an operator has set a half-life for use of the past.

Every few seconds the running cores are counted in the store, by queue lane. One server, whichever comes first, writes the averages for all. Between two
counts each server adds what it gives itself, so servers differ by at most what the others gave meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from forestay.domain.jobs.job_document import JobDocument, State, lane_named
from forestay.domain.jobs.resources import most_cores_of_class
from forestay.domain.scheduling.fair_share import SharePressure, averaged, of_teams, pressure
from forestay.domain.scheduling.quota import QuotaPolicy
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import PortError
from forestay.ports.jobs.job_store import JobQuery, JobStore
from forestay.services.scheduling.quota_policies import QuotaPolicies

KIND = "fair-share"
AVERAGED_EVERY = 10_000
"""Milliseconds between two writes of the averages."""
LOOK_FOR_LEFT = 3600.0
"""How often a domain without shares looks for averages to remove, in seconds."""


class ShareUse(NamedTuple):
    """What an owner uses and used, in cores."""

    running: float
    recent: float


@dataclass(slots=True)
class TenantShares:
    """What the owners and teams of a tenant use, as counted, with what was given here since."""

    policy: QuotaPolicy
    running: Mapping[str, float]
    recent: Mapping[str, float]
    of_owners: dict[str, float]
    of_teams: dict[str, float]

    def pressure(self, owner: str) -> SharePressure:
        return pressure(self.policy, owner, self.of_owners, self.of_teams)

    def add(self, owner: str, cores: float) -> None:
        self.of_owners[owner] = self.of_owners.get(owner, 0.0) + cores
        if team := self.policy.teams.get(owner):
            self.of_teams[team] = self.of_teams.get(team, 0.0) + cores


@dataclass(slots=True)
class FairShares:
    """The service."""

    documents: DocumentStore
    store: JobStore
    clock: Clock
    policies: QuotaPolicies
    every: float = 3.0
    _tenants: dict[str, TenantShares] = field(default_factory=dict)
    _looked: float = -1e9

    @property
    def active(self) -> bool:
        """Whether any tenant has shares."""
        return bool(self._tenants)

    def of(self, queue: str) -> TenantShares | None:
        """The shares of a queue's tenant; None: owners take turns."""
        return self._tenants.get(queue.partition(">")[0])

    def uses(self, tenant: str) -> Mapping[str, ShareUse]:
        """What each owner of a tenant uses and used, as counted last."""
        shares = self._tenants.get(tenant)
        if shares is None:
            return {}
        return {
            owner: ShareUse(shares.running.get(owner, 0.0), shares.recent.get(owner, 0.0))
            for owner in sorted(shares.running.keys() | shares.recent.keys())
        }

    def chosen(self, document: JobDocument) -> None:
        """Count a job that is given here, until the store shows it."""
        shares = self._tenants.get(document.tenant)
        if shares is not None:
            shares.add(document.owner, document.resources.used_cores)

    async def run(self) -> None:
        """Count for ever, while a tenant has shares."""
        while True:
            with suppress(PortError):  # the last counts apply
                await self.refresh()
            await asyncio.sleep(self.every)

    async def refresh(self) -> None:
        """Count what runs, and keep the averages."""
        sharing = {tenant: policy for tenant, policy in self.policies.policies.items() if policy.half_life}
        for tenant in self._tenants.keys() - sharing.keys():
            del self._tenants[tenant]
        for tenant, policy in sharing.items():
            await self._count(tenant, policy)
        if self.policies.known and self.clock.monotonic() - self._looked >= LOOK_FOR_LEFT:
            left = [stored for stored in await self.documents.find(KIND) if stored.document.tenant not in sharing]
            if left:
                await self.documents.remove(left)
            self._looked = self.clock.monotonic()

    async def _count(self, tenant: str, policy: QuotaPolicy) -> None:
        running: dict[str, float] = {}
        query = JobQuery(tenant=tenant, states=frozenset({State.RUNNING}))
        for name, jobs in (await self.store.count(query, by="lane")).items():
            lane = lane_named(name)
            running[lane.owner] = running.get(lane.owner, 0.0) + jobs * most_cores_of_class(lane.resource_class)
        recent = await self._averages(tenant, policy, running)
        both = {owner: running.get(owner, 0.0) + recent.get(owner, 0.0) for owner in running.keys() | recent.keys()}
        self._tenants[tenant] = TenantShares(policy, running, recent, both, of_teams(policy, both))

    async def _averages(self, tenant: str, policy: QuotaPolicy, running: Mapping[str, float]) -> Mapping[str, float]:
        """The averages of a tenant, written anew if they are old; if another server was quicker, its own are read the next time."""
        name, now = f"{KIND}:{tenant}", self.clock.now()
        stored = (await self.documents.get([name])).get(name)
        recent, at = _averages_from(stored) if stored is not None else ({}, now)
        if stored is not None and now - at < AVERAGED_EVERY:
            return recent
        after = averaged(recent, running, (now - at) / 1000, policy.half_life)
        await self.documents.put(
            [(Document(name, tenant, KIND, {"at": now, "recent": after}), stored.version if stored else None)]
        )
        return after


def _averages_from(stored: StoredDocument) -> tuple[dict[str, float], int]:
    body = cast("Mapping[str, Any]", stored.document.body)
    return dict(body["recent"]), body["at"]
