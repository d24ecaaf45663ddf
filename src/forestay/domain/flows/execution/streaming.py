"""Scatters over the outputs of another scatter: element k starts when element k of the previous task, the *producer*, has succeeded.

Both have the same elements under the same numbers. A failure in the producer holds only the same element here: it waits as long as the producer may
still succeed, and is given up when it cannot. Only which elements wait is stored: `feed` reads the producer's present state.
"""

from __future__ import annotations

from dataclasses import replace

from forestay.domain.flows.commands import FeedShard, FollowShard, SubmitJobs
from forestay.domain.flows.definition.flow import WhenFailed
from forestay.domain.flows.execution.flow_run import BEGUN, InstanceState, RunPhase, TaskInstance
from forestay.domain.flows.execution.rounds import order_for
from forestay.domain.flows.execution.run_update import RunUpdate
from forestay.domain.flows.scatter.elements import every
from forestay.domain.flows.scatter.fan_out import FanOut, Piece, ShardTally, bits_of, done_pieces, joined
from forestay.domain.flows.scatter.shard_run import ElementsReady, ShardRun, SubmitBatch, advance_shard


def bars(update: RunUpdate, instance: TaskInstance) -> bool:
    """Whether the tasks after an ended task can never begin."""
    if instance.state is InstanceState.CANCELLED:
        return True
    return (
        instance.state is InstanceState.FAILED
        and not instance.forced
        and update.task(instance).when_failed is not WhenFailed.IGNORE
    )


def may_be_followed(producer: TaskInstance) -> bool:
    """Whether the elements of a task are known, so that others may consume them."""
    known = producer.fan_out is not None or producer.ended or producer.state is InstanceState.FAULTED
    return known and bool(producer.sizes) and producer.verdict is None


def feed(update: RunUpdate, instance: TaskInstance) -> bool:
    """Start the elements whose inputs are available; returns whether there were any, or some were given up."""
    producer, fan_out = update.producer(instance), instance.fan_out
    if producer is None or fan_out is None:
        return False
    if fan_out.own is not None:
        return _feed_own(update, instance, producer, fan_out, fan_out.own)
    feeds = tuple(
        _feed_shard(update, instance, producer, place, tally, fan_out.feeds[place])
        for place, tally in enumerate(fan_out.shards)
        if place < len(fan_out.feeds)
    )
    if feeds == fan_out.feeds:
        return False
    update.put(instance, fan_out=replace(fan_out, feeds=feeds))
    return True


def _feed_own(
    update: RunUpdate, instance: TaskInstance, producer: TaskInstance, fan_out: FanOut, before: ShardRun
) -> bool:
    if not before.waiting:
        return False
    ready = _bits(_done(producer), Piece(before.first, before.count))
    own, commands = advance_shard(before, ElementsReady(ready, closed=_is_over(update, producer)))
    if own == before:
        return False
    instance = update.put(instance, fan_out=replace(fan_out, own=own))
    order = order_for(update, instance)
    if before.waiting | before.skipped != every(before.count):
        order = replace(order, checked=True)  # once for a round, not whenever elements become ready
    for command in commands:
        if isinstance(command, SubmitBatch):
            of = own.count - own.skipped.bit_count()
            holders = update.holders(instance)
            update.say(SubmitJobs(order, command.first, command.count, command.skip, holders, wait=True, of=of))
    return True


def _feed_shard(
    update: RunUpdate, instance: TaskInstance, producer: TaskInstance, place: int, tally: ShardTally, last: str
) -> str:
    """Send a shard the news of its elements; returns what was last sent."""
    if tally.ended:
        return last
    works = (producer.work, *producer.earlier) if producer.kept else (producer.work,)
    at = _shard_of(producer, tally.first)
    ready = _bits(_done(producer), Piece(tally.first, tally.size))
    closed = _is_over(update, producer) or ready == every(tally.size)
    stage = "closed" if closed else "ended" if at is None else "followed"
    news = f"{producer.work} {stage}"
    if news == last or (not closed and not may_be_followed(producer)):
        return last
    update.say(FeedShard(instance.work, place, ready, closed, works))
    if at is not None and not closed:
        update.say(FollowShard(instance.work, place, producer.work, at))
    return news


def _shard_of(producer: TaskInstance, first: int) -> int | None:
    """The shard of a task's round that has the elements from this one on and has not ended."""
    shards = producer.fan_out.shards if producer.fan_out is not None else ()
    return next((place for place, shard in enumerate(shards) if shard.first == first and not shard.ended), None)


def _is_over(update: RunUpdate, producer: TaskInstance) -> bool:
    """Whether a task can produce no more elements."""
    return producer.ended or (update.run.phase is not RunPhase.RUNNING and producer.state not in BEGUN)


def _done(instance: TaskInstance) -> tuple[Piece, ...]:
    """The elements of a task that have succeeded, in this round or earlier ones."""
    if instance.fan_out is not None:
        return joined(instance.done, done_pieces(instance.fan_out))
    if instance.done or instance.well < instance.count:
        return instance.done
    return (Piece(0, instance.count),)  # all of them


def _bits(done: tuple[Piece, ...], part: Piece) -> int:
    """The done elements of a part. Both tasks divide their elements at the same places, unless all are known to be done."""
    whole = done[0] if len(done) == 1 and done[0].done is None else Piece(0, 0)
    if whole.first <= part.first and part.first + part.size <= whole.first + whole.size:
        return every(part.size)
    return next((bits_of(piece) for piece in done if piece.first == part.first), 0)


def lost_inputs(update: RunUpdate, instance: TaskInstance) -> bool:
    """Whether elements were given up because the task that produces their inputs failed or never ran."""
    producer = update.producer(instance)
    if producer is None or not _is_over(update, producer):
        return False
    return bars(update, producer) or not producer.ended


def more_to_do(update: RunUpdate, instance: TaskInstance, bad: int) -> bool:
    """Whether a round has given up elements whose inputs exist by now, or may still come: its producer was recovered meanwhile."""
    producer = update.producer(instance)
    if producer is None or update.run.phase is not RunPhase.RUNNING or instance.well + bad >= instance.count:
        return False
    if not _is_over(update, producer):
        return True
    done, ready = instance.done, _done(producer)
    return sum((_bits(ready, part) & ~_bits(done, part)).bit_count() for part in instance.layout) > bad
