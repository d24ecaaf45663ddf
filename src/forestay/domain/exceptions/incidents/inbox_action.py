"""A person's action on a group of the inbox: on one failure, then on ten, then on all, each step only after the previous one succeeded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

MOST = 500
"""Incidents that one act takes; of a larger group the rest is acted on by further acts."""


class InboxRemedy(StrEnum):
    """What is done to each."""

    RETRY = "retry"
    """Its job may be claimed again, as it is."""
    CANCEL = "cancel"
    """Its job is ended."""
    PLAYBOOK = "playbook"
    """A playbook that is kept under a name is carried out for it."""


class Reach(StrEnum):
    """To how many."""

    ONE = "one"
    TEN = "ten"
    ALL = "all"

    @property
    def most(self) -> int:
        return {Reach.ONE: 1, Reach.TEN: 10, Reach.ALL: MOST}[self]


BEFORE = {Reach.TEN: Reach.ONE, Reach.ALL: Reach.TEN}
"""The reach that must have gone well first."""


@dataclass(frozen=True, slots=True)
class InboxTarget:
    """The same remedy for the same group."""

    cause: str
    """Empty: whatever it is."""
    owner: str
    """Empty: whosever they are."""
    remedy: InboxRemedy
    playbook: str = ""
    fingerprint: str = ""
    """The error that they are; empty: whichever they are."""


class InboxOutcome(StrEnum):
    """What became of one of them."""

    PENDING = "pending"
    WELL = "well"
    BAD = "bad"
    """It failed again, or the remedy was refused."""


@dataclass(frozen=True, slots=True)
class TriedAction:
    """The present state of an action on a group."""

    target: InboxTarget
    reach: Reach
    fates: Sequence[InboxOutcome]
    whole: bool
    """Nothing of the group was left when it was chosen."""

    def count(self, fate: InboxOutcome) -> int:
        return sum(1 for outcome in self.fates if outcome is fate)


def why_not_yet(target: InboxTarget, reach: Reach, before: TriedAction | None) -> str | None:
    """Why this many may not be acted on yet; None: they may."""
    wanted = BEFORE.get(reach)
    if wanted is None:
        return None
    if before is None or before.target != target:
        return f"apply it to {wanted.value} first, and check whether it helps"
    order = list(Reach)
    if order.index(before.reach) < order.index(wanted):
        return f"it was applied to {before.reach.value}; apply it to {wanted.value} next"
    if before.count(InboxOutcome.BAD):
        return f"it did not help {before.count(InboxOutcome.BAD)} of {len(before.fates)}"
    if before.count(InboxOutcome.PENDING):
        return f"{before.count(InboxOutcome.PENDING)} of {len(before.fates)} have not finished yet"
    return None if before.fates else "nothing was tried"
