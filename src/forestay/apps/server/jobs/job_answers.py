"""Responses about jobs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from forestay.apps.server.http.answers import Out, Time

JobState = Literal["available", "running", "faulted", "completed", "forced_complete", "failed", "cancelled"]

JobPattern = Literal["synchronous", "polling", "notification", "fire-and-forget", "staging", "execution"]


class ResourcesOut(Out):
    cpus: int
    memory: int
    disk: int
    gpus: int
    wall: int | None = None
    nodes: int = 1
    """The other amounts are of each of them."""


class ManifestOut(Out):
    path: str
    sha256: str
    files: int
    bytes: int


class CheckpointOut(Out):
    """What the next attempt of a job begins with."""

    attempt: int
    """The one that committed it."""
    at: Time
    manifest: ManifestOut
    continuations: int
    """Attempts so far that ended with progress and cost no retry."""


class RankEndOut(Out):
    """How one rank of a job of several nodes ended."""

    rank: int
    host: str = ""
    exit_code: int | None = None
    signal: int | None = None
    stopped_for: str = ""
    """Why its pilot or another rank ended it; empty if it ended by itself."""


class EndingOut(Out):
    """The end of an attempt, as its pilot told it."""

    generation: int
    attempt: int
    claim: str
    outcome: Literal["ok", "failure"]
    reason: str
    host: str
    exit_code: int | None = None
    signal: int | None = None
    started: Time | None = None
    wall: float | None = None
    cpu: float | None = None
    peak_memory: int | None = None
    oom_kills: int | None = None
    disk_left: int | None = None
    stage: str | None = None
    error: str | None = None
    file: str | None = None
    result: str | None = None
    input_bytes: int | None = None
    """The size of all its input files together, if its pilot reported each."""
    image: str | None = None
    """The digest of the container image that it ran in."""
    manifest: ManifestOut | None = None
    devices: list[str] = Field(default_factory=list)
    """The accelerators that were assigned to it alone."""
    ranks: list[RankEndOut] = Field(default_factory=list)
    """Of a failure on several nodes: how the ranks ended, the one that failed first at the beginning."""


class HoldOut(Out):
    """Who holds the job for this attempt."""

    id: str
    pilot: str
    host: str
    granted: Time


class WinnerOut(Out):
    attempt: int
    manifest: ManifestOut | None


class CallbackOut(Out):
    url: str
    tries: int
    done: bool


class JobOut(Out):
    id: str
    name: str
    tenant: str
    owner: str
    team: str
    labels: dict[str, str]
    patterns: list[JobPattern]
    """The job-flow patterns that it is in, the one of its submission first."""
    state: JobState
    phase: Literal["staging-in", "executing", "staging-out"] | None
    holders: list[str]
    held: bool
    priority: int
    index: int | None
    parameters: dict[str, Any]
    specification: str
    resources: ResourcesOut
    resource_class: str
    expected_runtime: int | None
    created: Time
    changed: Time
    not_before: Time | None
    generation: int
    attempt: int
    retries: int
    failures: int
    releases: int
    max_attempts: int
    claim: HoldOut | None
    last: EndingOut | None
    winner: WinnerOut | None
    callback: CallbackOut | None
    run: str | None
    """The run that requested it, and the round of its task."""
    work: str | None
    overlap_possible: bool
    version: str | None
    waiting: str = ""
    """Why no pilot gets it although slots may be free: a quota is used up, no pilot is connected, none is large enough or satisfies its requirements, or a licence has no free seat."""
    incident: str = ""
    """The incident of its failed attempt, while somebody has to act on it;"""
    waits_for: str = ""
    """and what it waits for, as the inbox says: `a person`, `an approval`, …"""
    checkpoint: CheckpointOut | None = None


class AcceptedOut(Out):
    id: str
    created: bool
    """False: an earlier request with the same key had made it."""


class SubmittedOut(Out):
    jobs: list[AcceptedOut]


class JobsOut(Out):
    jobs: list[JobOut]
    cursor: str | None


class CountsOut(Out):
    counts: dict[str, int]


class InputOut(Out):
    name: str
    source: str
    bytes: int | None
    sha256: str | None


class SourceOut(Out):
    """A source of a file."""

    kind: Literal["file", "http", "s3", "root", "peer"]
    path: str | None = None
    url: str | None = None
    private: bool | None = None
    ticket: str | None = None
    host: str | None = None
    element: str | None = None


class TransferOut(Out):
    """The parameters of transfers that differ from the defaults."""

    timeout: int | None = None
    piece: int | None = None
    tries: int | None = None
    protocol: str | None = None


class OutputsToOut(Out):
    """The storage element that outputs go to."""

    element: str
    kind: Literal["file", "http", "s3", "root"]
    base: str
    prefix: str
    private: bool


class StagedInputOut(InputOut):
    """An input as sent to a pilot."""

    file: str | None = None
    from_: list[SourceOut] | None = Field(default=None, alias="from")
    transfer: TransferOut | None = None
    private: bool | None = None
    refused: str | None = None
    missing: str | None = None
    manifest: ManifestOut | None = None
    path: str | None = None


class ColocateOut(Out):
    key: str
    room: int
    of: int


class CheckpointPolicyOut(Out):
    files: list[str]
    signal: str = "TERM"
    every: int = 0
    grace: int = 10


class SpecificationOut(Out):
    id: str
    name: str
    command: list[str]
    environment: dict[str, str]
    resources: ResourcesOut
    inputs: list[InputOut]
    staging: Literal["parallel", "sequential"]
    outputs: list[str]
    effects: Literal["internal", "external", "resumable"]
    runner: Literal["process", "warm"]
    max_attempts: int
    retry_wait: int
    when_exhausted: Literal["fail", "hold"]
    colocate: ColocateOut | None = None
    container: str = ""
    requires: str = ""
    licences: dict[str, int] = Field(default_factory=dict)
    checkpoint: CheckpointPolicyOut | None = None
    secrets: dict[str, str | dict[str, str]] = Field(default_factory=dict)
    """References, by variable; never values."""


class LineOut(Out):
    """One transition of a job."""

    rev: int
    at: Time
    event: str
    state: JobState
    attempt: int
    by: str
    note: str
    words: str


class EvidenceOut(BaseModel):
    """The evidence of a failure, a late end or an alert."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    kind: Literal["evidence", "late-completion", "alert", "staging"]
    at: Time


class StoryOut(Out):
    story: list[LineOut]
    evidence: list[EvidenceOut]


class WhyRunOut(Out):
    """Why a job runs, or whose result it has instead."""

    reused: str | None
    why: str
    differs: list[str]
    nearest: str | None


class OutputsOut(Out):
    attempt: int
    manifest: ManifestOut
