"""What jobs would have asked for: on a seeded generator whose truth is known, and for any measurements."""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import exp
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import examples

from forestay.domain.jobs.right_sizing import (
    LEAST,
    MOST_RANGES,
    SHARE,
    Backtest,
    Measured,
    advise,
    backtest,
    nearest_rank,
    sizes_of,
)

GB = 1 << 30
Need = Callable[[Random, float, int], float]
"""Bytes that a job needs, by its input in GB and its number."""
TASKS: dict[str, tuple[int, Need]] = {
    "constant": (8, lambda rng, size, n: 2.0 * exp(rng.gauss(0, 0.05))),
    "noisy": (16, lambda rng, size, n: 2.0 * exp(rng.gauss(0, 0.4))),
    "linear in its input": (30, lambda rng, size, n: 0.3 + 1.2 * size * exp(rng.gauss(0, 0.1))),
    "steps": (64, lambda rng, size, n: 4.0 if size < 3 else 14.0 + rng.random()),
    "two kinds of jobs": (32, lambda rng, size, n: (12.0 if rng.random() < 0.05 else 1.5) * exp(rng.gauss(0, 0.1))),
    "heavy tail": (64, lambda rng, size, n: min(60.0, 1.0 * rng.paretovariate(2.0))),
    "grows slowly with time": (16, lambda rng, size, n: 3.0 * (1 + n / 8000) * exp(rng.gauss(0, 0.1))),
    "well asked": (4, lambda rng, size, n: 3.4 + 0.3 * rng.random()),
}
"""What its users ask for, in GB, and what its jobs truly need."""


def generated(task: str, seed: int, count: int = 2000) -> list[Measured]:
    rng = Random(f"{task} {seed}")
    asked, need = TASKS[task]
    jobs = []
    for number in range(count):
        size = rng.lognormvariate(1.0, 0.6)
        memory = int(need(rng, min(size, 12.0), number) * GB)
        wall = 60 * exp(rng.gauss(2.0, 0.5)) * (1 + size)
        killed = memory > asked * GB
        jobs.append(Measured(min(memory, asked * GB), wall, asked * GB, 86_400, int(size * GB), killed))
    return jobs


@pytest.mark.parametrize("seed", range(3))
def test_half_of_the_waste_is_saved_and_two_of_a_hundred_fail_at_most(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sized by 1,000 jobs, judged on the next 1,000, whose truth is known."""
    lines, total = [], []
    for task in TASKS:
        jobs = generated(task, seed)
        judged = backtest(jobs[:1000], jobs[1000:])
        assert judged is not None
        total.append(judged)
        lines.append(f"{task:24} waste {_less(judged):+6.1%}, extra out of memory {judged.failed / judged.jobs:.1%}")
        assert judged.failed <= 0.03 * judged.jobs, lines[-1]
    whole = Backtest(
        sum(judged.jobs for judged in total),
        sum(judged.failed for judged in total),
        sum(judged.wasted for judged in total),
        sum(judged.would_waste for judged in total),
    )
    lines.append(f"{'all':24} waste {_less(whole):+6.1%}, extra out of memory {whole.failed / whole.jobs:.1%}")
    with capsys.disabled():
        sys.stdout.write("\n".join(["", *lines, ""]))
    assert _less(whole) <= -0.5
    assert whole.failed <= 0.02 * whole.jobs


def _less(judged: Backtest) -> float:
    return judged.would_waste / judged.wasted - 1


def measured(seed: int, count: int, kinds: int) -> list[Measured]:
    """Any jobs: of few input sizes or of many, or of none that is known; one in two hundred was killed for memory."""
    rng = Random(seed)
    jobs = []
    for _ in range(count):
        size = rng.randrange(max(1, kinds)) if kinds < 9 else rng.randrange(10**12)
        memory = int(rng.lognormvariate(20, 2))
        jobs.append(Measured(memory, rng.random() * 1e5, 2 * memory, None, size if kinds else None, rng.random() < 0.005))  # fmt: skip
    return jobs


@given(st.integers(0, 10**9), st.integers(LEAST, 400), st.integers(0, 9))
@settings(max_examples=examples(60))
def test_never_less_than_what_so_many_jobs_used(seed: int, count: int, kinds: int) -> None:
    jobs = measured(seed, count, kinds)
    sizes = sizes_of(jobs)
    assert sizes is not None
    if sizes.memory is not None:
        enough = sum(job.memory <= sizes.memory and not job.out_of_memory for job in jobs)
        assert enough >= SHARE * len(jobs)
        assert sizes.memory_for(None) == sizes.memory
    assert len(sizes.ranges) <= MOST_RANGES
    low = -1
    memory = 0
    for part in sizes.ranges:
        inside = [job for job in jobs if low < (job.input_bytes or 0) <= part.up_to]
        assert len(inside) == part.jobs >= LEAST
        if part.memory is not None:
            assert sum(job.memory <= part.memory and not job.out_of_memory for job in inside) >= SHARE * len(inside)
            assert part.memory >= memory, "larger inputs never get less"
            memory = part.memory
        low = part.up_to
    if sizes.ranges:
        assert sum(part.jobs for part in sizes.ranges) == len(jobs)
        assert sizes.memory_for(low + 1) is None, "nothing is said about inputs larger than any that was measured"


def test_quantiles_are_values_that_were_measured() -> None:
    assert nearest_rank([3, 1, 2], 0.5) == 2
    assert nearest_rank(range(1, 101), 0.99) == 99
    assert nearest_rank([7], 0.99) == 7


def test_too_few_jobs_and_jobs_that_ran_out_of_memory_give_no_figure() -> None:
    job = Measured(GB, 60.0, 8 * GB, 3600, None)
    few = advise([job] * (LEAST - 1))
    assert (few.jobs, few.asked_memory, few.asked_wall, few.sizes, few.backtest) == (49, 8 * GB, 3600, None, None)
    some = advise([job] * 2 * LEAST)
    assert some.sizes is not None
    assert (some.sizes.memory, some.sizes.wall, some.sizes.ranges) == (1127 << 20, 120, ())
    assert some.backtest is not None
    assert (some.backtest.jobs, some.backtest.failed) == (50, 0)
    killed = advise([job] * 95 + [job._replace(out_of_memory=True, out_of_time=True)] * 5)
    assert killed.sizes is not None
    assert (killed.sizes.memory, killed.sizes.wall, killed.out_of_memory) == (None, None, 5)


def test_jobs_that_do_not_say_what_they_need_are_advised_and_not_judged() -> None:
    advice = advise([Measured(GB, 60.0, 0, None, None)] * 2 * LEAST)
    assert advice.sizes is not None
    assert advice.sizes.memory is not None
    assert advice.backtest is None
