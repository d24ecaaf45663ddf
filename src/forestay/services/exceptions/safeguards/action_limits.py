"""The limits that all handlers share: handlers ask here before each action for tokens of the rate limits, and whether a storm or the emergency stop forbids it.

A rate limit is a bucket: a document for each (tenant, limit). A handler leases the tokens for a batch of actions, and some more, by one version-checked write of all
buckets, and spends the extra ones later, so that most single actions lease nothing. Unspent tokens return to the bucket when the lease ends; a handler that dies keeps its
tokens for that time and no longer. A write without a clear result is given up: if it took place, its tokens are lost for the time of the lease, never spent twice.

Storms are tracked in one document for each tenant, which counts failures and holds the canary of each group. A handler that finds due failures reports them here first, a batch by one
version-checked write, and only then requests to act on them. So all handlers see one storm, however many handlers there are. The outcome of an action that a canary permitted is read from the job
itself (`look`), so that no outcome is lost with the handler that acted.

The emergency stop is a document too, a switch for each tenant and one for all; it contains who set it and why. It applies to every action whose permit is requested after the
stop was acknowledged. Actions that were permitted before may still be carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple, cast
from uuid import uuid4

from forestay.domain.exceptions.safeguards import storm
from forestay.domain.exceptions.safeguards.canary import Canary, forget, let_all, outcome, try_again
from forestay.domain.exceptions.safeguards.rate_limit import (
    Bucket,
    BucketName,
    LeasedTokens,
    Meter,
    TokenLease,
    bucket_of,
    settle,
)
from forestay.domain.exceptions.safeguards.safeguards import (
    EVERY_TENANT,
    ActionGranted,
    ActionRefused,
    ActionRequest,
    SafeguardPolicy,
    SafeguardState,
    Stop,
    add_tokens,
    plan,
    prices,
    spend,
)
from forestay.domain.exceptions.safeguards.storm import (
    FailureSignature,
    StormGroup,
    StormPolicy,
    Storms,
    Trial,
    with_canary,
)
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.ports.clock import Clock, Ids
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import Conflict, NotFound, PortError, Transient
from forestay.ports.jobs.job_store import JobStore, Version, Written
from forestay.services.shared.document_update import update_document
from forestay.services.shared.quarantine import Quarantine

KIND = "safeguard"
TRIES = 50


@dataclass(slots=True)
class ActionLimits:
    """The service; one for each handler."""

    documents: DocumentStore
    storms: StormTracker
    clock: Clock
    ids: Ids
    policy: SafeguardPolicy = field(default_factory=SafeguardPolicy)
    granted: int = 0
    refused: int = 0
    leases: int = 0
    """The number of times tokens were leased, for metrics and tests."""
    _local_tokens: Mapping[BucketName, tuple[LeasedTokens, ...]] = field(default_factory=lambda: MappingProxyType({}))
    _leased: dict[str, float] = field(default_factory=dict)
    """When each lease was requested, by this process's monotonic clock."""
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def permit(
        self, requests: Sequence[ActionRequest], noticed: Sequence[tuple[str, FailureSignature]] = ()
    ) -> Sequence[ActionGranted | ActionRefused]:
        """Request permits for actions; returns one answer for each, in order. `Transient` if the store does not answer: then no action is permitted.

        `noticed`: failures, each with its tenant, that are counted for storms by the same write, before anything is answered; pass each once. A granted
        action has used its tokens, whether it is then carried out or not. Everything is read at once and written at once.
        """
        answers: dict[int, ActionGranted | ActionRefused] = {}
        async with self._asking:
            for tenant in dict.fromkeys(
                [*(request.tenant for request in requests), *(tenant for tenant, _ in noticed)]
            ):
                places = [place for place, request in enumerate(requests) if request.tenant == tenant]
                signs = [sign for whose, sign in noticed if whose == tenant]
                found_answers = await self._permit(tenant, [requests[place] for place in places], signs)
                answers |= dict(zip(places, found_answers, strict=True))
        out = [answers[place] for place in range(len(requests))]
        self.granted += sum(1 for answer in out if isinstance(answer, ActionGranted))
        self.refused += sum(1 for answer in out if isinstance(answer, ActionRefused))
        return out

    async def give_back(self) -> None:
        """Return unspent tokens, for a handler that ends. Tokens that cannot be returned expire with their lease."""
        async with self._asking:
            local_tokens, self._local_tokens = self._local_tokens, MappingProxyType({})
            for name, leased_tokens in local_tokens.items():
                try:
                    await self._settle(name, leased_tokens)
                except PortError:
                    return

    async def buckets(self, tenant: str) -> Mapping[BucketName, Bucket]:
        """The buckets of a tenant that have been used, and the one for all; up to a second old."""
        stored_documents = await self.documents.find(KIND)
        named = {
            _name(stored_document): stored_document.document.body
            for stored_document in stored_documents
            if stored_document.document.tenant in (tenant, "")
        }
        return {name: bucket_of(body, self.policy.limit(name.meter)) for name, body in named.items()}

    # -- one tenant's actions ----------------------------------------------------------------------------------

    async def _permit(
        self, tenant: str, requests: Sequence[ActionRequest], signs: Sequence[FailureSignature]
    ) -> Sequence[ActionGranted | ActionRefused]:
        names = dict.fromkeys(name for request in requests for name, _ in prices(request))
        limits = {name: self.policy.limit(name.meter) for name in names}
        documents = {name: name.document for name in names}
        group = name_of(tenant)
        # The documents are written together but independently: when a bucket conflicts, the storms may be written already.
        batch = self.ids.claim()
        for tried in range(TRIES):
            began = self.clock.monotonic()
            stored_documents = await self.documents.get([*stop_names(tenant), group, *documents.values()])
            self._throw_away()
            now = self.clock.now()
            before = self.storms.read(stored_documents.get(group))
            storms = storm.notice(before, signs, now, batch=batch) if signs else before
            safeguards = SafeguardState(self.policy, stops_in(stored_documents.values()), storms, self._local_tokens)
            bodies = {
                name: stored_documents[key].document.body for name, key in documents.items() if key in stored_documents
            }
            buckets = {name: bucket_of(bodies.get(name), limit) for name, limit in limits.items()}
            planned = plan(safeguards, buckets, requests, now, {name: self.ids.claim() for name in names})
            wanted = [
                _document(name, bucket, stored_documents.get(documents[name]))
                for name, (bucket, _) in planned.leases.items()
            ]
            if planned.storms != before:
                wanted.append(self.storms.document(tenant, planned.storms, stored_documents.get(group)))
            if await self._write(wanted, planned.leases, now, began):
                self._spend(planned.needs, now)
                return planned.answers
            await asyncio.sleep(0.001 * min(tried, 20))  # others lease from the same buckets
        raise Transient("too many concurrent requests for actions; try again")

    async def _write(
        self,
        documents: Sequence[tuple[Document, Version | None]],
        leases: Mapping[BucketName, tuple[Bucket, TokenLease]],
        now: int,
        began: float,
    ) -> bool:
        """Write the plan; True if all of it was written. Leased tokens are in the local tokens in any case."""
        results = await self.documents.put(documents) if documents else ()
        for (name, (_, leased)), result in zip(leases.items(), results, strict=False):
            if isinstance(result, Written):
                self.leases += 1
                own = replace(leased, until=min(leased.until, now + self.policy.lasts))
                self._leased[own.id] = began
                self._local_tokens = add_tokens(
                    SafeguardState(local_tokens=self._local_tokens), name, own, now
                ).local_tokens
        return all(isinstance(result, Written) for result in results)

    def _spend(self, needs: Mapping[BucketName, int], now: int) -> None:
        spent = {name: spend(self._local_tokens[name], tokens, now) for name, tokens in needs.items()}
        self._local_tokens = MappingProxyType({**self._local_tokens, **spent})

    # -- buckets -----------------------------------------------------------------------------------------------

    async def _settle(self, name: BucketName, leased_tokens: Iterable[LeasedTokens]) -> None:
        document = name.document
        for _ in range(TRIES):
            stored = (await self.documents.get([document])).get(document)
            if stored is None:
                return
            bucket = Bucket.from_plain(stored.document.body)
            for leased_token in leased_tokens:
                spent = leased_token.lease.tokens - leased_token.left
                bucket = settle(bucket, name=leased_token.lease.id, spent=spent, now=self.clock.now())
            (result,) = await self.documents.put([_document(name, bucket, stored)])
            if isinstance(result, Written):
                return

    def _throw_away(self) -> None:
        """Forget leases that are over by this process's monotonic clock, whatever the wall clock says."""
        steady = self.clock.monotonic()
        lasts = self.policy.lasts / 1000
        self._leased = {lease: began for lease, began in self._leased.items() if steady - began < lasts}
        kept = {
            name: tuple(leased_token for leased_token in leased_tokens if leased_token.lease.id in self._leased)
            for name, leased_tokens in self._local_tokens.items()
        }
        self._local_tokens = MappingProxyType(
            {name: leased_tokens for name, leased_tokens in kept.items() if leased_tokens}
        )


