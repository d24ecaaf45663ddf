"""The retry policy: a failure that may pass is retried in levels, each with its own wait; after the last level comes the policy's final action.

Paper P2, sections 2.3 and 2.4: the levels, their waits and the number of tries are configuration, and after the last try the run is compensated.

There is one ledger of retries over all layers. A scheduler that requeues, an executor that resubmits and an engine that starts a task again all retry the same
job; their retries, as far as the evidence shows them, count like our own, so that three layers of three tries do not become twenty-seven runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

INFRASTRUCTURE = frozenset({"node", "network", "scheduler", "transfer", "preempted", "cleanup"})
"""Causes that are not due to the user's code, input or request. Tries for them are never charged to the user's budget."""

MAX_LEVELS = 16
MAX_TRIES = 100
MAX_WAIT = 30 * 86_400


class AfterLastLevel(StrEnum):
    """What comes after the last level."""

    ROLLBACK = "rollback"
    """The run is compensated; a job without a run fails."""
    HOLD = "hold"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class RetryLevel:
    """So many tries, each after so many seconds."""

    wait: int
    tries: int = 1


@dataclass(frozen=True, slots=True)
class LevelledRetryPolicy:
    """A sequence of retry levels."""

    name: str
    levels: tuple[RetryLevel, ...]
    then: AfterLastLevel = AfterLastLevel.ROLLBACK

    @property
    def tries(self) -> int:
        return sum(level.tries for level in self.levels)


DEFAULT_POLICY = LevelledRetryPolicy(
    "default", (RetryLevel(0), RetryLevel(60), RetryLevel(600), RetryLevel(3600)), AfterLastLevel.HOLD
)
"""Used if nothing else is configured."""


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
        """Tries for a cause, by any layer."""
        return sum(many for (_, of), many in self.counts.items() if of == cause)

    @property
    def charged(self) -> int:
        """Tries charged to the user's budget."""
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
    """The ledger after a retry by Forestay."""
    key = (Layer.FORESTAY, cause)
    return replace(ledger, counts={**ledger.counts, key: ledger.counts.get(key, 0) + tries})


def noticed(ledger: Ledger, layer: Layer, cause: str, total: int) -> Ledger:
    """The ledger updated with another layer's total of tries from the evidence. A repeated total counts once; a smaller one is outdated."""
    before = sum(many for (by, _), many in ledger.counts.items() if by is layer)
    if total <= before:
        return ledger
    key = (layer, cause)
    return replace(ledger, counts={**ledger.counts, key: ledger.counts.get(key, 0) + total - before})


RETRIES = "retry_ledger"
"""The field of a job's document for the ledger of its retries."""
TOLD: Mapping[str, tuple[Layer, int]] = {
    "scheduler_restarts": (Layer.BATCH, 0),
    "snakemake_attempt": (Layer.EXECUTOR, 1),
    "nextflow_attempt": (Layer.EXECUTOR, 1),
    "executor_attempt": (Layer.EXECUTOR, 1),
    "temporal_attempt": (Layer.ENGINE, 1),
    "engine_attempt": (Layer.ENGINE, 1),
}
"""Fields of the evidence or labels of the job that count other layers' tries: how often a batch system started it again, or the number of an attempt, which begins with 1."""
MOST_TOLD = 10_000


def retries_told(*sources: Mapping[str, object]) -> dict[Layer, int]:
    """How often each other layer has retried a job, by evidence and labels; the largest number counts, and anything else is ignored."""
    found_max: dict[Layer, int] = {}
    for name, (layer, first) in TOLD.items():
        for source in sources:
            text = str(source.get(name, ""))
            if text.isascii() and text.isdigit() and len(text) <= 6:
                found_max[layer] = max(found_max.get(layer, 0), min(MOST_TOLD, max(0, int(text) - first)))
    return found_max


def with_told(ledger: Ledger, cause: str, retries: Mapping[Layer, int]) -> Ledger:
    """The ledger with the reported tries of other layers."""
    for layer, total in retries.items():
        ledger = noticed(ledger, layer, cause, total)
    return ledger


@dataclass(frozen=True, slots=True)
class Budgets:
    """How many tries are allowed."""

    user: int = 10
    """For all causes charged to the user together."""
    infrastructure: int = 50
    """For all other causes together: a bound against endless retries, not a price."""
    causes: Mapping[str, int] = field(default_factory=dict)
    """For single causes."""


@dataclass(frozen=True, slots=True)
class TryAgain:
    """A retry after this many seconds."""

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
    """The next step for a failure of this cause, given all earlier tries."""
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
