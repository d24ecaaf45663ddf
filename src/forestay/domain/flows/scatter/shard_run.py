"""A shard: follows at most 5,000 jobs of one round, and stores of each only whether and how it ended.

`advance_shard` is pure, so a shard's workflow is a thin loop around it. A task of few jobs has no shard workflow: its run holds a `ShardRun`
itself. The state of a full shard is three bitmaps of 5,000 bits; as JSON at most 4 kB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from forestay.domain.flows.events import ShardEnded
from forestay.domain.flows.scatter.elements import every, from_text, to_text

SHARD_JOBS = 5000
BATCH_JOBS = 1000
"""The default number of jobs that are submitted in one command."""


@dataclass(frozen=True, slots=True)
class ShardRun:
    """What a shard knows. Bitmaps count from ``first``."""

    first: int
    count: int
    skipped: int = 0
    """Elements that need not run."""
    well: int = 0
    bad: int = 0
    submitted: int = 0
    """The number of elements, from the first, that were handed to the store."""
    accepted: int = 0
    """Elements that the store has acknowledged; kept for fire and forget only."""
    open: bool = False
    """More elements may come."""
    cancelled: bool = False
    wait: bool = True
    """False: fire and forget."""
    holders: tuple[str, ...] = ()
    reason: str = ""
    """Why the first job that was reported failed did so."""
    waiting: int = 0
    """Elements whose inputs another task has not produced yet; they are not handed to the store."""
    works: tuple[str, ...] = ()
    """The rounds of that task in which they are produced, the newest first."""
    followers: tuple[tuple[str, int], ...] = ()
    """Rounds and shards that consume these elements one by one, and are notified of those that succeeded."""

    @property
    def ended(self) -> int:
        return self.well | self.bad | self.skipped

    @property
    def finished(self) -> bool:
        """Nothing more will happen here."""
        if self.open:
            return False
        if not self.wait:
            return self.cancelled or self.accepted | self.skipped == every(self.count)
        return self.ended == every(self.count)

    def as_plain(self) -> dict[str, Any]:
        """As JSON types; empty fields are left out."""
        out: dict[str, Any] = {"first": self.first, "count": self.count}
        for name in ("skipped", "well", "bad", "accepted"):
            if getattr(self, name):
                out[name] = to_text(getattr(self, name))
        for name in ("submitted", "open", "cancelled", "reason"):
            if getattr(self, name):
                out[name] = getattr(self, name)
        if not self.wait:
            out["wait"] = False
        if self.holders:
            out["holders"] = list(self.holders)
        if self.waiting:
            out["waiting"] = to_text(self.waiting)
        if self.works:
            out["works"] = list(self.works)
        if self.followers:
            out["followers"] = [list(follower) for follower in self.followers]
        return out

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> ShardRun:
        return cls(
            first=data["first"],
            count=data["count"],
            skipped=from_text(data.get("skipped", "0")),
            well=from_text(data.get("well", "0")),
            bad=from_text(data.get("bad", "0")),
            submitted=data.get("submitted", 0),
            accepted=from_text(data.get("accepted", "0")),
            open=data.get("open", False),
            cancelled=data.get("cancelled", False),
            wait=data.get("wait", True),
            holders=tuple(data.get("holders", ())),
            reason=data.get("reason", ""),
            waiting=from_text(data.get("waiting", "0")),
            works=tuple(data.get("works", ())),
            followers=tuple((work, shard) for work, shard in data.get("followers", ())),
        )


@dataclass(frozen=True, slots=True)
class BatchAccepted:
    """The store has acknowledged these jobs; ``first`` counts as the jobs' indexes do."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class BatchEnded:
    """These jobs have ended: bitmaps from the shard's first. Earlier ends may be repeated in it."""

    well: int = 0
    bad: int = 0
    skipped: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ShardGrew:
    """The shard has so many elements by now; if not ``open``, no more will come."""

    count: int
    open: bool


@dataclass(frozen=True, slots=True)
class ShardCancelled:
    """Elements that have not ended are no longer needed."""


@dataclass(frozen=True, slots=True)
class ShardHeld:
    holder: str


@dataclass(frozen=True, slots=True)
class ShardContinued:
    holder: str


@dataclass(frozen=True, slots=True)
class ElementsReady:
    """The inputs of these elements are available. ``closed``: no more will come, and the others need not run."""

    ready: int
    closed: bool = False
    works: tuple[str, ...] = ()
    """The rounds that produced them, the newest first; empty: those given before."""


@dataclass(frozen=True, slots=True)
class ShardFollowed:
    """A shard of another round continues with these elements one by one, and must be told which succeeded."""

    work: str
    shard: int


ShardEvent = (
    BatchAccepted | BatchEnded | ShardGrew | ShardCancelled | ShardHeld | ShardContinued | ElementsReady | ShardFollowed
)


