"""The classified cause of a failure, and whether a retry can help."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

SURE = 0.8
"""From this confidence on, the default policy and the rules that come with Forestay act on a cause."""


class Cause(StrEnum):
    """Why an attempt did not end well."""

    NODE = "node"
    """The machine: hardware, driver, a dead or broken host, a missing mount on one host."""
    NETWORK = "network"
    """What lies between machines: names, routes, connections, fabrics."""
    SCHEDULER = "scheduler"
    """The batch system or its daemons, not what it ran."""
    MEMORY = "memory"
    """The process wanted more memory than it may have, on the host or on a GPU."""
    DISK = "disk"
    """No space, no inodes, a quota, or a file system that cannot be written."""
    TIME = "time"
    """It ran out of the time it was given."""
    DATA_MISSING = "data-missing"
    """Something that it was to read is not there."""
    DATA_CORRUPT = "data-corrupt"
    """Something that it was to read is there, and broken."""
    TRANSFER = "transfer"
    """Bringing data in or out failed."""
    BAD_INPUT = "bad-input"
    """It was asked for something that cannot be done: parameters, options, a configuration, values."""
    CODE = "code"
    """The program itself: a bug, a crash, a missing library, a broken environment."""
    OUTPUT_MISSING = "output-missing"
    """It ended, and what it should have left behind is not there."""
    CLEANUP = "cleanup"
    """The work was done; clearing up after it failed."""
    POLICY = "policy"
    """It was not allowed: a limit, an account, a licence, permissions, a person who cancelled it."""
    PREEMPTED = "preempted"
    """It had to make room for something else."""
    UNKNOWN = "unknown"
    """Nothing points anywhere, or two things point to different places."""


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
    """From 0 to 1: at least so often, of labelled failures, such a finding was right."""
    retry: RetryNeed
    pattern: str = ""
    """The pattern that decided; empty when none did."""
    lines: tuple[str, ...] = ()
    """The lines that decided; empty when it was the exit code, the batch system or a measure."""
    words: str = ""
    advice: str = ""
    also: tuple[CauseFinding, ...] = ()
    """Other readings that were weighed, the strongest first."""
    tries: int = 0
    """How many more tries are worth it before a person looks; 0: none, or nobody has said."""
    wait: int = 0
    """Seconds before the first of them."""
