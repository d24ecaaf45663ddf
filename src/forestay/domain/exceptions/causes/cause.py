"""The classified cause of a failure, and whether a retry can help."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SURE = 0.8
"""From this confidence on, the default policy and the rules that come with Forestay act on a cause."""


class Cause(StrEnum):
    """The cause of a failed attempt."""

    NODE = "node"
    """The machine: hardware, driver, a dead or broken host, a missing mount on one host."""
    NETWORK = "network"
    """The network between machines: names, routes, connections, fabrics."""
    SCHEDULER = "scheduler"
    """The batch system or its daemons, not what it ran."""
    MEMORY = "memory"
    """The process needed more memory than it was allowed, on the host or on a GPU."""
    DISK = "disk"
    """No space, no inodes, a quota, or a file system that cannot be written."""
    TIME = "time"
    """It exceeded its time limit."""
    DATA_MISSING = "data-missing"
    """An input is missing."""
    DATA_CORRUPT = "data-corrupt"
    """An input exists but is damaged."""
    TRANSFER = "transfer"
    """Staging data in or out failed."""
    BAD_INPUT = "bad-input"
    """The request cannot be fulfilled: wrong parameters, options, configuration or values."""
    CODE = "code"
    """The program itself: a bug, a crash, a missing library, a broken environment."""
    OUTPUT_MISSING = "output-missing"
    """It ended without producing an expected output."""
    CLEANUP = "cleanup"
    """The work was done; the cleanup failed."""
    POLICY = "policy"
    """It was not allowed: a limit, an account, a licence, permissions, a person who cancelled it."""
    PREEMPTED = "preempted"
    """It was evicted in favour of other work."""
    UNKNOWN = "unknown"
    """There is no indication, or the indications contradict each other."""


class RetryNeed(StrEnum):
    """What another try would need."""

    SAME = "same"
    CHANGED = "changed"
    """With other resources or parameters."""
    ELSEWHERE = "elsewhere"
    """On another host, site or replica."""
    NO = "no"
    """A person has to fix something first."""


@dataclass(frozen=True, slots=True)
class CauseFinding:
    """One reading of the evidence: what it points to, how surely, and by what."""

    cause: Cause
    confidence: float
    """From 0 to 1: on labelled failures, at least this fraction of such findings was right."""
    retry: RetryNeed
    pattern: str = ""
    """The pattern that decided; empty if none did."""
    lines: tuple[str, ...] = ()
    """The lines that decided; empty if the exit code, the batch system or a measure decided."""
    words: str = ""
    advice: str = ""
    also: tuple[CauseFinding, ...] = ()
    """The other readings, the strongest first."""
    tries: int = 0
    """How many more tries are worthwhile before a person should look; 0: none, or unknown."""
    wait: int = 0
    """Seconds before the first of them."""
