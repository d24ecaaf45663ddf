"""Many schedules: run over all processors, counted, and told in a table."""

from __future__ import annotations

import gc
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tests.system.simulation.world import Protocol, Report, run_schedule

SEEDS = Path(__file__).parent / "seeds.txt"
CHUNK = 10
NUMBER_EVERY = 5
"""The protocol that checks the number alone is run for every so manieth schedule."""

FAULTS = (
    "request lost", "answer lost", "forked request took effect", "own-write conflict", "dirty read", "stale read",
    "stale primary", "write to a stale primary", "failover", "rolled back", "primary crash", "primary cut off",
    "store outage", "request in an outage", "read lost", "link: request lost", "link: answer lost", "partition",
    "channel break", "server kill", "server pause", "pilot kill", "pilot vanish", "pilot pause", "pilot goodbye",
    "site lost", "reconciler kill", "reconciler pause", "part of an answer lost", "operator: cancel", "operator: hold", "operator: release", "operator: force",
    "claimed in the creating write", "first claim confirmed", "first claim taken away",
)  # fmt: skip
"""What must have happened in a campaign, or it proves nothing."""


def kept_seeds() -> list[int]:
    """The seeds that failed once, from the file that keeps them."""
    lines = SEEDS.read_text().splitlines()
    return [int(line.split("#")[0]) for line in lines if line.split("#")[0].strip()]


class Outcome(NamedTuple):
    """What is told of one schedule."""

    checked: Report
    naive: Report
    number: Report | None


@dataclass(slots=True)
class Campaign:
    """The sum of many schedules."""

    schedules: int = 0
    failed: list[Report] = field(default_factory=list)
    naive: Counter[str] = field(default_factory=Counter)
    """Schedules in which the naive protocol broke each promise; the empty name counts those with any."""
    number: Counter[str] = field(default_factory=Counter)
    numbered: int = 0
    tally: Counter[str] = field(default_factory=Counter)
    jobs: int = 0
    turns: int = 0

    def add(self, outcome: Outcome) -> None:
        checked, naive, number = outcome
        self.schedules += 1
        self.jobs += checked.jobs
        self.turns += checked.turns
        self.tally += checked.tally
        if checked.violations:
            self.failed.append(checked)
        self.naive += _kinds(naive)
        if number is not None:
            self.numbered += 1
            self.number += _kinds(number)

    @property
    def missing(self) -> list[str]:
        """Faults that never happened."""
        return [kind for kind in FAULTS if not self.tally[kind]]

    @property
    def proven(self) -> bool:
        return not self.failed and bool(self.naive[""])

    def table(self) -> Iterator[str]:
        yield f"{'happened':32} {'times':>9}"
        for kind, count in sorted(self.tally.items()):
            yield f"{kind:32} {count:9}"
        yield f"{'the naive protocol':32} {'schedules':>9}"
        for kind, count in sorted(self.naive.items()):
            yield f"{kind or 'any of these':32} {count:9}"
        if self.numbered:
            yield f"{'the number without the term':32} {'schedules':>9}   (of {self.numbered})"
            for kind, count in sorted(self.number.items()):
                yield f"{kind or 'any of these':32} {count:9}"

    def verdict(self) -> str:
        worst = ", ".join(f"{kind} {count}" for kind, count in self.naive.most_common(4) if kind)
        return (
            f"simulation: {self.schedules} schedules, {len(self.failed)} violations; "
            f"naive: {self.naive['']} of {self.schedules} schedules violate ({worst or 'none'}); "
            f"number without term: {self.number['']} of {self.numbered}"
        )


def _kinds(report: Report) -> Counter[str]:
    kinds: Counter[str] = Counter({violation.kind for violation in report.violations})
    if kinds:
        kinds[""] = 1
    return kinds


def _run(seeds: Sequence[int]) -> list[Outcome]:
    """Some schedules in one process; the rubbish of each is left for the end, since looking for it costs a fifth."""
    gc.disable()
    outcomes = [_one(seed) for seed in seeds]
    gc.collect()
    return outcomes


def _one(seed: int) -> Outcome:
    protocols: tuple[Protocol, ...] = ("checked", "naive")
    checked, naive = (run_schedule(seed, protocol) for protocol in protocols)
    return Outcome(checked, naive, run_schedule(seed, "number") if seed % NUMBER_EVERY == 0 else None)


def run_campaign(
    seeds: Iterable[int], *, jobs: int, on_event: Callable[[Campaign], None] = lambda _campaign: None
) -> Campaign:
    """Run the schedules of these seeds, several at once."""
    campaign = Campaign()
    source = iter(seeds)
    chunks = iter(lambda: list(islice(source, CHUNK)), [])
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs) as pool:
        for outcomes in pool.imap_unordered(_run, chunks):
            for outcome in outcomes:
                campaign.add(outcome)
            on_event(campaign)
    campaign.failed.sort(key=lambda report: report.seed)
    return campaign
