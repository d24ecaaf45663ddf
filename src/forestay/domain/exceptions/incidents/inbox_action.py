"""A person's action on a group of the inbox: on one failure, then on ten, then on all, each step only after the previous one succeeded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

MOST = 500
"""The most incidents of one action; the rest of a larger group needs further actions."""


class InboxRemedy(StrEnum):
    """What is done to each."""

    RETRY = "retry"
    """Its job may be claimed again, unchanged."""
    CANCEL = "cancel"
    """Its job is cancelled."""
    PLAYBOOK = "playbook"
    """A stored playbook is carried out for it."""


class Reach(StrEnum):
    """To how many."""

    ONE = "one"
    TEN = "ten"
    ALL = "all"

    @property
    def most(self) -> int:
        return {Reach.ONE: 1, Reach.TEN: 10, Reach.ALL: MOST}[self]


BEFORE = {Reach.TEN: Reach.ONE, Reach.ALL: Reach.TEN}
"""The reach that must have succeeded first."""


@dataclass(frozen=True, slots=True)
class InboxTarget:
    """The same remedy for the same group."""

    cause: str
    """Empty: any cause."""
    owner: str
    """Empty: any owner."""
    remedy: InboxRemedy
    playbook: str = ""
    fingerprint: str = ""
    """Their error; empty: any error."""


class InboxOutcome(StrEnum):
    """The outcome of the action for one incident."""

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
    """The action covered the whole rest of the group."""

    def count(self, fate: InboxOutcome) -> int:
        return sum(1 for outcome in self.fates if outcome is fate)


def why_not_yet(target: InboxTarget, reach: Reach, before: TriedAction | None) -> str | None:
    """Why this reach is not permitted yet; None: it is."""
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
