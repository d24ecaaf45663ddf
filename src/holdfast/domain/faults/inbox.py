"""The inbox: what waits for a person, in groups, the dearest first.

The faults of one storm are one group, however many owners they have; all else is grouped by cause, owner and what it waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from holdfast.domain.faults.incident import IncidentState, Standing

SECOND = "second person"


class WaitsFor(StrEnum):
    """Whom, or what."""

    PERSON = "a person"
    """To look, and to mend it or write a rule."""
    SECOND_PERSON = "a second person"
    CANARY = "the first tries"
    """A storm is on; some are tried first, and nobody has to do anything yet."""
    GROUP = "a person, for the group"
    """A storm is on, and what was tried on its first faults has failed."""


class Place(NamedTuple):
    """Which group something belongs to."""

    group: str
    cause: str
    owner: str
    waits: WaitsFor


@dataclass(frozen=True, slots=True)
class InboxGroup:
    """What waits together."""

    place: Place
    count: int
    core_seconds: int
    """What another run of all of them would cost, as far as it is known."""
    oldest: Standing
    owners: int

    @property
    def next_step(self) -> str:
        """The command that helps on from here."""
        place, job = self.place, self.oldest.job or self.oldest.case
        if place.waits is WaitsFor.SECOND_PERSON:
            return "holdfast approve list"
        if place.waits is WaitsFor.GROUP:
            return f"holdfast brake try --group '{place.group}' --reason TEXT"
        return "holdfast brake" if place.waits is WaitsFor.CANARY else f"holdfast explain {job[:8]}"


def place_of(standing: Standing) -> Place | None:
    """Where it is shown; None: it waits for nobody."""
    if standing.state is IncidentState.WAITING and standing.group:
        return Place(standing.group, standing.cause, "", WaitsFor.CANARY)
    if standing.state is not IncidentState.HELD:
        return None
    if SECOND in standing.note:
        return Place("", standing.cause, standing.owner, WaitsFor.SECOND_PERSON)
    if standing.group:
        return Place(standing.group, standing.cause, "", WaitsFor.GROUP)
    return Place("", standing.cause, standing.owner, WaitsFor.PERSON)


def grouped(standings: Iterable[Standing], costs: Mapping[str, int]) -> list[InboxGroup]:
    """The groups, the dearest first; `costs`: core-seconds by job."""
    members: dict[Place, list[Standing]] = {}
    for one in standings:
        place = place_of(one)
        if place is not None:
            members.setdefault(_together(place, members), []).append(one)
    groups = [
        InboxGroup(
            _worst(place, ones),
            len(ones),
            sum(costs.get(one.job, 0) for one in ones),
            min(ones, key=lambda one: (one.at, one.id)),
            len({one.owner for one in ones}),
        )
        for place, ones in members.items()
    ]
    return sorted(groups, key=lambda one: (-one.core_seconds, -one.count, one.place))


def _together(place: Place, members: Mapping[Place, list[Standing]]) -> Place:
    """A storm is one group, whatever its members wait for at this moment."""
    if not place.group:
        return place
    return next((one for one in members if one.group == place.group), place)


def _worst(place: Place, ones: list[Standing]) -> Place:
    """A group in which something waits for a person waits for one; its owner is named if there is but one."""
    owners = {one.owner for one in ones}
    named = place._replace(owner=place.owner or (next(iter(owners)) if len(owners) == 1 else ""))
    held = any(one.state is IncidentState.HELD for one in ones)
    return named._replace(waits=WaitsFor.GROUP) if place.group and held else named
