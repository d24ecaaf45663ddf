"""Retries: how often, and after which wait, another try of a failure is worthwhile, and the policy by which failed jobs are retried.

The verdict is part of each finding, beside the cause. The patterns say what another try needs; the rest of the evidence says how long outputs were waited for, and whether a failure that
matches no pattern shows signs of the infrastructure.

By the policy a failure that may pass is retried in levels, each with its own wait; after the last level comes the policy's final action. Paper P2, sections 2.3 and 2.4: the levels, their waits
and the number of tries are configuration, and after the last try the run is compensated.

There is one ledger of retries over all layers. A scheduler that requeues, an executor that resubmits and an engine that starts a task again all retry the same
job; their retries, as far as the evidence shows them, count like our own, so that three layers of three tries do not become twenty-seven runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from forestay.domain.exceptions.causes.cause import SURE, Cause, CauseFinding, RetryNeed
from forestay.domain.exceptions.evidence.evidence import Evidence, tells_trouble, warns

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


TRIES_WHEN_SURE = 4
"""For a failure that is certainly caused by the infrastructure; the waits between tries are the default policy's."""
SOON, LATER = 60, 600
"""Seconds before the single retry of a transient failure, and of an unknown one."""
LONG_FOR_OUTPUTS = 60
"""Seconds: after so long a wait, outputs are not missing because of a slow file system."""
LAST_LINES, ORDINARY = 12, 4
"""How many last lines of a log are searched for signs, up to how many ordinary lines in a row: errors before those were survived."""
OUTSIDE = {9: "SIGKILL", 15: "SIGTERM"}
"""Signals that programs do not send themselves."""

_TRYING = (RetryNeed.SAME, RetryNeed.ELSEWHERE)
_WAITED = re.compile(r"missing files after (\d{1,6}) seconds|latency[- _]wait\D{0,20}(\d{1,6})")
_SIGNS = re.compile(
    r"\bnetwork\b|\bconnection (?:was |is )?(?:lost|closed|refused|reset|broken|dropped|error|timed)|\bsockets?\b|\bunreachable\b|\b(?:temporarily |service )unavailable\b|\bgateway\b"
    r"|\bnfs\d?\b|\blustre\b|\bgpfs\b|\bbeegfs\b|\bcephfs?\b|\bstale\b|\bi/o error\b|\binput/output error\b|\bstorage (?:server|element|pool|target)\b|\bremote i/o\b"
    r"|\bslurm(?:ctld|d|dbd)\b|\bmunged?\b|\bcondor_\w{1,30}|\bpbs_(?:mom|server)\b|\bkubelet\b|\bmbatchd\b|\bsge_\w{1,20}"
    r"|\binfiniband\b|\bib_\w{1,30}|\bmlx\d\b|\bucx\b|\blibfabric\b|\bpmix\w{0,10}\b"
    r"|\bnode (?:fail|down|lost|unresponsive|drain)|\bhardware error\b|\buncorrectable\b|\bxid\b|\bfallen off the bus\b|\bpilots? (?:was |is )?(?:lost|gone|died)\b"
)
"""Words of the network, of storage, of schedulers and of nodes, in lower case. Launchers such as srun are not among them: they repeat every failure of what they started."""


def with_verdict(finding: CauseFinding, evidence: Evidence) -> CauseFinding:
    """The finding with the recommended number of tries and the wait before the first."""
    if finding.cause is Cause.OUTPUT_MISSING and finding.retry is RetryNeed.SAME:
        waited = seconds_waited(evidence)
        if waited is not None and waited >= LONG_FOR_OUTPUTS:
            words = f"{finding.words} It was waited for them for {waited} s, so they were hardly late.".strip()
            return replace(finding, retry=RetryNeed.NO, tries=0, wait=0, words=words)
    if finding.cause is Cause.UNKNOWN and finding.retry is RetryNeed.NO:
        sign = infrastructure_sign(evidence)
        if sign:
            words = f"{finding.words} It may be the infrastructure: {sign}.".strip()
            return replace(finding, retry=RetryNeed.SAME, tries=1, wait=LATER, words=words)
    if finding.retry not in _TRYING:
        return replace(finding, tries=0, wait=0)
    if finding.cause in INFRASTRUCTURE and finding.confidence >= SURE:
        return replace(finding, tries=TRIES_WHEN_SURE, wait=0)
    return replace(finding, tries=1, wait=LATER if finding.cause is Cause.UNKNOWN else SOON)


def seconds_waited(evidence: Evidence) -> int | None:
    """How long outputs were waited for according to the log; None if it does not say."""
    seconds = [
        int(match[1] or match[2]) for line in evidence.log_tail if (match := _WAITED.search(line.lower())) is not None
    ]
    return max(seconds, default=None)


def infrastructure_sign(evidence: Evidence) -> str:
    """The part of the evidence of an unknown failure that points to the infrastructure; empty if none does."""
    outside = sorted(evidence.signals & OUTSIDE.keys()) if not evidence.oom_kills else []
    if outside:
        return f"{OUTSIDE[outside[0]]} came from outside the job"
    ordinary = 0
    for text in (evidence.transfer, evidence.scheduler_reason, *_last_lines(evidence)):
        lowered = text.lower()
        if warns(lowered) or not tells_trouble(lowered):
            ordinary += bool(text)
            if ordinary >= ORDINARY:
                break
            continue
        ordinary = 0
        match = _SIGNS.search(lowered)
        if match is not None:
            return f"its last words name “{match[0].strip()}”"
    return ""


def _last_lines(evidence: Evidence) -> list[str]:
    """The last first."""
    return [line for line in reversed(evidence.log_tail) if line.strip()][:LAST_LINES]


_NUMBERS = {1: "once", 2: "twice"}


def verdict_words(retry: RetryNeed, tries: int, wait: int) -> str:
    """The verdict in a few words: `same, once, after 10 min`."""
    if not tries or retry not in _TRYING:
        return retry.value
    often = _NUMBERS.get(tries, f"up to {tries} times")
    return f"{retry.value}, {often}, {wait_words(wait)}"


def wait_words(seconds: int) -> str:
    """`at once`, `after 45 s`, `after 10 min`, `after 2 h`."""
    if not seconds:
        return "at once"
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= unit and seconds % unit == 0:
            return f"after {seconds // unit} {name}"
    return f"after {seconds} s"
