"""Reads all that is known about one error: first and last seen, counts, hosts, owners, outcomes, and what its failures have in common that others do not."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from forestay.domain.exceptions.incidents.error_triage import DAY, ErrorState, ErrorTriage
from forestay.domain.exceptions.incidents.incident import CLOSED, Incident, IncidentState, IncidentStatus, as_judged
from forestay.ports.clock import Clock
from forestay.ports.errors import NotFound
from forestay.ports.exceptions.incident_store import IncidentQuery, IncidentStore
from forestay.ports.jobs.job_store import JobStore
from forestay.services.exceptions.inbox.error_triages import UNTOUCHED, ErrorTriages
from forestay.services.exceptions.inbox.recovered_failures import RecoveredFailures

TAGS = ("owner", "host", "site", "exit_code", "flow")
"""The fields by which the failures of an error are counted."""
HOUR = 3_600_000
STEPS = 24
"""Hours of the chart."""
SAMPLES = 3
COMPARED = 7 * DAY
"""Milliseconds of history in which other failures are compared with those of the error."""
FEWEST = 3
"""The least number of failures for which common tags are computed."""
NEARLY_ALL = 0.9
APART = 2
"""A tag stands out if its share is this many times that among other failures."""


class CommonTag(NamedTuple):
    """A tag that nearly all failures of an error have, and others rarely."""

    tag: str
    value: str
    share: float
    share_of_others: float


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """One error."""

    fingerprint: str
    newest: IncidentStatus
    first_seen: int
    triage: ErrorTriage
    state: ErrorState
    states: Mapping[str, int]
    """The number of its failures by state."""
    recovered: int
    """Failures whose job succeeded afterwards."""
    recovered_whole: bool
    """All failures were looked at; otherwise at least so many recovered."""
    tags: Mapping[str, Mapping[str, int]]
    hours: Sequence[int]
    """The number of failures in each of the last hours; the last number is this hour's."""
    since: int
    """The start of the first of these hours."""
    common: Sequence[CommonTag]
    samples: Sequence[Incident]
    """The newest failures, with their evidence."""

    @property
    def count(self) -> int:
        return sum(self.states.values())

    @property
    def waiting(self) -> int:
        """The number of failures that are held or in progress."""
        return sum(many for state, many in self.states.items() if IncidentState(state) not in CLOSED)


@dataclass(slots=True)
class ErrorReader:
    """The service."""

    incidents: IncidentStore
    store: JobStore
    triages: ErrorTriages
    clock: Clock

    async def newest(self, tenant: str, fingerprint: str) -> IncidentStatus:
        """The newest failure of an error; `NotFound` if the tenant has none."""
        page = await self.incidents.find(IncidentQuery(tenant, fingerprint=fingerprint), limit=1)
        if not page.statuses:
            raise NotFound("there is no such error")
        return page.statuses[0].status

    async def read(self, tenant: str, fingerprint: str) -> ErrorSummary:
        """Everything known of an error; `NotFound` if the tenant has no failure of it."""
        error = IncidentQuery(tenant, fingerprint=fingerprint)
        now = self.clock.now()
        since = now - now % HOUR - (STEPS - 1) * HOUR
        lately = IncidentQuery(tenant, fingerprint=fingerprint, since=since, until=since + STEPS * HOUR)
        answered = IncidentQuery(tenant, fingerprint=fingerprint, states=frozenset({IncidentState.COMPLETE}))
        newest, oldest, triages, hours, recovered = await asyncio.gather(
            self.incidents.find(error, limit=SAMPLES),
            self.incidents.find(error, sort="at", limit=1),
            self.triages.get(tenant, [fingerprint]),
            self.incidents.tally(lately, step=HOUR, by="kind"),
            RecoveredFailures(self.incidents, self.store).find(answered),
        )
        if not newest.statuses or not oldest.statuses:
            raise NotFound("there is no such error")
        statuses = [stored.status for stored in newest.statuses]
        states, *tags = await asyncio.gather(*(self.incidents.count(error, by=tag) for tag in ("state", *TAGS)))
        triage = triages.get(fingerprint, UNTOUCHED)
        incidents = await self.incidents.get_incidents([status.id for status in statuses])
        return ErrorSummary(
            fingerprint=fingerprint,
            newest=statuses[0],
            first_seen=oldest.statuses[0].status.at,
            triage=triage,
            state=triage.state_at(now, statuses[0].at),
            states=states,
            recovered=len(recovered.statuses),
            recovered_whole=recovered.whole,
            tags=dict(zip(TAGS, tags, strict=True)),
            hours=[sum(step.values()) for step in hours],
            since=since,
            common=await self._common(tenant, fingerprint, now),
            samples=[as_judged(incidents[status.id], status) for status in statuses if status.id in incidents],
        )

    async def hours(self, tenant: str, fingerprints: Collection[str]) -> tuple[Mapping[str, Sequence[int]], int]:
        """The number of failures of each error in each of the last hours, and the start of the first hour."""
        now = self.clock.now()
        since = now - now % HOUR - (STEPS - 1) * HOUR
        if not fingerprints:
            return {}, since
        lately = IncidentQuery(tenant, fingerprints=frozenset(fingerprints), since=since, until=since + STEPS * HOUR)
        steps = await self.incidents.tally(lately, step=HOUR, by="fingerprint")
        return {name: [step.get(name, 0) for step in steps] for name in fingerprints}, since

    async def _common(self, tenant: str, fingerprint: str, now: int) -> Sequence[CommonTag]:
        """The tags that nearly all its failures of the last days have, and the other failures of these days rarely."""
        own = IncidentQuery(tenant, fingerprint=fingerprint, since=now - COMPARED)
        everything = IncidentQuery(tenant, since=now - COMPARED)
        counts = await asyncio.gather(
            *(self.incidents.count(query, by=tag) for tag in TAGS for query in (own, everything))
        )
        pairs = zip(TAGS, counts[::2], counts[1::2], strict=True)
        return [common for tag, ours, every in pairs if (common := stands_out(tag, ours, every)) is not None]


def stands_out(tag: str, ours: Mapping[str, int], every: Mapping[str, int]) -> CommonTag | None:
    """The value of a tag that nearly all failures of an error have, if it is rare among other failures; None: there is none, or there are too few failures."""
    many = sum(ours.values())
    others = sum(every.values()) - many
    if many < FEWEST or others < FEWEST:
        return None
    value, most = max(ours.items(), key=lambda counted: counted[1])
    share, share_of_others = most / many, max(0, every.get(value, 0) - most) / others
    if not value or share < NEARLY_ALL or share < APART * share_of_others:
        return None
    return CommonTag(tag, value, share, share_of_others)
