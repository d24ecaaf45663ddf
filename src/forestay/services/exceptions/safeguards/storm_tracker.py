"""Tracks storms in the store: one document for each tenant counts failures and holds the canary of each group.

A handler that finds due failures reports them here first, a batch by one version-checked write, and only then requests to act on them. So all handlers
see one storm, however many handlers there are.

The outcome of an action that a canary permitted is read from the job itself (`look`), so that no outcome is lost with the handler that acted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

from forestay.domain.exceptions.safeguards import storm
from forestay.domain.exceptions.safeguards.canary import Canary, forget, let_all, outcome, try_again
from forestay.domain.exceptions.safeguards.storm import (
    FailureSignature,
    StormGroup,
    StormPolicy,
    Storms,
    Trial,
    with_canary,
)
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import NotFound, PortError, Transient
from forestay.ports.jobs.job_store import JobStore, Version, Written
from forestay.services.shared.quarantine import Quarantine

KIND = "storms"
TRIES = 50


class CanaryOutcome(NamedTuple):
    """The result of an action that a group's canary permitted; `well` is None: there will never be one."""

    group: str
    trial: Trial
    act: str
    well: bool | None


@dataclass(slots=True)
class StormTracker:
    """The service."""

    documents: DocumentStore
    store: JobStore
    clock: Clock
    policy: StormPolicy = field(default_factory=StormPolicy)
    every: float = 2.0
    troubled: Callable[[str], None] = lambda _text: None
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Counts what this loop could not handle."""

    async def run(self) -> None:
        """Poll the actions that canaries permitted, for all tenants; any number of reconcilers may run this."""
        while True:
            try:
                await self.look_at_all()
            except PortError as error:
                self.troubled(str(error))
            await asyncio.sleep(self.every)

    async def look_at_all(self) -> None:
        """Poll the storms of every tenant."""
        later = await self.quarantine.each(
            await self.documents.find(KIND),
            self._look_at,
            name=lambda stored: f"the storms of tenant {stored.document.tenant}",
            troubled=self.troubled,
        )
        if later is not None:
            raise later

    async def _look_at(self, stored: StoredDocument) -> None:
        if any(group.canaries for group in self.read(stored).groups):
            await self.look(stored.document.tenant)

    async def notice(self, tenant: str, signs: Sequence[FailureSignature]) -> Storms:
        """Count failures, each once, before any action on it is requested, however often the write has to be repeated."""
        batch = uuid4().hex
        return await self._change(tenant, lambda storms: storm.notice(storms, signs, self.clock.now(), batch=batch))

    async def groups(self, tenant: str) -> Sequence[StormGroup]:
        """The groups that are open now."""
        name = name_of(tenant)
        return self.read((await self.documents.get([name])).get(name)).groups

    async def tell(self, tenant: str, outcomes: Sequence[CanaryOutcome]) -> Storms:
        """Record the outcomes of actions. A group that is closed by now ignores them."""
        return await self._change(tenant, lambda storms: _with_outcomes(storms, outcomes))

    async def try_again(self, tenant: str, group: str, rule: str, fingerprint: str | None = None) -> StormGroup:
        """A person has looked: the rule is tried again, on one first: on an error of the group, or on each of its errors. `NotFound` if there is no such try."""
        return await self._decide(tenant, group, rule, fingerprint, try_again)

    async def let_all(self, tenant: str, group: str, rule: str, fingerprint: str | None = None) -> StormGroup:
        """A person has looked: the rule may act on all failures of an error of the group, or on the whole group, as far as the rate limits allow."""
        return await self._decide(tenant, group, rule, fingerprint, let_all)

    async def look(self, tenant: str) -> Sequence[CanaryOutcome]:
        """Read the jobs that canaries permitted, and record their outcomes."""
        waiting = [
            (group.id, trial, act)
            for group in await self.groups(tenant)
            for trial, canary in group.canaries.items()
            for act in canary.pending
        ]
        if not waiting:
            return ()
        names = sorted({act.rpartition("/")[0] for _, _, act in waiting})
        jobs = await self.quarantine.readable(self.store.get, names, self.troubled)
        outcomes: list[CanaryOutcome] = []
        for group, trial, act in waiting:
            job, _, attempt = act.rpartition("/")
            stored = jobs.get(job)
            verdict = _came_of(stored.document, int(attempt)) if stored is not None else "nothing"
            if verdict != "pending":
                outcomes.append(CanaryOutcome(group, trial, act, None if verdict == "nothing" else verdict == "well"))
        if outcomes:
            await self.tell(tenant, outcomes)
        return outcomes

    # -- the document ----------------------------------------------------------------------------------------------

    def read(self, stored: StoredDocument | None) -> Storms:
        """The present storms of a document."""
        storms = storm.from_plain(stored.document.body, self.policy) if stored is not None else Storms(self.policy)
        return storm.pass_time(storms, self.clock.now())

    def document(self, tenant: str, storms: Storms, stored: StoredDocument | None) -> tuple[Document, Version | None]:
        """The document with the storms, and the version over which to write it."""
        version = stored.version if stored is not None else None
        return Document(name_of(tenant), tenant, KIND, storm.as_plain(storms)), version

    async def _change(self, tenant: str, change: Callable[[Storms], Storms]) -> Storms:
        name = name_of(tenant)
        for _ in range(TRIES):
            stored = (await self.documents.get([name])).get(name)
            after = change(self.read(stored))
            (result,) = await self.documents.put([self.document(tenant, after, stored)])
            if isinstance(result, Written):
                return after
        raise Transient("the storm state could not be stored; try again")

    async def _decide(
        self, tenant: str, group: str, rule: str, fingerprint: str | None, change: Callable[[Canary], Canary]
    ) -> StormGroup:
        def decided(storms: Storms) -> Storms:
            storm_group = next((other_group for other_group in storms.groups if other_group.id == group), None)
            canaries: Mapping[Trial, Canary] = storm_group.canaries if storm_group is not None else {}
            tried = [trial for trial in canaries if trial.rule == rule and fingerprint in (None, trial.fingerprint)]
            if not tried:
                raise NotFound(f"rule {rule or 'of the retry policy'} is not being tried on a group {group}")
            for trial in tried:
                storms = with_canary(storms, group, trial, change(canaries[trial]))
            return storms

        after = await self._change(tenant, decided)
        return next(storm_group for storm_group in after.groups if storm_group.id == group)


def name_of(tenant: str) -> str:
    return f"storms:{tenant}"


def _with_outcomes(storms: Storms, outcomes: Sequence[CanaryOutcome]) -> Storms:
    for group, trial, act, well in outcomes:
        storm_group = next((other_group for other_group in storms.groups if other_group.id == group), None)
        canaries: Mapping[Trial, Canary] = storm_group.canaries if storm_group is not None else {}
        if trial in canaries:
            known = canaries[trial]
            storms = with_canary(
                storms, group, trial, forget(known, act) if well is None else outcome(known, act, well=well)
            )
    return storms


def _came_of(document: JobDocument, attempt: int) -> str:
    """The outcome of an action on a job whose attempt of that number had faulted."""
    if document.state is State.COMPLETED:
        return "well"
    if document.state in (State.CANCELLED, State.FORCED_COMPLETE):
        return "nothing"
    if document.state is State.FAILED or (document.state is State.FAULTED and document.attempt > attempt):
        return "bad"
    return "pending"
