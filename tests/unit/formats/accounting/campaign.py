"""A made-up month of a cluster in the format of `sacct --parsable2`, and the truth about it.

`python -m tests.unit.formats.accounting.campaign JOBS FILE` writes one for measurements. The same seed gives the same file.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from forestay.formats.accounting.sacct import COLUMNS

BEGAN = datetime.fromisoformat("2026-10-01T00:00:00")
"""Local time, as Slurm writes it."""
OWNERS, HOSTS = 40, 200
CPUS = (1, 1, 1, 2, 4, 8, 16, 64)


class Failure(NamedTuple):
    """One way to fail, as Slurm records it."""

    causes: frozenset[str]
    """Acceptable findings."""
    state: str
    exit_code: str
    reason: str = "None"
    share: int = 1
    peak: float = 0.5
    """Of the memory that was asked for."""
    limit: float = 0.5
    """Of the time that was asked for."""
    step_state: str = ""


FAILURES = {
    "memory": Failure(frozenset({"memory"}), "OUT_OF_MEMORY", "0:125", "OutOfMemory", 6, 1.0),
    "memory-by-accounting": Failure(frozenset({"memory"}), "FAILED", "0:9", "JobLaunchFailure", 2, 1.4),
    "time": Failure(frozenset({"time"}), "TIMEOUT", "0:0", "TimeLimit", 8, 0.4, 1.0),
    "node": Failure(frozenset({"node"}), "NODE_FAIL", "0:0", "NodeDown", 2),
    "preempted": Failure(frozenset({"preempted"}), "PREEMPTED", "0:15", "None", 3),
    "exit-1": Failure(frozenset({"unknown", "code", "bad-input"}), "FAILED", "1:0", "NonZeroExitCode", 12),
    "segfault": Failure(frozenset({"code"}), "FAILED", "0:11", "RaisedSignal:11(Segmentation_fault)", 3),
    "deadline": Failure(frozenset({"time", "policy", "scheduler"}), "DEADLINE", "0:0", "DeadLine", 1, 0.2, 0.3),
}


@dataclass
class Truth:
    """What is true of the jobs that were written."""

    attempts: int = 0
    core_hours: float = 0.0
    cancelled: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    """By kind."""
    hours: dict[str, float] = field(default_factory=dict)
    by_owner: dict[str, float] = field(default_factory=dict)
    by_host: dict[str, float] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    """The kind of each failed job, by its id."""


def lines(jobs: int, seed: int, truth: Truth, *, remember: bool = True) -> Iterator[str]:
    """The output of sacct, line by line; the truth is complete at its end."""
    chance = random.Random(seed)
    kinds = list(FAILURES)
    weights = [FAILURES[kind].share for kind in kinds]
    yield "|".join(COLUMNS)
    for number in range(1, jobs + 1):
        element = f"_{number % 100}" if number % 5 == 0 else ""
        shown = f"{100_000 + number}{element}"
        owner = f"user{int(chance.expovariate(0.15)) % OWNERS:02d}"
        cores = chance.choice(CPUS)
        limit = chance.choice((60, 240, 1440, 4320))
        memory = cores * chance.choice((2_000, 4_000, 8_000))
        roll = chance.random()
        kind = chance.choices(kinds, weights)[0] if roll < 0.15 else ""
        failure = FAILURES[kind] if kind else None
        share = failure.limit if failure else chance.uniform(0.05, 0.85)
        if failure and failure.limit < 1:
            share = chance.uniform(0.02, 0.8)
        seconds = int(limit * 60 * share)
        submit = BEGAN + timedelta(seconds=number * 30 * 86_400 / jobs)
        start = submit + timedelta(seconds=chance.randrange(1, 7200))
        end = start + timedelta(seconds=seconds)
        host = f"n{chance.randrange(HOSTS):03d}"
        many = 4 if cores == 64 else 1
        first = chance.randrange(HOSTS - 4)
        nodes = f"n[{first:03d}-{first + 3:03d}]" if many == 4 else host
        state, code, reason = (
            (failure.state, failure.exit_code, failure.reason) if failure else ("COMPLETED", "0:0", "None")
        )
        if not kind and roll > 0.98:
            state, code = f"CANCELLED by {1000 + number % 40}", "0:15"
        peak = int(memory * 1024 * (failure.peak if failure else chance.uniform(0.1, 0.9)))
        when = [moment.isoformat(timespec="seconds") for moment in (submit, start, end)]
        name = f"job {number % 977}|of {owner}" if number % 1000 == 0 else f"sim-{number % 977}"
        fields = [
            shown,
            str(100_000 + number),
            owner,
            state,
            code,
            reason,
            nodes,
            str(cores),
            str(seconds),
            str(limit),
            f"{memory}M",
            "",
            *when,
        ]
        yield "|".join([*fields, "", name.replace("|", "/"), f"sbatch --mem={memory} run.sh", "", ""])
        for step in ("batch", "extern"):
            done = "COMPLETED" if step == "extern" else state.partition(" ")[0]
            used = f"{peak}K" if step == "batch" else "1200K"
            inner = [
                f"{shown}.{step}",
                f"{100_000 + number}.{step}",
                "",
                done,
                code,
                "",
                nodes,
                str(cores),
                str(seconds),
                "",
                "",
                used,
                *when,
            ]
            yield "|".join([*inner, "", step, "", "", ""])
        hours = cores * seconds / 3600
        truth.attempts += 1
        truth.core_hours += hours
        truth.cancelled += state.startswith("CANCELLED")
        if kind:
            truth.failures[kind] = truth.failures.get(kind, 0) + 1
            truth.hours[kind] = truth.hours.get(kind, 0.0) + hours
            truth.by_owner[owner] = truth.by_owner.get(owner, 0.0) + hours
            for place in [f"n{first + other:03d}" for other in range(4)] if many == 4 else [host]:
                truth.by_host[place] = truth.by_host.get(place, 0.0) + hours / many
            if remember:
                truth.kinds[shown] = kind


def main() -> None:
    with Path(sys.argv[2]).open("w") as file:
        for line in lines(int(sys.argv[1]), 1, Truth(), remember=False):
            file.write(line + "\n")


if __name__ == "__main__":
    main()