def _document(name: BucketName, bucket: Bucket, stored: StoredDocument | None) -> tuple[Document, Version | None]:
    body = {"name": list(name), **bucket.as_plain()}
    return Document(name.document, name.tenant, KIND, body), stored.version if stored is not None else None


def _name(stored: StoredDocument) -> BucketName:
    meter, tenant, key = cast("Sequence[str]", stored.document.body["name"])
    return BucketName(Meter(meter), tenant, key)


STOP_KIND = "stop"
STOP_TRIES = 10


@dataclass(slots=True)
class EmergencyStop:
    """Sets and lifts stops."""

    documents: DocumentStore
    clock: Clock

    async def stop(self, tenant: str, *, by: str, why: str) -> Stop:
        """Stop all actions of a tenant, or of all (`EVERY_TENANT`). If a stop is set already, the first one is kept."""
        wanted = Stop(tenant, by, why, self.clock.now())
        return await self._set(tenant, wanted) or wanted

    async def go(self, tenant: str) -> Stop:
        """Lift a stop and return it; `Conflict` if there was none."""
        stopped = await self._set(tenant, None)
        if stopped is None:
            raise Conflict("nothing is stopped" if tenant == EVERY_TENANT else f"nothing is stopped in {tenant}")
        return stopped

    async def stops(self, tenant: str) -> Sequence[Stop]:
        """The stops that apply to a tenant now."""
        return stops_in((await self.documents.get(stop_names(tenant))).values())

    async def _set(self, tenant: str, wanted: Stop | None) -> Stop | None:
        """Set a switch and return its former value."""
        name = _stop_name(tenant)

        def switched(stored: StoredDocument | None) -> tuple[Document | None, Stop | None]:
            before = next(iter(stops_in([stored])), None) if stored is not None else None
            if (before is None) == (wanted is None):
                return None, before
            return Document(name, tenant, STOP_KIND, {"stop": wanted.as_plain() if wanted else None}), before

        return await update_document(
            self.documents, name, switched, tries=STOP_TRIES, unsure="the stop could not be stored; try again"
        )


def _stop_name(tenant: str) -> str:
    return f"stop:{tenant}"


def stop_names(tenant: str) -> list[str]:
    """The names of the documents that hold the stops of a tenant."""
    return [_stop_name(EVERY_TENANT), _stop_name(tenant)]


def stops_in(stored_documents: Iterable[StoredDocument]) -> tuple[Stop, ...]:
    """The stops among documents that were read."""
    bodies = [
        stored_document.document.body.get("stop")
        for stored_document in stored_documents
        if stored_document.document.kind == STOP_KIND
    ]
    return tuple(Stop.from_plain(body) for body in bodies if isinstance(body, Mapping))


STORMS = "storms"


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
            await self.documents.find(STORMS),
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
        return Document(name_of(tenant), tenant, STORMS, storm.as_plain(storms)), version

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
