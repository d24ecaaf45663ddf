"""Storms: many failures of one cause, or at one site or host, within a window, compared with the usual number.

While a storm lasts, its failures are one *group*: an act on a single one of them needs the permission of the group's canary (`canary`).

Failures are counted by signature (cause, site, host) in slices of the window. A cause that explains a storm is preferred to a site, and a site to
a host; failures that belong to an open group are counted for that group alone. So a storm has one group, however many hosts it affects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from forestay.domain.exceptions.incidents.retry_policy import INFRASTRUCTURE
from forestay.domain.exceptions.safeguards.canary import Canary
from forestay.domain.exceptions.safeguards.rate_limit import DAY, MINUTE

SLICES = 10
"""The number of slices of a window; a failure is dropped one window, and at most one slice more, after it came."""
MAX_SIGNS = 2_000
"""The most signatures distinguished in one slice; further ones are counted without their host, then without their site."""
MAX_GROUPS = 200
_RARE = 0.001
"""The average number of failures in a window below which nothing is kept."""
MAX_BATCHES = 256
"""Batches of failures whose names are kept: more than can be written by others between a write and its repeat."""
MAX_ERRORS = 150
"""Tries on one group that are told apart by their error; of further errors a rule is tried on all together."""
MAX_CANARIES = 200
"""Tries on one group."""


class FailureSignature(NamedTuple):
    """The traits that make failures alike."""

    cause: str
    site: str = ""
    host: str = ""


def sign_of(cause: str, *, owner: str, site: str = "", host: str = "") -> FailureSignature:
    """The signature of a failure. Failures caused by a user are grouped with that user's only: one owner's storm must not hold another's jobs."""
    return FailureSignature(cause if cause in INFRASTRUCTURE or not owner else f"{cause} of {owner}", site, host)


class Trait(StrEnum):
    """What the failures of a storm share, in the order in which it is checked."""

    CAUSE = "cause"
    SITE = "site"
    HOST = "host"


_PLACE = {trait: place for place, trait in enumerate(Trait)}


class StormGroupKey(NamedTuple):
    """Which failures a group has: all with this cause, on this site or on this host."""

    trait: Trait
    value: str

    def has(self, sign: FailureSignature) -> bool:
        return self.value == sign[_PLACE[self.trait]]

    def __str__(self) -> str:
        return f"{self.trait} {self.value}"


class Trial(NamedTuple):
    """What a canary tries: a rule on the failures of one error. That it recovers one says nothing of another, though both came with the same storm."""

    rule: str
    fingerprint: str = ""
    """Empty: on those of all errors that have no canary of their own."""


@dataclass(frozen=True, slots=True)
class StormPolicy:
    """When it is a storm."""

    window: int = 5 * MINUTE
    least: int = 50
    """Fewer failures than this in a window are never a storm."""
    factor: int = 5
    """The multiple of the usual number of failures in a window."""
    memory: int = DAY
    """The period over which the usual number is averaged."""


@dataclass(frozen=True, slots=True)
class StormGroup:
    """The failures of one storm, and what was tried on them."""

    id: str
    key: StormGroupKey
    opened: int
    failures: int = 0
    """The number of failures since it was opened, including those that opened it."""
    last: int = 0
    """When a failure came, or someone asked to act on one."""
    canaries: Mapping[Trial, Canary] = field(default_factory=lambda: MappingProxyType({}))
    """What was tried. Another rule, or another error, begins with one again."""

    @property
    def held(self) -> bool:
        """Whether it waits for a person: all tries have failed."""
        return bool(self.canaries) and all(canary.held for canary in self.canaries.values())

    def trial(self, rule: str, fingerprint: str) -> Trial:
        """What a rule's act on a failure of this error is a try of."""
        trial = Trial(rule, fingerprint)
        return trial if trial in self.canaries or len(self.canaries) < MAX_ERRORS else Trial(rule)


@dataclass(frozen=True, slots=True)
class Storms:
    """The failures of one tenant as they come, and the groups that are open."""

    policy: StormPolicy = StormPolicy()
    slices: Mapping[int, Mapping[FailureSignature, int]] = field(default_factory=lambda: MappingProxyType({}))
    usual: Mapping[StormGroupKey, float] = field(default_factory=lambda: MappingProxyType({}))
    """Failures in a window, on average."""
    averaged: int = 0
    """The last slice included in `usual`."""
    groups: tuple[StormGroup, ...] = ()
    """The oldest first."""
    latest: int = 0
    counted: tuple[str, ...] = ()
    """The names of the batches counted last, the newest last: a repeated batch is not counted again."""

    def group_of(self, sign: FailureSignature) -> StormGroup | None:
        """The group that a failure belongs to, if there is a storm."""
        return next((group for group in self.groups if group.key.has(sign)), None)


