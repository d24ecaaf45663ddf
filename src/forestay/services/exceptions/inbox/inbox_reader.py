"""Reads the failures that wait for a person, with what running them again would cost.

The store counts; only the oldest incident of each displayed group is read. The others are read when a person opens the group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from forestay.domain.exceptions.incidents.error_triage import DAY, ErrorState, ErrorTriage
from forestay.domain.exceptions.incidents.inbox import (
    SOMEBODY,
    InboxGroup,
    InboxTally,
    WaitsFor,
    grouped,
    inbox_tally_of,
)
from forestay.domain.exceptions.incidents.incident import IncidentState, IncidentStatus
from forestay.ports.clock import Clock
from forestay.ports.exceptions.incident_store import MAX_PILES, IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobStore
from forestay.services.exceptions.inbox.error_triages import UNTOUCHED, ErrorTriages
from forestay.services.exceptions.inbox.recovered_failures import RecoveredFailures
from forestay.services.shared.coalescing_cache import CoalescingCache


class InboxView(StrEnum):
    """The selected part of the inbox."""

    ATTENTION = "attention"
    APPROVAL = "approval"
    RECOVERING = "recovering"
    RECOVERED = "recovered"
    """Answered in the last day, and their jobs succeeded: of the thousand answered last."""


_WAITS = {
    None: SOMEBODY,
    InboxView.ATTENTION: SOMEBODY - {WaitsFor.APPROVAL},
    InboxView.APPROVAL: frozenset({WaitsFor.APPROVAL}),
    InboxView.RECOVERING: frozenset({WaitsFor.RECOVERY, WaitsFor.CANARY}),
    InboxView.RECOVERED: frozenset({WaitsFor.NOBODY}),
}
FACETS = ("cause", "owner", "host")
"""The fields whose values are counted, to choose from."""


@dataclass(frozen=True, slots=True)
class InboxFilter:
    """Selects groups; what is omitted does not restrict."""

    view: InboxView | None = None
    """None: all that waits for a person."""
    owner: str | None = None
    cause: str | None = None
    fingerprint: str | None = None
    host: str | None = None
    since: int | None = None
    snoozed: bool = False
    """Snoozed groups too."""

    def query(self, tenant: str, now: int) -> IncidentQuery:
        recovered = self.view is InboxView.RECOVERED
        return IncidentQuery(
            tenant=tenant,
            owner=self.owner,
            cause=self.cause,
            fingerprint=self.fingerprint,
            host=self.host,
            since=self.since,
            states=frozenset({IncidentState.COMPLETE}) if recovered else frozenset(),
            waits=_WAITS[self.view],
            changed=now - DAY if recovered else None,
        )


EVERYTHING = InboxFilter()
FRESH = 2.0
"""Seconds for which a count is cached."""


class Inbox(NamedTuple):
    """The most expensive groups, and a summary of the others."""

    groups: Sequence[InboxGroup]
    oldest: Mapping[str, IncidentStatus]
    """The first incident of each group, by its id; those that are gone by now are left out."""
    all: Sequence[InboxGroup]
    """Every group, also those that are not shown, except snoozed ones."""
    triages: Mapping[str, ErrorTriage]
    """The triage states of the errors, by fingerprint."""
    now: int
    snoozed: int
    """The number of groups that are left out because they are snoozed."""
    more: bool
    """Whether there are more groups than are shown or were counted."""

    def triage(self, group: InboxGroup) -> ErrorTriage:
        return self.triages.get(group.place.fingerprint, UNTOUCHED)

    def state(self, group: InboxGroup) -> ErrorState:
        return self.triage(group).state_at(self.now, group.newest)


@dataclass(slots=True)
class InboxReader:
    """The service."""

    incidents: IncidentStore
    store: JobStore
    triages: ErrorTriages
    clock: Clock
    _counts: CoalescingCache[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._counts = CoalescingCache(self.clock, FRESH)

    async def count(self, tenant: str) -> int:
        """The number of failures that wait for a person, without snoozed ones: as the inbox counts them, at most some seconds old."""
        return await self._counts.get(tenant, lambda: self._count(tenant))

    async def _count(self, tenant: str) -> int:
        return sum(group.count for group in (await self.groups(tenant, most=0)).all)

    async def facets(self, tenant: str, wanted: InboxFilter) -> Mapping[str, Mapping[str, int]]:
        """The number of failures in the groups, for each value of each of `FACETS` that could be chosen in place of the present one.

        Counted by the conditions that `groups` selects by, so that a value's number is that of the list once it is chosen; in the view `recovered` as far as
        so many were looked at.
        """
        now = self.clock.now()
        snoozed = frozenset[str]() if wanted.snoozed else await self.triages.snoozed(tenant)
        found: dict[IncidentQuery, Sequence[IncidentStatus]] = {}
        facets: dict[str, Mapping[str, int]] = {}
        for by in FACETS:
            others: dict[str, Any] = {by: None}
            query = replace(replace(wanted, **others).query(tenant, now), not_fingerprints=snoozed)
            if wanted.view is not InboxView.RECOVERED:
                facets[by] = await self.incidents.count(query, by=by)
                continue
            if query not in found:
                found[query] = (await RecoveredFailures(self.incidents, self.store).find(query)).statuses
            counts = Counter(str(getattr(status, by)) for status in found[query])
            facets[by] = dict(sorted(counts.items(), key=lambda count: (-count[1], count[0])))
        return facets

    async def groups(self, tenant: str, wanted: InboxFilter = EVERYTHING, *, most: int) -> Inbox:
        """The most expensive groups; snoozed ones only on request."""
        now = self.clock.now()
        query = wanted.query(tenant, now)
        if wanted.view is InboxView.RECOVERED:
            recovered = await RecoveredFailures(self.incidents, self.store).find(query)
            inbox_tallies: Sequence[InboxTally] = [inbox_tally_of(status) for status in recovered.statuses]
            cut = not recovered.whole
        else:
            inbox_tallies = await self.incidents.inbox_tallies(query)
            cut = len(inbox_tallies) >= MAX_PILES
        counted = grouped(inbox_tallies, query.waits)
        triages = await self.triages.get(tenant, {group.place.fingerprint for group in counted})

        def waits(group: InboxGroup) -> bool:
            triage = triages.get(group.place.fingerprint, UNTOUCHED)
            return triage.state_at(now, group.newest) is ErrorState.SNOOZED

        groups = counted if wanted.snoozed else [group for group in counted if not waits(group)]
        shown = groups[:most]
        known = await self.incidents.get_statuses([group.oldest for group in shown]) if shown else {}
        oldest = {name: stored.status for name, stored in known.items()}
        more = len(groups) > most or cut
        return Inbox(shown, oldest, groups, triages, now, len(counted) - len(groups), more)
