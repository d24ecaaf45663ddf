"""A shard: whatever the order and overlap of batches, it ends with what its jobs came to."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.flows.scatter.elements import elements, every, indexes
from forestay.domain.flows.scatter.shard_run import (
    BATCH_JOBS,
    SHARD_JOBS,
    BatchAccepted,
    BatchEnded,
    CancelBatch,
    ContinueBatch,
    HoldBatch,
    ShardCancelled,
    ShardContinued,
    ShardEvent,
    ShardGrew,
    ShardHeld,
    ShardRun,
    SubmitBatch,
    advance_shard,
    shard_ended,
    start_shard,
)


def carried(run: ShardRun) -> ShardRun:
    again = ShardRun.from_plain(json.loads(json.dumps(run.as_plain())))
    assert again == run
    return again


def feed(run: ShardRun, *events: ShardEvent) -> ShardRun:
    for event in events:
        after, _ = advance_shard(carried(run), event)
        again, commands = advance_shard(after, event)
        assert (again, commands) == (after, ()), "a repeat changes nothing and asks for nothing"
        run = after
    return run


@given(st.integers(0, 60), st.integers(0, 10**6), st.randoms(use_true_random=False), st.integers(0, 2**60))
def test_batches_in_any_order_come_to_the_same(count: int, first: int, random: object, bits: int) -> None:
    chance = random
    well = bits & every(count)
    ends = list(indexes(every(count)))
    runs = []
    for _ in range(2):
        run, _ = start_shard(first=first, count=count)
        chance.shuffle(ends)  # type: ignore[attr-defined]
        place = 0
        while place < count:
            size = chance.randint(1, count)  # type: ignore[attr-defined]
            batch = elements(ends[max(0, place - 3) : place + size])
            run = feed(run, BatchEnded(batch & well, batch & ~well))
            place += size
        assert run.finished
        runs.append(run)
    assert runs[0] == runs[1]
    value = shard_ended(runs[0], at=1, work="a@1", shard=0)
    assert (value.well, value.bad) == (well.bit_count(), count - well.bit_count())
    assert value.done == (None if value.well in (0, count) else well)


def test_a_full_shard_is_submitted_in_batches_and_stays_small() -> None:
    run, commands = start_shard(first=10_000, count=SHARD_JOBS)
    assert [(command.first, command.count) for command in commands if isinstance(command, SubmitBatch)] == [
        (10_000 + BATCH_JOBS * n, BATCH_JOBS) for n in range(5)
    ]
    run = feed(run, BatchEnded(well=elements(range(0, SHARD_JOBS, 2)), bad=elements(range(1, SHARD_JOBS, 2))))
    assert run.finished
    assert len(json.dumps(run.as_plain())) < 4096


def test_what_need_not_be_done_is_not_submitted() -> None:
    skip = every(1000) | 1 << 1500
    run, commands = start_shard(first=0, count=2000, skip=skip)
    assert commands == (SubmitBatch(1000, 1000, 1 << 500),)
    run = feed(run, BatchEnded(well=every(2000) & ~skip))
    assert run.finished
    assert shard_ended(run, at=1, work="a@1", shard=0).skipped == 1001
    done, none = start_shard(first=0, count=3, skip=7)
    assert done.finished
    assert none == ()


def test_a_known_end_never_changes() -> None:
    run, _ = start_shard(first=0, count=2)
    run = feed(run, BatchEnded(well=1), BatchEnded(bad=3, reason="lost"))
    assert (run.well, run.bad, run.reason) == (1, 2, "lost")


def test_an_open_shard_grows_until_nothing_more_comes() -> None:
    run, _ = start_shard(first=0, count=1, open_=True)
    run = feed(run, BatchEnded(well=1))
    assert not run.finished
    run, commands = advance_shard(run, ShardGrew(3, open=True))
    assert commands == (SubmitBatch(1, 2),)
    run = feed(run, ShardGrew(2, open=True), BatchEnded(well=7))
    assert run.count == 3
    run = feed(run, ShardGrew(3, open=False))
    assert run.finished
    assert feed(run, ShardGrew(9, open=True)) == run


def test_fire_and_forget_ends_when_every_batch_is_accepted_in_any_order() -> None:
    run, _ = start_shard(first=0, count=2500, wait=False)
    run = feed(run, BatchAccepted(2000, 500), BatchAccepted(0, 1000))
    assert not run.finished
    assert feed(run, BatchAccepted(1000, 1000)).finished


def test_it_is_held_continued_and_cancelled() -> None:
    run, _ = start_shard(first=5, count=10, holders=("x",))
    run, commands = advance_shard(run, ShardHeld("ann"))
    assert commands == (HoldBatch(5, 10, "ann"),)
    run, commands = advance_shard(run, ShardContinued("x"))
    assert commands == (ContinueBatch(5, 10, "x"),)
    assert run.holders == ("ann",)
    run, commands = advance_shard(run, ShardCancelled())
    assert commands == (CancelBatch(5, 10),)
    assert not run.finished
    assert feed(run, BatchEnded(well=1, bad=every(10))).finished
