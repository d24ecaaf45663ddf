"""Tracks the health of hosts from failures and successes, shared by all servers, and limits what the claim dispatcher may give to each.

One document for each tenant has every host with something to record. It is written version-checked when a fast failure, a closing, a probe or an opening happens, which is
rare, and read about once a second while pilots ask for jobs. A success costs one dictionary lookup.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from forestay.domain.exceptions.evidence.evidence import evidence_of
from forestay.domain.jobs.claim import AVOIDED
from forestay.domain.jobs.job_document import AttemptOutcome, JobDocument, State
from forestay.domain.scheduling import host_health as health
from forestay.domain.scheduling.host_health import (
    FailingWork,
    HealthPolicy,
    HostFailure,
    HostHealth,
    HostStatus,
    SlotTurn,
    explained_work,
    slot_turn,
    work_keys,
)
from forestay.ports.clock import Clock
from forestay.ports.documents import Document, DocumentStore, StoredDocument
from forestay.ports.errors import PortError
from forestay.ports.exceptions.classifiers import CauseClassifiers
from forestay.ports.jobs.job_store import JobStore, Record, Stored
from forestay.services.jobs.job_completions import HostFailures
from forestay.services.scheduling.node_check_failures import UnfitMachine
from forestay.services.shared.background_tasks import BackgroundTasks
from forestay.services.shared.checked_writer import WriteListener
from forestay.services.shared.document_update import update_document

KIND = "hosts"
SEEN = 600.0
"""Seconds after its last request for which a host counts as present."""
SPECIFICATIONS = 10_000
OK_HOSTS = 4
"""The most hosts that are remembered on which jobs of a specification succeeded."""
MOST_HOSTS = 1000
"""The most hosts of a tenant with a record."""

Healths = dict[str, HostHealth]


@dataclass(slots=True, eq=False)
class _TenantHosts:
    seen: OrderedDict[str, float] = field(default_factory=OrderedDict)
    """The hosts with requests, and the time of the last one."""
    healths: Healths = field(default_factory=dict)
    proven: dict[str, None] = field(default_factory=dict)
    """Hosts on which a job succeeded, or ran long enough, since this server started."""
    out: dict[str, deque[tuple[float, str]]] = field(default_factory=dict)
    """The jobs of hosts that are not proven, and since when they have them."""
    failing: dict[str, dict[str, FailingWork]] = field(default_factory=dict)
    """By host, the work that fails only there, as far as this server has seen it."""
    failing_on: dict[str, set[str]] = field(default_factory=dict)
    """By failing work, the hosts."""

    def everywhere(self) -> set[str]:
        """The work that fails on several hosts, or on the only one."""
        return {key for key, hosts in self.failing_on.items() if len(hosts) >= min(2, len(self.seen))}


@dataclass(slots=True)
class HostHealthTracker(HostFailures, WriteListener):
    """The service."""

    documents: DocumentStore
    store: JobStore
    clock: Clock
    classifiers: CauseClassifiers
    policy: HealthPolicy = field(default_factory=HealthPolicy)
    every: float = 1.0
    changed: Callable[[], None] = lambda: None
    """Called when a host may get jobs again."""
    troubled: Callable[[str], None] = lambda _text: None
    _tenants: dict[str, _TenantHosts] = field(default_factory=dict)
    _went_well: OrderedDict[str, dict[str, None]] = field(default_factory=OrderedDict)
    """By specification, the hosts on which its jobs succeeded last."""
    _went_badly: OrderedDict[str, dict[str, None]] = field(default_factory=OrderedDict)
    """By specification without a known success, the hosts on which its jobs failed fast."""
    _background: BackgroundTasks = field(default_factory=BackgroundTasks)

    # -- asked by the claim dispatcher ---------------------------------------------------------------------------------

    def allowance(self, tenant: str, host: str, most: int) -> int:
        """How many of the requested jobs a host may get."""
        known = self._tenants.get(tenant)
        if known is None:
            known = self._tenants[tenant] = _TenantHosts()
        known.seen[host] = self.clock.monotonic()
        if len(known.seen) < 2 and not known.healths:
            return most
        host_health = known.healths.get(host)
        proven = host in known.proven
        if host_health is None and proven:
            return most
        out = len(known.out.get(host, ()))
        may = health.allowance(host_health, proven=proven, out=out, now=self.clock.now(), policy=self.policy)
        return most if may is None else min(most, may)

    def turns(self, tenant: str, host: str) -> Callable[[JobDocument], SlotTurn] | None:
        """When each job may get a slot of a host; None: all of them now."""
        known = self._tenants.get(tenant)
        if known is None:
            return None
        works, host_health = known.failing.get(host), known.healths.get(host)
        probing = host_health is not None and host_health.status is HostStatus.CLOSED
        if not works and not probing:
            return None
        everywhere, now = known.everywhere(), self.clock.now()
        # Work that succeeded elsewhere shows whether the host is the cause; other work is used only if there is none.
        late = host_health is not None and now - host_health.probe_at >= 1000 * self.policy.probe_after

        def turn(document: JobDocument) -> SlotTurn:
            if probing and not self._well_elsewhere(document.specification, host):
                return SlotTurn.AFTER_OTHERS if late else SlotTurn.NOT_HERE
            names = work_keys(document.owner, document.specification)
            return slot_turn(works or {}, names, everywhere, now, self.policy)

        return turn

    def given(self, tenant: str, host: str, documents: Sequence[JobDocument]) -> None:
        """Record that a host was given jobs; the first of a closed one is its probe."""
        known = self._tenants.get(tenant)
        if known is None:
            return
        for document in documents if host in known.failing else ():
            for key in work_keys(document.owner, document.specification):
                if work := known.failing[host].get(key):
                    work.last = self.clock.now()
        host_health = known.healths.get(host)
        if host in known.proven and host_health is None:
            return
        at = self.clock.monotonic()
        known.out.setdefault(host, deque()).extend((at, document.id) for document in documents)
        if host_health is not None and host_health.status is HostStatus.CLOSED:
            now = self.clock.now()
            known.healths[host] = health.probed(host_health, now=now)
            self._spawn(self._change(tenant, lambda all_: _with(all_, health.probed(_of(all_, host), now=now))))

    # -- what happens --------------------------------------------------------------------------------------------

    def notice(self, stored: Stored) -> None:
        """Called for each document written in this process."""
        document = stored.document
        last = document.last
        if last is None or not last.host:
            return
        if document.state is State.COMPLETED:
            if last.outcome is AttemptOutcome.OK:
                self._well(document, last.host)
        elif document.extra and AVOIDED in document.extra:
            avoided = document.extra[AVOIDED]
            if isinstance(avoided, Mapping) and last.host in avoided and last.outcome is AttemptOutcome.FAILURE:
                self._spawn(
                    self._failed(document.tenant, last.host, [_failure(document, "avoided by a rule", sure=True)])
                )

    def _well(self, document: JobDocument, host: str) -> None:
        spec = document.specification
        hosts = self._went_well.get(spec)
        if hosts is None:
            hosts = self._went_well[spec] = {}
            self._went_badly.pop(spec, None)
            if len(self._went_well) > SPECIFICATIONS:
                self._went_well.popitem(last=False)
        if host not in hosts:
            hosts[host] = None
            if len(hosts) > OK_HOSTS:
                del hosts[next(iter(hosts))]
        known = self._tenants.get(document.tenant)
        if known is None:
            return
        if known.failing:
            self._succeeds(known, document, host)
        if host not in known.proven:
            known.proven[host] = None
            known.out.pop(host, None)
        host_health = known.healths.get(host)
        if host_health is not None and not host_health.by:
            del known.healths[host]
            self._spawn(self._change(document.tenant, lambda all_: _with(all_, health.went_well(_of(all_, host)))))
            self.changed()

    def _fails(self, known: _TenantHosts, document: JobDocument, host: str) -> None:
        works = known.failing.setdefault(host, {})
        for key in work_keys(document.owner, document.specification):
            works.setdefault(key, FailingWork()).note(document.specification, self.clock.now())
            known.failing_on.setdefault(key, set()).add(host)
        if len(works) > SPECIFICATIONS:
            del works[next(iter(works))]

    def _succeeds(self, known: _TenantHosts, document: JobDocument, host: str) -> None:
        """Record a success: the work no longer counts as failing on this host, nor as failing everywhere."""
        for key in work_keys(document.owner, document.specification):
            known.failing.get(host, {}).pop(key, None)
            known.failing_on.pop(key, None)

    def _forget_failing(self, known: _TenantHosts) -> None:
        """Forget work that has not failed for long."""
        now = self.clock.now()
        for host, works in list(known.failing.items()):
            for key in [key for key, work in works.items() if now - work.last >= 1000 * self.policy.forget]:
                del works[key]
                known.failing_on.get(key, set()).discard(host)
            if not works:
                del known.failing[host]
        known.failing_on = {key: hosts for key, hosts in known.failing_on.items() if hosts}

    def said_of_work(self, tenant: str, host: str) -> str:
        """What is done about work that fails only on this host; empty if nothing is."""
        known = self._tenants.get(tenant)
        if known is None or host not in known.failing:
            return ""
        return explained_work(known.failing[host], known.everywhere(), self.policy)

    async def faulted(self, failures: Sequence[tuple[Stored, str]]) -> None:
        """Record failed attempts, each with its output: fast failures may be caused by their host."""
        by_host: dict[tuple[str, str], list[HostFailure]] = {}
        for stored, log in failures:
            document = stored.document
            last = document.last
            known = self._tenants.get(document.tenant)
            if last is None or not last.host or known is None:
                continue
            if (last.wall or 0.0) >= self.policy.fast:
                continue
            cause = (await self.classifiers.find_cause(document, evidence_of(document, log))).cause.value
            blamed = health.blamed(cause)
            sure = blamed is True or self._well_elsewhere(document.specification, last.host)
            if not sure:
                self._fails(known, document, last.host)
            if blamed is False or (len(known.seen) < 2 and not known.healths):
                continue
            if not sure and self._fails_everywhere(document.specification, last.host):
                await self._absolve(document.tenant, document.specification)
                continue
            failure = _failure(document, cause, sure=sure)
            by_host.setdefault((document.tenant, last.host), []).append(failure)
        for (tenant, host), of_host in by_host.items():
            await self._failed(tenant, host, of_host)
        for (
            stored,
            _,
        ) in failures:  # only after counting: at no moment may they be neither running nor counted
            self._back(stored.document)

    def _back(self, document: JobDocument) -> None:
        """Record that a host has one job less."""
        known, last = self._tenants.get(document.tenant), document.last
        out = known.out.get(last.host) if known is not None and last is not None else None
        if known is not None and last is not None and out:
            known.out[last.host] = deque(pair for pair in out if pair[1] != document.id)

    def _well_elsewhere(self, specification: str, host: str) -> bool:
        return bool(self._went_well.get(specification, {}).keys() - {host})

    def _fails_everywhere(self, specification: str, host: str) -> bool:
        """Whether jobs of a specification have failed on several hosts and succeeded on none."""
        if specification in self._went_well:
            return False
        hosts = self._went_badly.setdefault(specification, {})
        hosts[host] = None
        if len(self._went_badly) > SPECIFICATIONS:
            self._went_badly.popitem(last=False)
        return len(hosts) > 1

    async def _absolve(self, tenant: str, specification: str) -> None:
        def change(healths: Healths) -> Healths:
            return {host: health.absolved(host_health, specification) for host, host_health in healths.items()}

        known = self._tenants[tenant]
        if change(known.healths) != known.healths:
            known.healths = {
                host: host_health for host, host_health in change(known.healths).items() if not host_health.quiet
            }
            with suppress(PortError):
                await self._change(tenant, change)

    async def unfit(self, machine: UnfitMachine) -> None:
        """Record that a pilot found its machine unfit."""
        checks = ", ".join(check for check, _ in machine.findings)
        what = f"check:{machine.launch or machine.batch_job or self.clock.now()}"
        await self._failed(machine.tenant, machine.host, [HostFailure(what, self.clock.now(), cause=checks, sure=True)])

    async def _failed(self, tenant: str, host: str, failures: Sequence[HostFailure]) -> None:
        now = self.clock.now()
        hosts = self._hosts(tenant)

        def note(healths: Healths) -> Healths:
            host_health = _of(healths, host)
            for failure in failures:
                host_health = health.failed(host_health, failure, now=now, policy=self.policy)
            return _with(healths, self._judged(healths, host_health, hosts, now))

        known = self._tenants.setdefault(tenant, _TenantHosts())
        known.proven.pop(host, None)
        known.healths = note(known.healths)  # at once here; the other servers learn it from the store
        with suppress(PortError):
            await self._change(tenant, note)

    def _judged(self, healths: Healths, host_health: HostHealth, hosts: int, now: int) -> HostHealth:
        if host_health.status is not HostStatus.OPEN or not health.too_many(host_health, now, self.policy):
            return host_health
        closed = sum(each.status is not HostStatus.OPEN for each in healths.values())
        return (
            health.close(host_health, now=now, policy=self.policy)
            if health.may_close(closed, hosts, self.policy)
            else host_health
        )

    def _hosts(self, tenant: str) -> int:
        known = self._tenants.get(tenant)
        return len(known.seen.keys() | known.healths.keys()) if known is not None else 0

    # -- people --------------------------------------------------------------------------------------------------

    async def close(self, tenant: str, host: str, *, by: str, reason: str, seconds: int | None) -> HostHealth:
        closed = health.close_by_hand(host, by=by, reason=reason, now=self.clock.now(), seconds=seconds)
        await self._change(tenant, lambda all_: _with(all_, closed))
        return closed

    async def open(self, tenant: str, host: str) -> HostHealth:
        """Open a host again, whoever closed it."""
        await self._change(tenant, lambda all_: _with(all_, HostHealth(host)))
        self._tenants[tenant].out.pop(host, None)
        self.changed()
        return HostHealth(host)

    async def all(self, tenant: str) -> Mapping[str, HostHealth]:
        """Every host with a record, and those with requests here."""
        healths = await self._read(tenant)
        known = self._tenants.get(tenant)
        now = self.clock.now()
        found_healths = {
            host: health.passed(host_health, now=now, policy=self.policy) for host, host_health in healths.items()
        }
        return {host: HostHealth(host) for host in (known.seen if known is not None else ())} | found_healths

    # -- the copy ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the copies fresh while pilots ask for jobs, and apply time-based changes."""
        while True:
            await asyncio.sleep(self.every)
            with suppress(PortError):
                await self.look()

    async def look(self) -> None:
        """Read the writes of other servers and people, and apply time-based changes."""
        now, at = self.clock.now(), self.clock.monotonic()
        for known in self._tenants.values():
            for host in [host for host, asked in known.seen.items() if at - asked > SEEN]:
                del known.seen[host]
                known.proven.pop(host, None)
                known.out.pop(host, None)
            self._survived(known, at)
            self._forget_failing(known)
        asked = [tenant for tenant, known in self._tenants.items() if known.seen or known.healths]
        if not asked:
            return
        stored = await self.documents.get([document_of(tenant) for tenant in asked])
        for tenant in asked:
            document = stored.get(document_of(tenant))
            await self._take_over(
                tenant, health.from_plain(document.document.body) if document is not None else {}, now
            )

    async def _take_over(self, tenant: str, healths: Healths, now: int) -> None:
        """Take over the stored records of a tenant's hosts, with time-based changes."""
        known = self._tenants[tenant]
        hosts = len(known.seen.keys() | healths.keys())
        later = {
            host: self._judged(healths, self._seen_now(host_health, now), hosts, now)
            for host, host_health in healths.items()
        }
        before, known.healths = (
            known.healths,
            {host: host_health for host, host_health in later.items() if not host_health.quiet},
        )
        if later != healths:
            with suppress(PortError):
                await self._change(tenant, lambda all_: _merged(all_, later))
        if any(
            host_health.status is not HostStatus.OPEN and host not in known.healths
            for host, host_health in before.items()
        ):
            self.changed()

    def _seen_now(self, host_health: HostHealth, now: int) -> HostHealth:
        """A host after time-based changes and the evidence from other hosts."""
        host_health = health.passed(host_health, now=now, policy=self.policy)
        return health.convinced(
            host_health, lambda specification: self._well_elsewhere(specification, host_health.host)
        )

    def _survived(self, known: _TenantHosts, at: float) -> None:
        """Mark hosts as proven on which a job has run for long."""
        for host, out in list(known.out.items()):
            if out and at - out[0][0] >= self.policy.fast:
                del known.out[host]
                if host not in known.healths:
                    known.proven[host] = None

    async def _read(self, tenant: str) -> Healths:
        name = document_of(tenant)
        stored = (await self.documents.get([name])).get(name)
        return _healths(stored)

    async def _change(self, tenant: str, change: Callable[[Healths], Healths]) -> None:
        """Change the record of a tenant. `Transient` if it cannot be written."""
        name = document_of(tenant)

        def changed(stored: StoredDocument | None) -> tuple[Document | None, tuple[Healths, Healths]]:
            before = _healths(stored)
            after = change(before)
            body = health.as_plain(dict(list(after.items())[-MOST_HOSTS:]))
            return None if after == before else Document(name, tenant, KIND, body), (before, after)

        unsure = "the health of the hosts could not be stored; try again"
        before, after = await update_document(self.documents, name, changed, unsure=unsure)
        if after != before:
            await self._tell(tenant, before, after)
        known = self._tenants.setdefault(tenant, _TenantHosts())
        known.healths = {host: host_health for host, host_health in after.items() if not host_health.quiet}

    async def _tell(self, tenant: str, before: Healths, after: Healths) -> None:
        """Raise an alert for each host that was closed for its failures."""
        now = self.clock.now()
        closed = [
            host_health
            for host, host_health in after.items()
            if host_health.status is HostStatus.CLOSED
            and not host_health.by
            and _of(before, host).status is HostStatus.OPEN
        ]
        records = [
            Record(
                f"alert:host-closed:{tenant}:{host_health.host}:{host_health.since}", tenant, "alert", "", now,
                {"alert": "host-closed", "words": f"{host_health.host} gets no jobs: {host_health.reason}", "host": host_health.host},
            )
            for host_health in closed
        ]  # fmt: skip
        for host_health in closed:
            self.troubled(f"{host_health.host} is closed: {host_health.reason}")
        if records:
            with suppress(PortError):
                await self.store.add_records(records)

    def _spawn(self, work: Awaitable[None]) -> None:
        async def quietly() -> None:
            with suppress(PortError):  # repeated with the next change
                await work

        self._background.begin(quietly())


def _healths(stored: StoredDocument | None) -> Healths:
    return health.from_plain(stored.document.body) if stored is not None else {}


def document_of(tenant: str) -> str:
    return f"hosts:{tenant}"


def _failure(document: JobDocument, cause: str, *, sure: bool) -> HostFailure:
    what = f"{document.id}:{document.attempt}"
    return HostFailure(what, document.changed, document.owner, document.specification, cause, sure)


def _of(healths: Healths, host: str) -> HostHealth:
    return healths.get(host) or HostHealth(host)


def _with(healths: Healths, host_health: HostHealth) -> Healths:
    """The same with one host changed, which comes last: those changed longest ago are dropped first."""
    rest = {host: each for host, each in healths.items() if host != host_health.host}
    return rest if host_health.quiet else rest | {host_health.host: host_health}


def _merged(healths: Healths, found_healths: Healths) -> Healths:
    """The time-based changes, except for hosts that someone else has changed since."""
    return {host: found_healths.get(host, host_health) for host, host_health in healths.items()}
