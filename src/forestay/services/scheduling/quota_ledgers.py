"""Quotas in the claim path: an attempt is entered in the ledgers of its owner and team before its claim is written, and removed when it has ended.

Each ledger is one version-checked document of the whole domain, as a licence is (`licence_seats`), with the same order of writes: never are more claims
written than a quota allows, and what a dead server left is removed only after a confirming write on the job. What was claimed without an entry, before a quota
was set or by a server of an older release, is entered by comparing the number of running jobs with the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from forestay.domain.jobs.job_document import JobDocument, QueueLane, State
from forestay.domain.jobs.resources import least_of_class
from forestay.domain.scheduling.quota import (
    QuotaCharge,
    QuotaHolder,
    QuotaKind,
    QuotaLedger,
    QuotaLimits,
    QuotaPolicy,
    QuotaSubject,
    QuotaUse,
    ask,
    charge,
    discharge,
    others_ask,
    use_of,
    why_waiting,
)
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import PortError
from forestay.ports.jobs.job_store import JobQuery, JobStore, Stored, Version, Written
from forestay.services.scheduling.licence_seats import WantedSeats, attempt_is_over
from forestay.services.scheduling.quota_policies import QuotaPolicies
from forestay.services.shared.background_tasks import BackgroundTasks
from forestay.services.shared.checked_writer import WriteListener, Writer
from forestay.services.shared.document_update import update_document

KIND = "quota-ledger"
OLD = 30_000
"""Milliseconds after which entries without a claim are checked: claims are normally written sooner."""
UNUSED = 86_400_000
"""Milliseconds after which an empty ledger is removed: no server still holds a version of it."""
SWEEP_EVERY = 15.0
SWEEP_AFTER_CHANGE = 3.0
"""Seconds after a change of a policy: by then every server knows it, and has written what it claimed before."""
LOOK_FOR_LEFT = 3600.0
"""How often a domain without quotas looks for ledgers to remove, in seconds."""
ASK_EVERY = 5.0
"""Seconds between two notes in a ledger that jobs of this server wait for it."""
YIELD_EVERY = 10.0
"""Seconds between two times at which a server leaves what became free to others."""
THOROUGH = 20
"""In one of so many rounds every entry is checked, also where its number is right."""
PAGE = 500
_Key = tuple[str, QuotaSubject]


class QuotaState(NamedTuple):
    """A quota and what is used of it."""

    subject: QuotaSubject
    limits: QuotaLimits
    used: QuotaUse


@dataclass(slots=True)
class QuotaLedgers(WriteListener):
    """The service."""

    documents: DocumentStore
    store: JobStore
    writer: Writer
    clock: Clock
    policies: QuotaPolicies
    server: str = ""
    alone: Callable[[], bool] = lambda: True
    """Whether there is no other server."""
    every: float = 1.0
    changed: Callable[[], None] = lambda: None
    """Called when a part of a quota became free."""
    denied: int = 0
    """Claims that were not made because a quota was used up."""
    swept: int = 0
    """Entries of dead servers that were removed."""
    adopted: int = 0
    """Running attempts that were entered after their claim."""
    _used: dict[_Key, QuotaUse] = field(default_factory=dict)
    """What each ledger said last."""
    _read_at: dict[_Key, float] = field(default_factory=dict)
    _blocked: set[_Key] = field(default_factory=set)
    """The ledgers that kept jobs waiting since they were read."""
    _asked_at: dict[_Key, float] = field(default_factory=dict)
    _yielding: dict[_Key, float] = field(default_factory=dict)
    """Since when what became free is left to others."""
    _reserved: dict[_Key, QuotaUse] = field(default_factory=dict)
    """What is chosen here and not yet entered."""
    _leaving: dict[_Key, set[str]] = field(default_factory=dict)
    _returning: set[_Key] = field(default_factory=set)
    _sweep_at: float = 0.0
    _rounds: int = 0
    _background: BackgroundTasks = field(default_factory=BackgroundTasks)

    # -- the copy ----------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether no tenant has a policy, for certain."""
        return self.policies.known and not self.policies.policies

    def applies(self, document: JobDocument) -> bool:
        """Whether a job counts in a quota; True as long as that is not known."""
        return not self.policies.known or bool(self._limited(document.tenant, document.owner))

    def exhausted(self, document: JobDocument) -> bool:
        """Whether a job cannot be claimed now because of a quota, according to the copy."""
        return bool(self.policies.policies) and self._lacks(document.tenant, document.owner, use_of(document.resources))

    def closed(self, lane: QueueLane) -> bool:
        """Whether no job of a lane can be claimed now because of a quota, according to the copy."""
        if not self.policies.policies:
            return False
        tenant = lane.tenant.partition(">")[0]
        return self._lacks(tenant, lane.owner, use_of(least_of_class(lane.resource_class)))

    def room(self, lane: QueueLane) -> int | None:
        """How many more jobs of a lane may run now, according to the copy; None: any number."""
        need = use_of(least_of_class(lane.resource_class))
        rooms = (
            limits.room(self._used.get((lane.tenant, subject), QuotaUse()), need)
            for subject, limits in self._limited(lane.tenant, lane.owner)
        )
        return min((room for room in rooms if room is not None), default=None)

    async def waits_for(self, document: JobDocument) -> str:
        """The quota that a job waits for, as text, as of this second; empty for none."""
        now = self.clock.monotonic()
        keys = [(document.tenant, subject) for subject, _ in self._limited(document.tenant, document.owner)]
        if old := [key for key in keys if now - self._read_at.get(key, -1e9) >= self.every]:
            await self._read(old)
        return self.missing(document)

    def missing(self, document: JobDocument) -> str:
        """The same, according to the copy."""
        for subject, limits in self._limited(document.tenant, document.owner):
            used = self._used.get((document.tenant, subject), QuotaUse())
            if words := why_waiting(subject, limits, used, use_of(document.resources)):
                return words
        return ""

    def _limited(self, tenant: str, owner: str) -> tuple[tuple[QuotaSubject, QuotaLimits], ...]:
        return self.policies.limited(tenant, owner) if self.policies.policies else ()

    def _lacks(self, tenant: str, owner: str, need: QuotaUse) -> bool:
        for subject, limits in self._limited(tenant, owner):
            key = tenant, subject
            used = self._used.get(key, QuotaUse())
            if reserved := self._reserved.get(key):
                used = used.plus(reserved)
            if limits.lacking(used, need) or self._yields(key):
                self._blocked.add(key)
                return True
        return False

    def _yields(self, key: _Key) -> bool:
        """Whether a ledger is left to other servers for a moment. They see what became free here up to a second later: they would never get any."""
        since = self._yielding.get(key) if self._yielding else None
        return since is not None and self.clock.monotonic() - since < 1.5 * self.every

    def reserve(self, document: JobDocument) -> None:
        """Count a job that was chosen here until it is entered: a bulk must not choose more than can be entered."""
        for subject, _limits in self._limited(document.tenant, document.owner):
            key = document.tenant, subject
            self._reserved[key] = self._reserved.get(key, QuotaUse()).plus(use_of(document.resources))

    async def run(self) -> None:
        """Keep the copy fresh, and the ledgers in order."""
        self._sweep_at = self.clock.monotonic() + SWEEP_EVERY
        try:
            while True:
                with suppress(PortError):  # nothing can be claimed at such times either
                    await self._look()
                await asyncio.sleep(self.every)
        finally:
            self._background.stop()

    async def _look(self) -> None:
        if await self.policies.refresh():
            self._reserved.clear()  # what counts where may be different now
            self._sweep_at = min(self._sweep_at, self.clock.monotonic() + SWEEP_AFTER_CHANGE)
            self.changed()
        if self.policies.policies:
            await self.refresh()
        if self.clock.monotonic() >= self._sweep_at:
            await self.put_in_order()
            wait = SWEEP_EVERY if self.policies.policies else LOOK_FOR_LEFT
            self._sweep_at = self.clock.monotonic() + wait

    async def refresh(self) -> None:
        """Read the ledgers that kept jobs waiting since the last time. Others are read when attempts are entered."""
        blocked, self._blocked = self._blocked, set()
        if blocked:
            freed = await self._read(blocked)
            now = self.clock.monotonic()
            for key in () if self.alone() else sorted(blocked - freed):
                if now - self._asked_at.get(key, -1e9) >= ASK_EVERY:
                    self._asked_at[key] = now
                    await self._ask(key)

    async def _ask(self, key: _Key) -> None:
        def change(stored: StoredDocument | None) -> tuple[Document | None, None]:
            ledger = ledger_from(stored) if stored is not None else None
            return (document_of(ask(ledger, self.server, self.clock.now())) if ledger is not None else None), None

        await update_document(self.documents, document_name(*key), change, unsure=f"quota of {key[1]}")

    async def _read(self, keys: Collection[_Key]) -> frozenset[_Key]:
        """Read ledgers; returns those of which more is free than before."""
        stored = await self.documents.get([document_name(*key) for key in keys])
        freed = set[_Key]()
        for key in keys:
            found = stored.get(document_name(*key))
            ledger = ledger_from(found) if found is not None else None
            used = ledger.used if ledger is not None else QuotaUse()
            if max(self._used.get(key, QuotaUse()).minus(used)) > 0:
                freed.add(key)
            self._used[key], self._read_at[key] = used, self.clock.monotonic()
        if freed:
            self.changed()
        return frozenset(freed)

    # -- entering and removing ---------------------------------------------------------------------------------

    async def take(self, wanted: Sequence[WantedSeats]) -> frozenset[str]:
        """Enter attempts that are about to be claimed; returns the claims that may be written. The others are in no ledger."""
        try:
            if not self.policies.known:
                await self.policies.refresh()
        except PortError:
            return frozenset()
        asked: dict[_Key, tuple[QuotaLimits, list[QuotaCharge]]] = {}
        for claim, document in wanted:
            for subject, limits in self._limited(document.tenant, document.owner):
                _, charges = asked.setdefault((document.tenant, subject), (limits, []))
                charges.append(QuotaCharge(claim, document.id, use_of(document.resources)))
        granted = {want.claim for want in wanted}
        entered: dict[_Key, frozenset[str]] = {}
        if asked:
            try:
                stored = await self.documents.get([document_name(*key) for key in asked])
            except PortError:
                return frozenset()
            entered = await self._take_all(asked, stored, granted)
        self.denied += len(wanted) - len(granted)
        for key, claims in entered.items():
            if lost := claims - granted:
                await self._discharge(key, set(lost))
        return frozenset(granted)

    async def _take_all(
        self,
        asked: Mapping[_Key, tuple[QuotaLimits, Sequence[QuotaCharge]]],
        stored: Mapping[str, StoredDocument],
        granted: set[str],
    ) -> dict[_Key, frozenset[str]]:
        """Enter attempts in all their ledgers, in one write; what another server changed meanwhile, one by one. Removes from `granted` what is not entered everywhere."""
        entered: dict[_Key, frozenset[str]] = {}
        writes: list[tuple[_Key, QuotaLedger, Version | None]] = []
        for key in sorted(asked):
            limits, charges = asked[key]
            found = stored.get(document_name(*key))
            before = (ledger_from(found) if found is not None else None) or QuotaLedger(*key)
            asking = [one_charge for one_charge in charges if one_charge.claim in granted]
            after, entered[key] = charge(before, asking, limits, self.clock.now())
            self._used[key] = after.used
            granted -= {one_charge.claim for one_charge in asking} - entered[key]
            if after is not before:
                writes.append((key, after, found.version if found is not None else None))
        puts = [(document_of(after), version) for _, after, version in writes]
        results = await self.documents.put(puts) if puts else ()
        for (key, _, _), result in zip(writes, results, strict=True):
            if not isinstance(result, Written):
                limits, charges = asked[key]
                asking = [one_charge for one_charge in charges if one_charge.claim in entered[key]]
                again = await self._take(key, asking, limits)
                granted -= entered[key] - again
                entered[key] = again
        return entered

    async def _take(self, key: _Key, charges: Sequence[QuotaCharge], limits: QuotaLimits) -> frozenset[str]:
        def change(stored: StoredDocument | None) -> tuple[Document | None, frozenset[str]]:
            before = (ledger_from(stored) if stored is not None else None) or QuotaLedger(*key)
            after, entered = charge(before, charges, limits, self.clock.now())
            self._used[key] = after.used
            return (None if after is before else document_of(after)), entered

        if not charges:
            return frozenset()
        try:
            return await update_document(self.documents, document_name(*key), change, unsure=f"quota of {key[1]}")
        except PortError:
            return frozenset()  # entries that may have been made are swept

    def settled(self, documents: Iterable[JobDocument]) -> None:
        """Called when chosen jobs were entered, or refused."""
        for document in documents:
            for subject, _limits in self._limited(document.tenant, document.owner):
                key = document.tenant, subject
                left = self._reserved.get(key, QuotaUse()).minus(use_of(document.resources))
                if left.jobs > 0:
                    self._reserved[key] = left
                else:
                    self._reserved.pop(key, None)

    def notice(self, stored: Stored) -> None:
        """Called for each job written here: if its attempt is over, it is removed from the ledgers."""
        document = stored.document
        if not self.policies.policies or document.claim is not None or not document.attempt:
            return
        results = (document.last, document.held_completion)
        over = {result.claim for result in results if result is not None} | {document.former_claim or ""}
        self.give_back(over - {""}, document)

    def give_back(self, claims: Iterable[str], document: JobDocument) -> None:
        """Remove attempts of a job that are over, or never began, now or at the next sweep."""
        for subject, _limits in self._limited(document.tenant, document.owner):
            key = document.tenant, subject
            self._leaving.setdefault(key, set()).update(claims)
            if key not in self._returning:
                self._returning.add(key)
                self._background.begin(self._return(key))

    async def _return(self, key: _Key) -> None:
        # One write for all that ended while the last one was under way.
        try:
            while claims := self._leaving.pop(key, None):
                await self._discharge(key, claims)
        finally:
            self._returning.discard(key)

    def abandon(self, claim: str, document: JobDocument) -> None:
        """Remove a refused claim. Its write may still be in flight, so the job is checked first."""
        if self._limited(document.tenant, document.owner):
            self._background.begin(self._abandon(claim, document))

    async def _abandon(self, claim: str, document: JobDocument) -> None:
        if await attempt_is_over(self.writer, claim, document.id):
            self.give_back({claim}, document)

    async def _discharge(self, key: _Key, claims: set[str]) -> None:
        def change(stored: StoredDocument | None) -> tuple[Document | None, bool]:
            before = ledger_from(stored) if stored is not None else None
            if before is None:
                return None, False
            after = discharge(before, claims, self.clock.now())
            self._used[key] = after.used
            if after is before:
                return None, False
            self._yield(after, key)
            return document_of(after), True

        with suppress(PortError):  # they are swept
            if await update_document(self.documents, document_name(*key), change, unsure=f"quota of {key[1]}"):
                self.changed()

    def _yield(self, ledger: QuotaLedger, key: _Key) -> None:
        now = self.clock.monotonic()
        if others_ask(ledger, self.server, self.clock.now()) and now - self._yielding.get(key, -1e9) >= YIELD_EVERY:
            self._yielding[key] = now

    # -- what is not in order ------------------------------------------------------------------------------------

    async def put_in_order(self) -> None:
        """Enter what runs without an entry, and remove entries that do not run: where the numbers differ, and now and then everywhere."""
        self._used = {(ledger.tenant, ledger.subject): ledger.used for _, ledger in await self._ledgers()}
        self._read_at.clear()
        now = self.clock.monotonic()
        self._yielding = {key: at for key, at in self._yielding.items() if now - at < YIELD_EVERY}
        self._asked_at = {key: at for key, at in self._asked_at.items() if now - at < ASK_EVERY}
        self.changed()
        running = await self._running()
        await self._adopt_missing(running)
        counts = {key: sum(owners.values()) for key, owners in running.items()}
        self._rounds += 1
        await self.sweep(counts=None if self._rounds % THOROUGH == 1 else counts)

    async def sweep(self, older: int = OLD, counts: Mapping[_Key, int] | None = None) -> None:
        """Remove entries whose attempts are over, or never began, and ledgers that nobody uses. ``counts``: of the running attempts of each quota."""
        for stored, ledger in await self._ledgers():
            now, key = self.clock.now(), (ledger.tenant, ledger.subject)
            if not ledger.holders and now - ledger.changed >= UNUSED:
                await self.documents.remove([stored])
            if counts is not None and counts.get(key, 0) >= len(ledger.holders):
                continue
            old = {claim: holder.job for claim, holder in ledger.holders.items() if now - holder.at >= older}
            over = {
                claim
                for claim, job in (await self._without_claim(old)).items()
                if await attempt_is_over(self.writer, claim, job)
            }
            if over:
                self.swept += len(over)
                await self._discharge(key, over)

    async def _ledgers(self, tenant: str | None = None) -> list[tuple[StoredDocument, QuotaLedger]]:
        stored = await self.documents.find(KIND, tenant=tenant)
        found = ((document, ledger_from(document)) for document in stored)
        return [(document, ledger) for document, ledger in found if ledger is not None]

    async def _without_claim(self, holders: Mapping[str, str]) -> dict[str, str]:
        """The claims that are not on their jobs, as far as a read can say."""
        without, claims = dict[str, str](), sorted(holders)
        for start in range(0, len(claims), PAGE):
            page = claims[start : start + PAGE]
            known = await self.store.get([holders[claim] for claim in page])
            for claim in page:
                job = known.get(holders[claim])
                if job is None or job.document.claim is None or job.document.claim.id != claim:
                    without[claim] = holders[claim]
        return without

    async def adopt(self) -> None:
        """Enter running attempts that were claimed without an entry, also beyond a limit. For a policy that was just changed."""
        await self._adopt_missing(await self._running())

    async def _running(self) -> dict[_Key, dict[str, int]]:
        """How many attempts run in each quota, by owner."""
        running: dict[_Key, dict[str, int]] = {}
        for tenant, policy in self.policies.policies.items():
            if any(limits.limited for limits in policy.limits.values()):
                query = JobQuery(tenant=tenant, states=frozenset({State.RUNNING}))
                for owner, count in (await self.store.count(query, by="owner")).items():
                    for subject, _limits in policy.limited(owner):
                        running.setdefault((tenant, subject), {})[owner] = count
        return running

    async def _adopt_missing(self, running: Mapping[_Key, Mapping[str, int]]) -> None:
        for key, owners in running.items():
            if sum(owners.values()) > self._used.get(key, QuotaUse()).jobs:
                await self._adopt(key, sorted(owners))

    async def _adopt(self, key: _Key, owners: Sequence[str]) -> None:
        query = JobQuery(tenant=key[0], states=frozenset({State.RUNNING}), anyof={"owner": owners})
        cursor: str | None = None
        while True:
            page = await self.store.search(query, sort="created", limit=PAGE, cursor=cursor)
            # What a search shows may have ended meanwhile.
            known = await self.store.get([stored.document.id for stored in page.jobs]) if page.jobs else {}
            running = {
                stored.document.claim.id: stored.document
                for stored in known.values()
                if stored.document.claim is not None
            }
            if running:
                await self._enter(key, running)
            cursor = page.cursor
            if cursor is None:
                return

    async def _enter(self, key: _Key, running: Mapping[str, JobDocument]) -> None:
        charges = [QuotaCharge(claim, document.id, use_of(document.resources)) for claim, document in running.items()]

        def change(stored: StoredDocument | None) -> tuple[Document | None, int]:
            before = (ledger_from(stored) if stored is not None else None) or QuotaLedger(*key)
            after, _entered = charge(before, charges, QuotaLimits(), self.clock.now())
            self._used[key] = after.used
            return (None if after is before else document_of(after)), len(after.holders) - len(before.holders)

        self.adopted += await update_document(self.documents, document_name(*key), change, unsure=f"quota of {key[1]}")

    # -- administration --------------------------------------------------------------------------------------------

    async def change(self, tenant: str, change: Callable[[QuotaPolicy], QuotaPolicy | str]) -> QuotaPolicy:
        """Change the policy of a tenant, and enter what runs now."""
        after = await self.policies.change(tenant, change)
        self._reserved.clear()
        self._sweep_at = min(self._sweep_at, self.clock.monotonic() + SWEEP_AFTER_CHANGE)
        with suppress(PortError):  # repeated with the next sweep
            await self.adopt()
        self.changed()
        return after

    async def states(self, tenant: str) -> Sequence[QuotaState]:
        """The quotas of a tenant and their use, read now; those for everyone of a kind once for each who uses them."""
        policy = await self.policies.read(tenant)
        # Those for everyone are found by a search, which may be a second old.
        names = {stored.document.id for stored, _ in await self._ledgers(tenant)}
        names |= {document_name(tenant, subject) for subject in policy.limits}
        stored = await self.documents.get(sorted(names)) if names else {}
        ledgers = [ledger for document in stored.values() if (ledger := ledger_from(document)) is not None]
        used = {ledger.subject: ledger.used for ledger in ledgers if ledger.holders}
        subjects = {*policy.limits, *(subject for subject in used if policy.limits_of(subject).limited)}
        return [
            QuotaState(subject, policy.limits_of(subject), used.get(subject, QuotaUse()))
            for subject in sorted(subjects, key=lambda subject: (subject.kind is QuotaKind.TEAM, subject.name))
        ]


def document_name(tenant: str, subject: QuotaSubject) -> str:
    return f"{KIND}:{tenant}:{subject}"


def document_of(ledger: QuotaLedger) -> Document:
    body: dict[str, object] = {
        "subject": str(ledger.subject),
        "changed": ledger.changed,
        "holders": {claim: list(holder) for claim, holder in ledger.holders.items()},
    }
    if ledger.asking:
        body["asking"] = dict(ledger.asking)
    return Document(document_name(ledger.tenant, ledger.subject), ledger.tenant, KIND, body)


def ledger_from(stored: StoredDocument) -> QuotaLedger | None:
    """The ledger in a document; None: of a kind that a newer release has."""
    body = cast("Mapping[str, Any]", stored.document.body)
    subject = QuotaSubject.named(body["subject"])
    holders = {claim: QuotaHolder(*entry[:4]) for claim, entry in body["holders"].items()}
    if subject is None:
        return None
    return QuotaLedger(stored.document.tenant, subject, holders, body["changed"], body.get("asking", {}))
