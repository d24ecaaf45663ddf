"""The elements of one round of a task: their number and what is known of each.

The run manages up to `DIRECT_JOBS` elements itself; more are given to shards, of which the run knows only the counts. A
watched listing begins with the run's own elements and continues with shards when it grows past them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from forestay.domain.flows.scatter.elements import every, from_nearly_all, nearly_all
from forestay.domain.flows.scatter.shard_run import SHARD_JOBS, ShardRun

DIRECT_JOBS = 500
MAX_ELEMENTS = 5_000_000
"""1,000 shards of 5,000 jobs. Even if half of each failed, their state fits into a payload; and a workflow may have twice as many children."""


class ShardTally(NamedTuple):
    """What a run knows of one of its shards."""

    first: int
    size: int
    ended: bool = False
    well: int = 0
    bad: int = 0
    skipped: int = 0
    done: str = ""
    """Which elements succeeded, if not all did and the compensation needs to know."""


@dataclass(frozen=True, slots=True)
class FanOut:
    """The elements of a round."""

    own: ShardRun | None = None
    """The elements that the run manages itself."""
    shards: tuple[ShardTally, ...] = ()
    open: bool = False
    """A watched listing: more may come."""
    reason: str = ""
    feeds: tuple[str, ...] = ()
    """For a scatter over another's outputs: what each shard was last sent about it."""

    @property
    def count(self) -> int:
        return (self.own.count if self.own else 0) + sum(shard.size for shard in self.shards)

    @property
    def well(self) -> int:
        return (self.own.well.bit_count() if self.own else 0) + sum(shard.well for shard in self.shards)

    @property
    def bad(self) -> int:
        return (self.own.bad.bit_count() if self.own else 0) + sum(shard.bad for shard in self.shards)

    @property
    def finished(self) -> bool:
        return not self.open and (self.own is None or self.own.finished) and all(shard.ended for shard in self.shards)

    @property
    def own_count(self) -> int:
        return self.own.count if self.own else 0

    def why(self) -> str:
        """The reason of a failure."""
        return self.reason or (self.own.reason if self.own else "")

    def as_plain(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if self.own is not None:
            out["own"] = self.own.as_plain()
        if self.shards:
            out["shards"] = [list(shard) for shard in self.shards]
        if self.open:
            out["open"] = True
        if self.reason:
            out["reason"] = self.reason
        if self.feeds:
            out["feeds"] = list(self.feeds)
        return out

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> FanOut:
        own = data.get("own")
        return cls(
            own=None if own is None else ShardRun.from_plain(own),
            shards=tuple(ShardTally(*shard) for shard in data.get("shards", ())),
            open=data.get("open", False),
            reason=data.get("reason", ""),
            feeds=tuple(data.get("feeds", ())),
        )


class Piece(NamedTuple):
    """A range of elements, and which of them succeeded; ``None``: all."""

    first: int
    size: int
    done: str | None = None


def split(first: int, count: int) -> tuple[ShardTally, ...]:
    """Shards for so many elements."""
    return tuple(
        ShardTally(start, min(SHARD_JOBS, first + count - start)) for start in range(first, first + count, SHARD_JOBS)
    )


def done_pieces(fan_out: FanOut) -> tuple[Piece, ...]:
    """The elements that succeeded, for their compensation."""
    pieces: list[Piece] = []
    own = fan_out.own
    if own is not None and own.well:
        whole = own.well == every(own.count)
        pieces.append(Piece(own.first, own.count, None if whole else nearly_all(own.well, own.count)))
    for shard in fan_out.shards:
        if shard.well == shard.size:
            pieces.append(Piece(shard.first, shard.size))
        elif shard.well:
            pieces.append(Piece(shard.first, shard.size, shard.done))
    return tuple(pieces)


def skip_of(piece: Piece) -> int:
    """The elements of a piece that are not to be run."""
    return every(piece.size) & ~bits_of(piece)


def bits_of(piece: Piece) -> int:
    """The elements of a piece that are in the set."""
    return every(piece.size) if piece.done is None else from_nearly_all(piece.done, piece.size)


def joined(before: tuple[Piece, ...], now: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """The union of both; both are divided at the same places."""
    pieces = {piece.first: piece for piece in before}
    for piece in now:
        bits = bits_of(piece) | (bits_of(pieces[piece.first]) if piece.first in pieces else 0)
        pieces[piece.first] = Piece(piece.first, piece.size, _as_done(bits, piece.size))
    return tuple(pieces[first] for first in sorted(pieces))


def rest(layout: tuple[Piece, ...], done: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """The elements of a layout that are not done yet."""
    known = {piece.first: bits_of(piece) for piece in done}
    left: list[Piece] = []
    for piece in layout:
        bits = every(piece.size) & ~known.get(piece.first, 0)
        if bits:
            left.append(Piece(piece.first, piece.size, _as_done(bits, piece.size)))
    return tuple(left)


def layout_of(fan_out: FanOut) -> tuple[Piece, ...]:
    """How the elements of a round were divided."""
    own = (Piece(0, fan_out.own.count),) if fan_out.own is not None and fan_out.own.count else ()
    return own + tuple(Piece(shard.first, shard.size) for shard in fan_out.shards)


def _as_done(bits: int, size: int) -> str | None:
    return None if bits == every(size) else nearly_all(bits, size)


def end_shard(fan_out: FanOut, place: int, ended: ShardTally, *, reason: str) -> FanOut:
    """Record a shard's final report."""
    shards = (*fan_out.shards[:place], ended, *fan_out.shards[place + 1 :])
    return replace(fan_out, shards=shards, reason=fan_out.reason or reason)
