"""Counted licences: how many seats a domain has of each, and which attempts have them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class SeatHolder:
    """The seats of one attempt."""

    job: str
    seats: int
    at: int
    """When it took them, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Licence:
    """One licence. Attempts hold seats by the ids of their claims, which are never used again."""

    name: str
    seats: int
    holders: Mapping[str, SeatHolder] = field(default_factory=dict)

    @property
    def used(self) -> int:
        return sum(holder.seats for holder in self.holders.values())

    @property
    def free(self) -> int:
        """The free seats; never below 0, even if an administrator removed seats that attempts still hold."""
        return max(0, self.seats - self.used)


def take_seats(licence: Licence, claim: str, *, job: str, seats: int, now: int) -> Licence | None:
    """The licence with seats for an attempt; None if not enough are free. A repeated request for the same attempt changes nothing."""
    if claim in licence.holders:
        return licence
    if seats > licence.free:
        return None
    return replace(licence, holders={**licence.holders, claim: SeatHolder(job, seats, now)})


def give_back(licence: Licence, claims: Collection[str]) -> Licence:
    """The licence without these holders."""
    if not any(claim in licence.holders for claim in claims):
        return licence
    return replace(licence, holders={name: held for name, held in licence.holders.items() if name not in claims})
