"""Reads what waits for a person, with what it would cost to run it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.domain.faults.brakes import core_seconds
from holdfast.domain.faults.inbox import InboxGroup, grouped
from holdfast.domain.faults.incident import IncidentState, Standing
from holdfast.domain.jobs.job_document import JobDocument
from holdfast.ports.incident_store import MAX_FOUND, IncidentQuery, IncidentStore
from holdfast.ports.job_store import JobStore

MOST = 20_000
"""Incidents that are looked at; beyond them the groups are those of the newest."""
_STATES = frozenset({IncidentState.HELD, IncidentState.WAITING})


class Inbox(NamedTuple):
    """The groups, and whether there is more than was looked at."""

    groups: Sequence[InboxGroup]
    more: bool


@dataclass(slots=True)
class ListInbox:
    """The service."""

    incidents: IncidentStore
    store: JobStore

    async def groups(self, tenant: str, *, owner: str | None = None, cause: str | None = None) -> Inbox:
        query = IncidentQuery(tenant=tenant, owner=owner, cause=cause, states=_STATES)
        found: list[Standing] = []
        costs: dict[str, int] = {}
        cursor: str | None = None
        while len(found) < MOST:
            page = await self.incidents.find(query, sort="-at", limit=MAX_FOUND, cursor=cursor)
            standings = [one.standing for one in page.found]
            jobs = await self.store.get(sorted({one.job for one in standings if one.job}))
            costs |= {name: _cost(stored.document) for name, stored in jobs.items()}
            found += standings
            cursor = page.cursor
            if cursor is None:
                break
        return Inbox(grouped(found, costs), cursor is not None)


def _cost(document: JobDocument) -> int:
    last, needs = document.last, document.resources
    past = last.wall if last is not None else None
    return core_seconds(needs.cpus, expected=document.expected_runtime, past=past, limit=needs.wall)
