"""Reads what waits for a person, with what it would cost to run it again.

The store counts; of each group that is shown only the oldest incident is read. What else is in a group is read when somebody opens it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from forestay.domain.exceptions.incidents.inbox import InboxGroup, grouped
from forestay.domain.exceptions.incidents.incident import IncidentState, IncidentStatus
from forestay.ports.exceptions.incident_store import MAX_PILES, IncidentQuery, IncidentStore

STATES = frozenset({IncidentState.HELD, IncidentState.WAITING})
"""What waits for somebody, or for the first tries of a storm."""


class Inbox(NamedTuple):
    """The dearest groups, and what there is beside them."""

    groups: Sequence[InboxGroup]
    oldest: Mapping[str, IncidentStatus]
    """The first of each group, by its id; one that is gone by now is left out."""
    all: Sequence[InboxGroup]
    """Every group, also those that are not shown."""
    more: bool
    """There are more groups than are shown or were counted."""


@dataclass(slots=True)
class InboxReader:
    """The service."""

    incidents: IncidentStore

    async def groups(self, tenant: str, *, owner: str | None = None, cause: str | None = None, most: int) -> Inbox:
        inbox_tallies = await self.incidents.inbox_tallies(
            IncidentQuery(tenant=tenant, owner=owner, cause=cause, states=STATES)
        )
        groups = grouped(inbox_tallies)
        shown = groups[:most]
        known = await self.incidents.get_statuses([group.oldest for group in shown]) if shown else {}
        oldest = {name: stored.status for name, stored in known.items()}
        return Inbox(shown, oldest, groups, len(groups) > most or len(inbox_tallies) >= MAX_PILES)
