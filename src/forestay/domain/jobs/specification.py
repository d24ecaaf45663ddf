"""What a job runs: the immutable part that the jobs of one scatter share.

A specification's id is a digest of its content, so that the same one is stored once however often it is sent,
and may be kept in any cache for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from forestay.domain.jobs.inputs import JobInput, Staging
from forestay.domain.jobs.job_secrets import SecretReference
from forestay.domain.jobs.resources import Resources

MAX_NODES = 1024


class Effects(StrEnum):
    """Whether a run changes anything that Forestay does not publish itself."""

    INTERNAL = "internal"
    """Only outputs that the commit makes visible: a second attempt has no visible effect."""
    EXTERNAL = "external"
    """Mail, a shared database: a run is killed when its pilot has lost its lease, and after a stop a person decides whether it runs again."""
    RESUMABLE = "resumable"
    """As external, but a further attempt continues safely where one was stopped: it runs again without a person."""


class RunnerKind(StrEnum):
    """What carries a job out."""

    PROCESS = "process"
    """Its command, as a process of its own."""
    WARM = "warm"
    """A Python interpreter that a pilot keeps running: the command starts it once, and each job is a call of a function in it."""


class WhenExhausted(StrEnum):
    """What happens to a job whose attempts are used up."""

    FAIL = "fail"
    HOLD = "hold"
    """It stays faulted and waits for a person."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and when a failed job is retried if no rule answers."""

    max_attempts: int = 1
    wait: int = 0
    """Seconds before the second attempt; doubled for each one after it."""
    when_exhausted: WhenExhausted = WhenExhausted.FAIL


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """The files from which a job continues in its next attempt, and how it is told to write them."""

    files: tuple[str, ...]
    """Patterns in its folder."""
    signal: str = "TERM"
    """Sent when its time, or its pilot's, is about to end."""
    every: int = 0
    """Seconds after which the files are committed also while it runs; 0: only at its end."""
    grace: int = 10
    """Seconds that it has after the signal to write them and to end."""


@dataclass(frozen=True, slots=True)
class Specification:
    """One command with its environment, needs and outputs."""

    id: str
    tenant: str
    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    inputs: tuple[JobInput, ...] = ()
    staging: Staging = Staging.PARALLEL
    outputs: tuple[str, ...] = ()
    named_outputs: Mapping[str, str] = field(default_factory=dict)
    """For a task's jobs: the pattern by the name that other tasks use, with `{name}` for a job's parameter."""
    effects: Effects = Effects.INTERNAL
    runner: RunnerKind = RunnerKind.PROCESS
    container: str = ""
    """The image that the command runs in; empty for none."""
    requires: str = ""
    """A condition over the features that pilots report, such as `gpu.model == "A100"`; empty: any pilot with free resources will do."""
    licences: Mapping[str, int] = field(default_factory=dict)
    """Seats that each job has while it runs, by licence."""
    secrets: Mapping[str, SecretReference] = field(default_factory=dict)
    """Values that its pilot gives it, by the variable that has each, or the path of a file with it."""
    checkpoint: CheckpointPolicy | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    extra: Mapping[str, object] = field(default_factory=dict)
    """Fields of a newer writer."""


class _Runs(Protocol):
    @property
    def container(self) -> str: ...
    @property
    def secrets(self) -> Mapping[str, object]: ...


def wrong_on_nodes(job: _Runs, nodes: int) -> str:
    """Why this cannot run on so many nodes; empty if it can.

    Images are pulled to the disk of one host, secrets are resolved on one and never written to a shared folder, and a call runs in one interpreter.
    """
    if nodes == 1:
        return ""
    if job.container:
        return "a job of several nodes cannot have a container: call the runtime in its command"
    if job.secrets:
        return "a job of several nodes cannot have secrets: they are resolved on one host only"
    if getattr(job, "runner", RunnerKind.PROCESS) is RunnerKind.WARM:
        return "a function call runs on one node"
    return ""