def notice(storms: Storms, signs: Iterable[FailureSignature], now: int, *, batch: str = "") -> Storms:
    """Count failures, and open a group where a storm has begun. Each failure is given once, before anyone asks to act on it.

    ``batch`` names these failures together: a caller that does not know whether they were counted counts them again under the same name, which changes nothing if they were.
    """
    if batch and batch in storms.counted:
        return storms
    storms = pass_time(storms, now)
    place = storms.latest // _slice(storms.policy)
    current = dict(storms.slices.get(place, {}))
    joined: dict[str, int] = {}
    for sign in signs:
        group = storms.group_of(sign)
        if group is not None:
            joined[group.id] = joined.get(group.id, 0) + 1
        known = _known_as(current, sign)
        current[known] = current.get(known, 0) + 1
    groups = tuple(
        replace(group, failures=group.failures + joined[group.id], last=storms.latest) if group.id in joined else group
        for group in storms.groups
    )
    counted = MappingProxyType({**storms.slices, place: MappingProxyType(current)})
    batches = (*storms.counted, batch)[-MAX_BATCHES:] if batch else storms.counted
    return _open_groups(replace(storms, slices=counted, groups=groups, counted=batches))


def pass_time(storms: Storms, now: int) -> Storms:
    """The storms at a later time: old failures are forgotten, and groups whose storm is over are closed."""
    now = max(now, storms.latest)
    policy = storms.policy
    place = now // _slice(policy)
    storms = _average(replace(storms, latest=now), place)
    slices = {at: signs for at, signs in storms.slices.items() if at >= place - SLICES}
    storms = replace(storms, slices=MappingProxyType(slices))
    counts = _counts(storms, covered=True)
    groups = tuple(group for group in storms.groups if not _over(storms, group, counts.get(group.key, 0)))
    return replace(storms, groups=groups)


def with_canary(storms: Storms, group: str, trial: Trial, canary: Canary) -> Storms:
    """The storms with what came of a try; nothing changes if the group is closed by now."""
    groups = tuple(
        replace(storm_group, canaries=MappingProxyType({**storm_group.canaries, trial: canary}), last=storms.latest)
        if storm_group.id == group
        else storm_group
        for storm_group in storms.groups
    )
    return replace(storms, groups=groups)


def threshold(storms: Storms, key: StormGroupKey) -> int:
    """The number of failures in a window that makes a storm."""
    policy = storms.policy
    return max(policy.least, int(policy.factor * storms.usual.get(key, 0.0)))


