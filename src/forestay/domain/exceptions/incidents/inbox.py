"""The inbox: what needs a person, in groups, the most expensive first.

Incidents are grouped by error (their fingerprint) and by what they wait for, over all owners. In a storm each error is a group of its own,
so that unlike failures stay apart. Incidents recorded before there were fingerprints are grouped by cause and owner.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from forestay.domain.exceptions.incidents.incident import CLOSED, IncidentState, IncidentStatus

APPROVAL = "needs an approval"


class WaitsFor(StrEnum):
    """What an incident waits for."""

    PERSON = "a person"
    """A person has to look, and to fix it or write a rule."""
    APPROVAL = "an approval"
    CANARY = "the first retries"
    """A storm is active; some failures are retried first, and no person has to act yet."""
    GROUP = "a person, for the group"
    """A storm is active, and the action tried on its first failures has failed."""
    RECOVERY = "its recovery"
    """An action is in progress, and no person has to act."""
    NOBODY = "nobody"
    """It is closed."""


SOMEBODY = frozenset({WaitsFor.PERSON, WaitsFor.APPROVAL, WaitsFor.CANARY, WaitsFor.GROUP})


class WaitCondition(NamedTuple):
    """Incidents in these states wait for it, if the rest is true of them too."""

    waits: WaitsFor
    states: frozenset[IncidentState]
    approval: bool | None = None
    """Whether an approval is requested; None: either."""
    storm: bool | None = None
    """Whether it is part of a storm; None: either."""


WAIT_CONDITIONS = (
    WaitCondition(WaitsFor.CANARY, frozenset({IncidentState.WAITING}), storm=True),
    WaitCondition(WaitsFor.RECOVERY, frozenset({IncidentState.WAITING}), storm=False),
    WaitCondition(WaitsFor.RECOVERY, frozenset({IncidentState.OPEN, IncidentState.ACTING})),
    WaitCondition(WaitsFor.APPROVAL, frozenset({IncidentState.HELD}), approval=True),
    WaitCondition(WaitsFor.GROUP, frozenset({IncidentState.HELD}), approval=False, storm=True),
    WaitCondition(WaitsFor.PERSON, frozenset({IncidentState.HELD}), approval=False, storm=False),
    WaitCondition(WaitsFor.NOBODY, CLOSED),
)
"""Exactly one is true of an incident. Stores search by them."""


@cache
def _waits_for(state: IncidentState, *, approval: bool, storm: bool) -> WaitsFor:
    return next(
        condition.waits
        for condition in WAIT_CONDITIONS
        if state in condition.states and condition.approval in (None, approval) and condition.storm in (None, storm)
    )


class InboxGroupKey(NamedTuple):
    """Which group something belongs to."""

    group: str
    """The storm that it is part of; empty: none."""
    fingerprint: str
    cause: str
    owner: str
    """Empty: of several."""
    waits: WaitsFor


@dataclass(frozen=True, slots=True)
class InboxGroup:
    """What waits together."""

    place: InboxGroupKey
    count: int
    core_seconds: int
    """The cost of another attempt of all of them, as far as known."""
    oldest: str
    """The id of the one that happened first."""
    at: int
    """When that was."""
    owner_names: frozenset[str]
    newest: int
    """When the last one happened."""
    host: str
    """The host on which all of them happened; empty: several hosts, or unknown."""

    @property
    def owners(self) -> int:
        return len(self.owner_names)

    def next_step(self, oldest: IncidentStatus | None) -> str:
        """The command for the next step."""
        place = self.place
        if place.waits is WaitsFor.APPROVAL:
            return "forestay approvals"
        if place.waits is WaitsFor.GROUP:
            return f"forestay safeguards try '{place.group}' --reason TEXT"
        about = (oldest.job or oldest.id)[:8] if oldest is not None else "JOB"
        return "forestay safeguards" if place.waits is WaitsFor.CANARY else f"forestay explain {about}"


class InboxTally(NamedTuple):
    """Incidents of equal state, as counted by a store."""

    state: IncidentState
    second: bool
    """An approval is requested."""
    group: str
    fingerprint: str
    """Empty: recorded before there were fingerprints."""
    cause: str
    owner: str
    many: int
    core_seconds: int
    oldest: str
    """The id of the one that happened first."""
    at: int
    """When that was."""
    newest: int
    """When the last one happened."""
    hosts: frozenset[str]
    """The hosts on which they happened: the only one, or two of several."""

    @property
    def place(self) -> InboxGroupKey:
        """The group in which they are shown."""
        waits = _waits_for(self.state, approval=self.second, storm=bool(self.group))
        group = self.group if waits in (WaitsFor.CANARY, WaitsFor.GROUP) else ""
        return InboxGroupKey(
            group, self.fingerprint, self.cause, "" if self.fingerprint or group else self.owner, waits
        )


def asks_approval(status: IncidentStatus) -> bool:
    """Whether an approval is requested. Stores keep the answer beside the status, and count by it."""
    return status.state is IncidentState.HELD and APPROVAL in status.note


def inbox_tally_of(status: IncidentStatus) -> InboxTally:
    """The tally of one incident."""
    return InboxTally(
        status.state,
        asks_approval(status),
        status.group,
        status.fingerprint,
        status.cause,
        status.owner,
        1,
        status.core_seconds,
        status.id,
        status.at,
        status.at,
        frozenset({status.host}),
    )


def group_key_of(status: IncidentStatus) -> InboxGroupKey:
    """The group in which it is shown."""
    return inbox_tally_of(status).place


def grouped(inbox_tallies: Iterable[InboxTally], waits: frozenset[WaitsFor] = SOMEBODY) -> list[InboxGroup]:
    """The groups of these incidents, the most expensive first."""
    members: dict[InboxGroupKey, list[InboxTally]] = {}
    storms: dict[tuple[str, str], InboxGroupKey] = {}
    for inbox_tally in inbox_tallies:
        place = inbox_tally.place
        if place.waits in waits:
            # An error of a storm is one group, whatever its members wait for now.
            together = storms.setdefault((place.group, place.fingerprint), place) if place.group else place
            members.setdefault(together, []).append(inbox_tally)
    groups = [_group(place, ones) for place, ones in members.items()]
    return sorted(groups, key=lambda group: (-group.core_seconds, -group.count, group.place))


def _group(place: InboxGroupKey, inbox_tallies: list[InboxTally]) -> InboxGroup:
    """A group waits for a person as soon as one of its members does; its owner is named if there is only one."""
    owners = {inbox_tally.owner for inbox_tally in inbox_tallies}
    hosts = frozenset[str]().union(*(inbox_tally.hosts for inbox_tally in inbox_tallies))
    first = min(inbox_tallies, key=lambda inbox_tally: (inbox_tally.at, inbox_tally.oldest))
    held = any(inbox_tally.state is IncidentState.HELD for inbox_tally in inbox_tallies)
    return InboxGroup(
        place._replace(
            owner=place.owner or (next(iter(owners)) if len(owners) == 1 else ""),
            waits=WaitsFor.GROUP if place.group and held else place.waits,
        ),
        sum(inbox_tally.many for inbox_tally in inbox_tallies),
        sum(inbox_tally.core_seconds for inbox_tally in inbox_tallies),
        first.oldest,
        first.at,
        frozenset(owners),
        max(inbox_tally.newest for inbox_tally in inbox_tallies),
        next(iter(hosts)) if len(hosts) == 1 else "",
    )
