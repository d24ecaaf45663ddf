"""A canary: a rule is tried on one failure of a group, then on ten, then on all.

Each step waits for the outcomes of those it let through. If too few of them succeed, the group is held for a person, and the rule tries nothing
more. Once all are let through the newest outcomes are still watched, so that a rule that recovered the first ten and harms the rest is stopped too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

STEPS = (1, 10)
"""How many are let through at each step; after the last of them, all."""
WATCHED = 20
"""Once all are let through: how many acts are watched at a time, and how many outcomes it is judged by."""
JUDGED_FROM = 10
SHARE = 0.8
"""The fraction of outcomes that must be good."""


@dataclass(frozen=True, slots=True)
class Canary:
    """How far a try has come."""

    step: int = 0
    """An index of `STEPS`; past its end all are let through."""
    pending: tuple[str, ...] = ()
    """Acts that were let through at this step and have no outcome yet; once all are let through, some of them."""
    well: int = 0
    bad: int = 0
    """Outcomes of this step."""
    newest: str = ""
    """Once all are let through: the newest outcomes, `+` and `-`."""
    held: bool = False
    """It waits for a person."""
    let: int = 0
    """How many were let through individually."""

    @property
    def open_to_all(self) -> bool:
        return self.step >= len(STEPS) and not self.held

    def as_plain(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "pending": list(self.pending),
            "well": self.well,
            "bad": self.bad,
            "newest": self.newest,
            "held": self.held,
            "let": self.let,
        }

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Canary:
        return cls(**{**data, "pending": tuple(data["pending"])})


@dataclass(frozen=True, slots=True)
class NotYet:
    """The act is not let through, with the reason."""

    words: str
    held: bool
    """Only a person can release it."""


def let_through(canary: Canary, act: str) -> Canary | NotYet:
    """Let an act through, identified by what will have the outcome (a job and its next attempt). A repeated act changes nothing."""
    if canary.held:
        return NotYet(f"{canary.bad} of {canary.well + canary.bad} retries failed; a person must decide", held=True)
    if act in canary.pending:
        return canary
    if canary.open_to_all:
        # Some are watched, so that later harm is noticed; the others cost no write.
        watched = len(canary.pending) >= WATCHED
        return canary if watched else replace(canary, pending=(*canary.pending, act))
    size = STEPS[canary.step]
    if len(canary.pending) + canary.well + canary.bad >= size:
        words = f"{size} {'is' if size == 1 else 'are'} being tried first; {len(canary.pending)} not finished yet"
        return NotYet(words, held=False)
    return replace(canary, pending=(*canary.pending, act), let=canary.let + 1)


def outcome(canary: Canary, act: str, *, well: bool) -> Canary:
    """Record the outcome of an act that was let through. The outcome of any other act changes nothing before all are let through."""
    if canary.held:
        return canary
    if canary.open_to_all:
        newest = (canary.newest + ("+" if well else "-"))[-WATCHED:]
        bad = newest.count("-")
        pending = tuple(pending_act for pending_act in canary.pending if pending_act != act)
        judged = replace(canary, pending=pending, newest=newest, well=len(newest) - bad, bad=bad)
        enough = len(newest) < JUDGED_FROM or len(newest) - bad >= SHARE * len(newest)
        return judged if enough else replace(judged, held=True)
    if act not in canary.pending:
        return canary
    pending = tuple(pending_act for pending_act in canary.pending if pending_act != act)
    after = replace(canary, pending=pending, well=canary.well + well, bad=canary.bad + (not well))
    size = STEPS[canary.step]
    if size - after.bad < SHARE * size:
        return replace(after, held=True)
    if after.well + after.bad == size:
        return Canary(step=canary.step + 1, let=canary.let)
    return after


def forget(canary: Canary, act: str) -> Canary:
    """An act that was let through has no outcome (the job was cancelled): another may go in its place."""
    return replace(canary, pending=tuple(pending_act for pending_act in canary.pending if pending_act != act))


def try_again(canary: Canary) -> Canary:
    """A person permits another try, from the first step on."""
    return Canary(let=canary.let)


def let_all(canary: Canary) -> Canary:
    """A person lets all through."""
    return Canary(step=len(STEPS), let=canary.let)
