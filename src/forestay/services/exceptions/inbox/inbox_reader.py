"""Reads the failures that wait for a person, with what running them again would cost.

The store counts; of each group that is shown only the oldest incident is read. What else is in a group is read when somebody opens it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from forestay.domain.exceptions.incidents.error_triage import DAY, ErrorState, ErrorTriage
from forestay.domain.exceptions.incidents.inbox import SOMEBODY, InboxGroup, WaitsFor, grouped
from forestay.domain.exceptions.incidents.incident import IncidentState, IncidentStatus
from forestay.ports.clock import Clock
from forestay.ports.exceptions.incident_store import MAX_PILES, IncidentQuery, IncidentStore
from forestay.services.exceptions.inbox.error_triages import UNTOUCHED, ErrorTriages

STATES = frozenset({IncidentState.HELD, IncidentState.WAITING})
"""What waits for somebody, or for the first tries of a storm."""


class InboxView(StrEnum):
    """What is looked at."""

    ATTENTION = "attention"
    APPROVAL = "approval"
    RECOVERING = "recovering"
    RECOVERED = "recovered"
    """In the last day."""


class _Shown(NamedTuple):
    states: frozenset[IncidentState]
    waits: frozenset[WaitsFor]


_VIEWS = {
    InboxView.ATTENTION: _Shown(STATES, SOMEBODY - {WaitsFor.APPROVAL}),
    InboxView.APPROVAL: _Shown(frozenset({IncidentState.HELD}), frozenset({WaitsFor.APPROVAL})),
    InboxView.RECOVERING: _Shown(
        frozenset({IncidentState.OPEN, IncidentState.ACTING, IncidentState.WAITING}),
        frozenset({WaitsFor.RECOVERY, WaitsFor.CANARY}),
    ),
    InboxView.RECOVERED: _Shown(frozenset({IncidentState.COMPLETE}), frozenset({WaitsFor.NOBODY})),
}
_EVERYTHING = _Shown(STATES, SOMEBODY)


class Inbox(NamedTuple):
    """The dearest groups, and what there is beside them."""

    groups: Sequence[InboxGroup]
    oldest: Mapping[str, IncidentStatus]
    """The first of each group, by its id; one that is gone by now is left out."""
    all: Sequence[InboxGroup]
    """Every group, also those that are not shown, but for those that may wait."""
    triages: Mapping[str, ErrorTriage]
    """What people have said of the errors, by fingerprint."""
    now: int
    snoozed: int
    """Groups that are left out because they may wait."""
    more: bool
    """There are more groups than are shown or were counted."""

    def triage(self, group: InboxGroup) -> ErrorTriage:
        return self.triages.get(group.place.fingerprint, UNTOUCHED)

    def state(self, group: InboxGroup) -> ErrorState:
        return self.triage(group).state_at(self.now, group.newest)


@dataclass(slots=True)
class InboxReader:
    """The service."""

    incidents: IncidentStore
    triages: ErrorTriages
    clock: Clock

    async def groups(
        self,
        tenant: str,
        *,
        view: InboxView | None = None,
        owner: str | None = None,
        cause: str | None = None,
        fingerprint: str | None = None,
        host: str | None = None,
        since: int | None = None,
        snoozed: bool = False,
        most: int,
    ) -> Inbox:
        """The dearest groups of a view, or without one of all that wait for somebody; those that may wait only if asked for."""
        now = self.clock.now()
        shown_states, waits_for = _VIEWS[view] if view is not None else _EVERYTHING
        inbox_tallies = await self.incidents.inbox_tallies(
            IncidentQuery(
                tenant=tenant,
                owner=owner,
                cause=cause,
                fingerprint=fingerprint,
                host=host,
                since=since,
                states=shown_states,
                changed=now - DAY if view is InboxView.RECOVERED else None,
            )
        )
        counted = grouped(inbox_tallies, waits_for)
        triages = await self.triages.get(tenant, {group.place.fingerprint for group in counted})

        def waits(group: InboxGroup) -> bool:
            triage = triages.get(group.place.fingerprint, UNTOUCHED)
            return triage.state_at(now, group.newest) is ErrorState.SNOOZED

        groups = counted if snoozed else [group for group in counted if not waits(group)]
        shown = groups[:most]
        known = await self.incidents.get_statuses([group.oldest for group in shown]) if shown else {}
        oldest = {name: stored.status for name, stored in known.items()}
        more = len(groups) > most or len(inbox_tallies) >= MAX_PILES
        return Inbox(shown, oldest, groups, triages, now, len(counted) - len(groups), more)
