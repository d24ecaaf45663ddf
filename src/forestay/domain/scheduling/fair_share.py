"""Fair share: who of several owners is served next, by what each has used, recently and now.

Of each owner two numbers count, both in cores: the average of the past, in which older use counts less and less, and the use at this moment. Their sum,
divided by the owner's share, is the pressure; the lowest is served first. What is used at this moment rises with every claim, so owners
with equal pressure take turns. The average never exceeds what was used, and falls while nothing is: so nobody waits for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from forestay.domain.scheduling.quota import QuotaKind, QuotaPolicy, QuotaSubject

LEAST = 0.001
"""Averages below this number of cores are forgotten."""


def averaged(
    before: Mapping[str, float], running: Mapping[str, float], elapsed: float, half_life: float
) -> dict[str, float]:
    """The averages after `elapsed` seconds in which owners used what is running: half of each difference is left after a half-life."""
    keep = 0.5 ** (max(0.0, elapsed) / half_life)
    after = {
        owner: before.get(owner, 0.0) * keep + running.get(owner, 0.0) * (1.0 - keep)
        for owner in before.keys() | running.keys()
    }
    return {owner: cores for owner, cores in after.items() if cores >= LEAST}


class SharePressure(NamedTuple):
    """The pressure of an owner's team, then its own in the team: sorted in this order, the lowest is served first."""

    team: float
    owner: float


def pressure(
    policy: QuotaPolicy, owner: str, of_owners: Mapping[str, float], of_teams: Mapping[str, float]
) -> SharePressure:
    """The pressure of an owner; the mappings have the average and the present use together, in cores. Without a team it is one of its own."""
    own = of_owners.get(owner, 0.0) / policy.share_of(QuotaSubject(QuotaKind.OWNER, owner))
    team = policy.teams.get(owner)
    if not team:
        return SharePressure(own, own)
    return SharePressure(of_teams.get(team, 0.0) / policy.share_of(QuotaSubject(QuotaKind.TEAM, team)), own)


def of_teams(policy: QuotaPolicy, of_owners: Mapping[str, float]) -> dict[str, float]:
    """The sum of each team."""
    sums: dict[str, float] = {}
    for owner, cores in of_owners.items():
        if team := policy.teams.get(owner):
            sums[team] = sums.get(team, 0.0) + cores
    return sums