def _slice(policy: StormPolicy) -> int:
    return max(1, policy.window // SLICES)


def _known_as(current: Mapping[FailureSignature, int], sign: FailureSignature) -> FailureSignature:
    """The signature under which a failure is counted: with fewer traits when there are too many signatures."""
    if sign in current or len(current) < MAX_SIGNS // 2:
        return sign
    coarse = sign._replace(host="")
    return coarse if coarse in current or len(current) < MAX_SIGNS else FailureSignature(sign.cause)


def _keys(sign: FailureSignature) -> Sequence[StormGroupKey]:
    return [StormGroupKey(trait, value) for trait, value in zip(Trait, sign, strict=True) if value]


def _counts(storms: Storms, *, covered: bool) -> dict[StormGroupKey, int]:
    """The number of failures in the window by key; `covered`: including those that belong to a group."""
    counts: dict[StormGroupKey, int] = {}
    for signs in storms.slices.values():
        for sign, count in signs.items():
            if not covered and storms.group_of(sign) is not None:
                continue
            for key in _keys(sign):
                counts[key] = counts.get(key, 0) + count
    return counts


def _open_groups(storms: Storms) -> Storms:
    """Open a group for each new storm, and continue with the failures outside it."""
    for trait in Trait:
        while len(storms.groups) < MAX_GROUPS:
            counts = _counts(storms, covered=False)
            keys = [key for key in counts if key.trait is trait and counts[key] >= threshold(storms, key)]
            if not keys:
                break
            key = max(keys, key=lambda storm_group_key: (counts[storm_group_key], storm_group_key.value))
            group = StormGroup(
                f"{key.trait}:{key.value}@{storms.latest}", key, storms.latest, counts[key], storms.latest
            )
            storms = replace(storms, groups=(*storms.groups, group))
    return storms


def _over(storms: Storms, group: StormGroup, count: int) -> bool:
    """Whether a storm is over: few failures, and no member of its group is being tried or waits for a person."""
    calm = count < threshold(storms, group.key) / 2
    tried = [canary for canary in group.canaries.values() if not canary.open_to_all]
    if not calm or any(canary.held or canary.pending for canary in tried):
        return False
    # With a canary half-way and no more requests, all members were dealt with otherwise.
    return (bool(group.canaries) and not tried) or storms.latest - group.last >= storms.policy.window


def _average(storms: Storms, place: int) -> Storms:
    """Move the usual numbers towards those of the slices that have ended. A storm does not count as usual, unless it is recovered routinely."""
    if place <= storms.averaged:
        return storms
    policy = storms.policy
    weight = min(1.0, _slice(policy) / max(1, policy.memory))
    usual = dict(storms.usual)
    begun = storms.averaged or min(storms.slices, default=place)
    ended = [at for at in storms.slices if begun <= at < place]
    gone = place - begun
    for key in usual:
        usual[key] *= (1 - weight) ** gone
    for at in ended:
        for sign, count in storms.slices[at].items():
            group = storms.group_of(sign)
            if group is None or any(canary.open_to_all for canary in group.canaries.values()):
                for key in _keys(sign):
                    usual[key] = usual.get(key, 0.0) + weight * count * SLICES
    if len(usual) > MAX_SIGNS or min(usual.values(), default=1.0) < _RARE:
        often = sorted(usual.items(), key=lambda pair: -pair[1])[:MAX_SIGNS]
        usual = {key: value for key, value in often if value >= _RARE}
    return replace(storms, usual=MappingProxyType(usual), averaged=place)


def as_plain(storms: Storms) -> dict[str, Any]:
    """Storms as they are stored; the policy is the reader's own."""
    return {
        "slices": {str(at): [[*sign, count] for sign, count in signs.items()] for at, signs in storms.slices.items()},
        "usual": [[key.trait.value, key.value, value] for key, value in storms.usual.items()],
        "averaged": storms.averaged,
        "latest": storms.latest,
        "counted": list(storms.counted),
        "groups": [
            {
                "id": group.id,
                "key": [group.key.trait.value, group.key.value],
                "opened": group.opened,
                "failures": group.failures,
                "last": group.last,
                "canaries": {
                    trial.rule: canary.as_plain() for trial, canary in group.canaries.items() if not trial.fingerprint
                },
            }
            | _of_errors(group)
            for group in storms.groups
        ],
    }


def from_plain(data: Mapping[str, Any], policy: StormPolicy) -> Storms:
    slices = {
        int(at): MappingProxyType({FailureSignature(*names): count for *names, count in signs})
        for at, signs in data["slices"].items()
    }
    usual = {StormGroupKey(Trait(trait), value): average for trait, value, average in data["usual"]}
    groups = tuple(
        StormGroup(
            group["id"],
            StormGroupKey(Trait(group["key"][0]), group["key"][1]),
            group["opened"],
            group["failures"],
            group["last"],
            MappingProxyType(_canaries(group)),
        )
        for group in data["groups"]
    )
    counted = tuple(data.get("counted", ()))  # releases before this field did not write it
    return Storms(
        policy, MappingProxyType(slices), MappingProxyType(usual), data["averaged"], groups, data["latest"], counted
    )


def _of_errors(group: StormGroup) -> dict[str, Any]:
    tries = [[*trial, canary.as_plain()] for trial, canary in group.canaries.items() if trial.fingerprint]
    return {"of_errors": tries} if tries else {}


def _canaries(group: Mapping[str, Any]) -> dict[Trial, Canary]:
    together = {Trial(rule): Canary.from_plain(canary) for rule, canary in group["canaries"].items()}
    # Releases before this field tried a rule on all errors together.
    of_errors = group.get("of_errors", ())
    return together | {Trial(rule, fingerprint): Canary.from_plain(canary) for rule, fingerprint, canary in of_errors}
