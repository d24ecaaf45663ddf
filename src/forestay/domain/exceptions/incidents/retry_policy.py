"""The retry policy: a failure that may pass is retried in levels, each with its own wait; after the last level comes the policy's final action.

Paper P2, sections 2.3 and 2.4: the levels, their waits and the number of tries are configuration, and what is exhausted is compensated.

There is one ledger of retries over all layers. A scheduler that requeues, an executor that resubmits and an engine that starts a task again all retry the same
job; what the evidence says of them is counted as our own tries are, so that three layers of three tries do not become twenty-seven runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

INFRASTRUCTURE = frozenset({"node", "network", "scheduler", "transfer", "preempted", "cleanup"})
"""Causes for which nobody's code, input or request is to blame. Tries for them are never taken from the user's budget."""

MAX_LEVELS = 16
MAX_TRIES = 100
MAX_WAIT = 30 * 86_400


class AfterLastLevel(StrEnum):
    """What comes after the last level."""

    ROLLBACK = "rollback"
    """The run is compensated; a job that no run asked for fails."""
    HOLD = "hold"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class RetryLevel:
    """So many tries, each after so many seconds."""

    wait: int
    tries: int = 1


@dataclass(frozen=True, slots=True)
class LevelledRetryPolicy:
    """Levels one after the other."""

    name: str
    levels: tuple[RetryLevel, ...]
    then: AfterLastLevel = AfterLastLevel.ROLLBACK

    @property
    def tries(self) -> int:
        return sum(level.tries for level in self.levels)


DEFAULT_POLICY = LevelledRetryPolicy(
    "default", (RetryLevel(0), RetryLevel(60), RetryLevel(600), RetryLevel(3600)), AfterLastLevel.HOLD
)
"""Where nothing else is configured."""


class Layer(StrEnum):
    """Who tries again."""

    ENGINE = "engine"
    EXECUTOR = "executor"
    BATCH = "batch"
    FORESTAY = "forestay"


@dataclass(frozen=True, slots=True)
class Ledger:
    """How often a job was retried, by whom and for which cause."""

    counts: Mapping[tuple[Layer, str], int] = field(default_factory=dict)

    def spent(self, cause: str) -> int:
        """Tries for a cause, by whomever."""
        return sum(many for (_, of), many in self.counts.items() if of == cause)

    @property
    def charged(self) -> int:
        """Tries that the user's budget pays."""
        return sum(many for (_, cause), many in self.counts.items() if cause not in INFRASTRUCTURE)

    @property
    def uncharged(self) -> int:
        return sum(many for (_, cause), many in self.counts.items() if cause in INFRASTRUCTURE)

    def as_plain(self) -> list[list[Any]]:
        return [[layer.value, cause, many] for (layer, cause), many in sorted(self.counts.items())]

    @classmethod
    def from_plain(cls, data: list[list[Any]]) -> Ledger:
        return cls({(Layer(layer), cause): many for layer, cause, many in data})


def entered(ledger: Ledger, cause: str, *, tries: int = 1) -> Ledger:
    """The ledger after Forestay has tried again."""
    key = (Layer.FORESTAY, cause)
    return replace(ledger, counts={**ledger.counts, key: ledger.counts.get(key, 0) + tries})


def noticed(ledger: Ledger, layer: Layer, cause: str, total: int) -> Ledger:
    """The ledger after the evidence says how often another layer has tried in all. The same word twice is one word; a smaller one is old."""
    before = sum(many for (by, _), many in ledger.counts.items() if by is layer)
    if total <= before:
        return ledger
    key = (layer, cause)
    return replace(ledger, counts={**ledger.counts, key: ledger.counts.get(key, 0) + total - before})


RETRIES = "retry_ledger"
"""Where a job's document keeps the ledger of its retries."""
TOLD: Mapping[str, tuple[Layer, int]] = {
    "scheduler_restarts": (Layer.BATCH, 0),
    "snakemake_attempt": (Layer.EXECUTOR, 1),
    "nextflow_attempt": (Layer.EXECUTOR, 1),
    "executor_attempt": (Layer.EXECUTOR, 1),
    "temporal_attempt": (Layer.ENGINE, 1),
    "engine_attempt": (Layer.ENGINE, 1),
}
"""What evidence, or a label of the job, says of other layers' tries: how often a batch system started it again, or the number of an attempt, which begins with 1."""
MOST_TOLD = 10_000


def retries_told(*sources: Mapping[str, object]) -> dict[Layer, int]:
    """How often each other layer has tried a job again, as evidence and labels say; the largest word counts, and what is no number says nothing."""
    found_max: dict[Layer, int] = {}
    for name, (layer, first) in TOLD.items():
        for source in sources:
            text = str(source.get(name, ""))
            if text.isascii() and text.isdigit() and len(text) <= 6:
                found_max[layer] = max(found_max.get(layer, 0), min(MOST_TOLD, max(0, int(text) - first)))
    return found_max


def with_told(ledger: Ledger, cause: str, retries: Mapping[Layer, int]) -> Ledger:
    """The ledger with all that other layers are said to have tried."""
    for layer, total in retries.items():
        ledger = noticed(ledger, layer, cause, total)
    return ledger


@dataclass(frozen=True, slots=True)
class Budgets:
    """How many tries are allowed."""

    user: int = 10
    """For all causes together that are the user's."""
    infrastructure: int = 50
    """For all the others together: a bound against trying for ever, not a price."""
    causes: Mapping[str, int] = field(default_factory=dict)
    """For single causes."""


@dataclass(frozen=True, slots=True)
class TryAgain:
    """After so many seconds."""

    level: int
    wait: int


@dataclass(frozen=True, slots=True)
class RetriesExhausted:
    """No try is left."""

    then: AfterLastLevel
    reason: str


def next_try(
    retry_policy: LevelledRetryPolicy, ledger: Ledger, cause: str, budgets: Budgets | None = None
) -> TryAgain | RetriesExhausted:
    """What to do about a failure of this cause, after all that was tried before."""
    allowed = budgets or Budgets()
    spent = ledger.spent(cause)
    most = allowed.causes.get(cause)
    if most is not None and spent >= most:
        return RetriesExhausted(retry_policy.then, f"{spent} retries for {cause}; {most} are allowed")
    if cause in INFRASTRUCTURE:
        if ledger.uncharged >= allowed.infrastructure:
            return RetriesExhausted(
                retry_policy.then,
                f"{ledger.uncharged} retries for infrastructure; {allowed.infrastructure} are allowed",
            )
        done = spent
    else:
        if ledger.charged >= allowed.user:
            return RetriesExhausted(retry_policy.then, f"{ledger.charged} tries; {allowed.user} are allowed")
        done = ledger.charged
    for number, level in enumerate(retry_policy.levels):
        if done < level.tries:
            return TryAgain(number, level.wait)
        done -= level.tries
    return RetriesExhausted(
        retry_policy.then, f"all {retry_policy.tries} retries of the retry policy {retry_policy.name} were used"
    )