@dataclass(frozen=True, slots=True)
class SubmitBatch:
    """Create these jobs, but for those in ``skip`` (a bitmap from this batch's first), with these holders."""

    first: int
    count: int
    skip: int = 0
    holders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CancelBatch:
    """Cancel these jobs, those that have not ended."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class HoldBatch:
    first: int
    count: int
    holder: str


@dataclass(frozen=True, slots=True)
class ContinueBatch:
    first: int
    count: int
    holder: str


@dataclass(frozen=True, slots=True)
class TellFollower:
    """Tell the following shard which of these elements have succeeded so far."""

    work: str
    shard: int
    well: int


ShardCommand = SubmitBatch | CancelBatch | HoldBatch | ContinueBatch | TellFollower


def start_shard(
    *,
    first: int,
    count: int,
    skip: int = 0,
    open_: bool = False,
    wait: bool = True,
    holders: tuple[str, ...] = (),
    batch: int = BATCH_JOBS,
    streams: bool = False,
) -> tuple[ShardRun, tuple[ShardCommand, ...]]:
    """A new shard and its first commands. It has finished when `ShardRun.finished`; that is not a command. ``streams``: its elements wait to be ready."""
    shard = ShardRun(
        first, count, skipped=skip & every(count), open=open_, wait=wait, holders=tuple(sorted(set(holders)))
    )
    if streams:
        return replace(shard, waiting=every(count) & ~shard.skipped, submitted=count), ()
    return _submit(shard, batch)


def advance_shard(run: ShardRun, event: ShardEvent) -> tuple[ShardRun, tuple[ShardCommand, ...]]:
    """Process an event; total, and a repetition changes nothing."""
    match event:
        case BatchEnded():
            ended = _end(run, event)
            return ended, _tell_followers(ended) if ended.well != run.well else ()
        case BatchAccepted(first, count):
            if run.wait or first < run.first:
                return run, ()
            batch = (every(count) << (first - run.first)) & every(run.submitted)
            return replace(run, accepted=run.accepted | batch), ()
        case ShardGrew(count, open_):
            if not run.open:
                return run, ()
            return _submit(replace(run, count=max(run.count, min(count, SHARD_JOBS)), open=open_))
        case ShardCancelled():
            if run.cancelled or run.finished:
                return run, ()
            unsent = every(run.count) & ~every(run.submitted) | run.waiting
            stopped = replace(run, cancelled=True, open=False, skipped=run.skipped | unsent, waiting=0)
            return stopped, () if stopped.finished else (CancelBatch(run.first, run.submitted),)
        case ShardHeld(holder):
            if holder in run.holders or run.finished:
                return run, ()
            held = replace(run, holders=tuple(sorted({*run.holders, holder})))
            return held, (HoldBatch(run.first, run.submitted, holder),)
        case ShardContinued(holder):
            if holder not in run.holders:
                return run, ()
            freed = replace(run, holders=tuple(other_holder for other_holder in run.holders if other_holder != holder))
            return freed, (ContinueBatch(run.first, run.submitted, holder),)
        case ElementsReady(ready, closed, works):
            return _make_ready(replace(run, works=works) if works else run, ready, closed=closed)
        case ShardFollowed(work, shard):
            if (work, shard) in run.followers:
                return run, ()
            followed = replace(run, followers=(*run.followers, (work, shard)))
            return followed, (TellFollower(work, shard, run.well),) if run.well else ()


def _end(run: ShardRun, event: BatchEnded) -> ShardRun:
    # A job's end never changes: known ends stay as they are.
    known = every(run.count) & ~run.ended & ~run.waiting
    well = event.well & known
    bad = event.bad & known & ~well
    skipped = event.skipped & known & ~well & ~bad
    if not well | bad | skipped:
        return run
    return replace(
        run,
        well=run.well | well,
        bad=run.bad | bad,
        skipped=run.skipped | skipped,
        reason=run.reason or (event.reason[:MAX_REASON] if bad else ""),
    )


def _make_ready(run: ShardRun, ready: int, *, closed: bool) -> tuple[ShardRun, tuple[ShardCommand, ...]]:
    """Submit the elements whose inputs have come; give up those whose inputs can no longer come."""
    new = run.waiting & ready
    left = run.waiting & ~ready
    run = replace(run, waiting=0 if closed else left, skipped=run.skipped | (left if closed else 0))
    if not new:
        return run, ()
    count = new.bit_length()
    return run, (SubmitBatch(run.first, count, every(count) & ~new, run.holders),)


def _tell_followers(run: ShardRun) -> tuple[ShardCommand, ...]:
    return tuple(TellFollower(work, shard, run.well) for work, shard in run.followers)


MAX_REASON = 500


def _submit(run: ShardRun, most: int = BATCH_JOBS) -> tuple[ShardRun, tuple[ShardCommand, ...]]:
    commands: list[ShardCommand] = []
    done = run.submitted
    while done < run.count and not run.cancelled:
        batch = min(most, run.count - done)
        skip = (run.skipped >> done) & every(batch)
        if skip != every(batch):
            commands.append(SubmitBatch(run.first + done, batch, skip, run.holders))
        done += batch
    return replace(run, submitted=done), tuple(commands)


def shard_ended(run: ShardRun, *, at: int, work: str, shard: int) -> ShardEnded:
    """The report of a finished shard to its run."""
    well = run.well.bit_count()
    done = None if well in (0, run.count) else run.well
    skipped = (run.skipped & ~run.well & ~run.bad).bit_count()
    return ShardEnded(at, work, shard, well, run.bad.bit_count(), skipped, done, run.reason)
