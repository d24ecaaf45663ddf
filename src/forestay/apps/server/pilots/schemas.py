"""Requests of and about pilots, with all limits."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue

from forestay.apps.server.http.schemas import INT64, Id, Model, Name, Reason, Word, one_line
from forestay.apps.server.jobs.schemas import ResourcesIn
from forestay.domain.jobs.job_document import MAX_RANKS
from forestay.domain.pilots.enrolment import LONGEST

MAX_RESULT = 4096
"""Characters of what a function gave back; what is larger is an output."""


MAX_REPORT = 1 << 20


def _small_report(report: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if len(json.dumps(report)) > MAX_REPORT:
        raise ValueError(f"the limit for a report is {MAX_REPORT} bytes")
    return report


Launch = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9._:-]*$")]
Nonce = Annotated[str, Field(min_length=16, max_length=128, pattern=r"^[A-Za-z0-9_-]+$")]
"""A random number that a pilot made: with it, it may ask again."""


class AreaIn(Model):
    """Where a pilot keeps files, open to the other pilots of its host."""

    path: Annotated[str, Field(max_length=4096, pattern=r"^/"), AfterValidator(one_line)]
    space: int = Field(default=0, ge=0, le=INT64)


DeviceName = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")]
MAX_DEVICES = 256


class DeviceIn(Model):
    """An accelerator that a pilot binds jobs to, or a part of one."""

    name: DeviceName
    vendor: Literal["nvidia", "amd", "stand-in"] = "stand-in"
    model: Annotated[str, Field(max_length=100), AfterValidator(one_line)] = ""
    memory: int = Field(default=0, ge=0, le=INT64)


class PilotIn(Model):
    host: Name
    site: Annotated[str, Field(max_length=64), AfterValidator(one_line)] = ""
    slots: int = Field(default=1, ge=1, le=10_000)
    resources: ResourcesIn = ResourcesIn()
    time_left: float | None = Field(default=None, ge=0, le=1e9)
    batch_job: Annotated[Name, Field(max_length=200)] | None = None
    version: Annotated[str, Field(max_length=64), AfterValidator(one_line)] = ""
    element: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9._-]*$")] = ""
    launch: Launch = ""
    nonce: Nonce | None = None
    cache: AreaIn | None = None
    runtimes: list[Annotated[Name, Field(max_length=64)]] | None = Field(default=None, max_length=8)
    """The container runtimes of its machine, such as `apptainer`; nothing: it does not say."""
    features: dict[
        Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9_.-]*$")],
        Annotated[str, Field(max_length=200), AfterValidator(one_line)],
    ] = Field(default_factory=dict, max_length=64)
    """What jobs may require of its machine: `os`, `arch`, and what its site says."""
    devices: list[DeviceIn] = Field(default_factory=list, max_length=MAX_DEVICES)


class FindingIn(Model):
    check: Annotated[Name, Field(max_length=64)]
    words: Annotated[str, Field(max_length=500), AfterValidator(one_line)]


class FailedChecksIn(Model):
    host: Name
    site: Annotated[str, Field(max_length=64), AfterValidator(one_line)] = ""
    batch_job: Annotated[Name, Field(max_length=200)] | None = None
    launch: Launch = ""
    version: Annotated[str, Field(max_length=64), AfterValidator(one_line)] = ""
    nonce: Nonce
    findings: list[FindingIn] = Field(min_length=1, max_length=32)


class EnrolmentIn(Model):
    site: Word
    launch: Launch = ""
    seconds: int = Field(default=3600, ge=1, le=LONGEST)
    owner: Word | None = None
    """The pilot gets the jobs of this owner only."""


class DrainIn(Model):
    pilots: list[Id] = Field(default_factory=list, max_length=1000)
    site: Annotated[str, Field(max_length=64), AfterValidator(one_line)] = ""
    host: Annotated[str, Field(max_length=200), AfterValidator(one_line)] = ""
    reason: Annotated[Reason, Field(min_length=1)]


class RevokeIn(Model):
    reason: Annotated[Reason, Field(min_length=1)]


class HeartbeatIn(Model):
    counter: int = Field(ge=0, le=INT64)
    session: int = Field(default=0, ge=0, le=INT64)
    claims: list[Id] = Field(default_factory=list, max_length=10_000)


CachedName = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(one_line)]


class ShareIn(Model):
    """Where a pilot serves its files to other hosts, and what tickets are made with; kept in memory alone."""

    url: Annotated[str, Field(max_length=300, pattern=r"^http://[^/?#]+$")]
    secret: Annotated[str, Field(min_length=32, max_length=128, pattern=r"^[0-9a-f]+$", repr=False)]


class CacheReportIn(Model):
    """What changed in a pilot's cache since the report `base`; 0: this is all there is."""

    version: int = Field(ge=0, le=INT64)
    base: int = Field(default=0, ge=0, le=INT64)
    added: list[tuple[CachedName, Annotated[int, Field(ge=0, le=INT64)]]] = Field(default_factory=list, max_length=5000)
    removed: list[CachedName] = Field(default_factory=list, max_length=5000)
    gone: list[CachedName] = Field(default_factory=list, max_length=5000)
    share: ShareIn | None = None


class ClaimIn(Model):
    max: int = Field(default=1, ge=1, le=32)
    batch: int = Field(default=1, ge=1, le=32)
    wait: float = Field(default=0, ge=0, le=30)
    resources: ResourcesIn = ResourcesIn()
    time_left: float | None = Field(default=None, ge=0, le=1e9)
    cache: CacheReportIn | None = None


class ManifestIn(Model):
    path: Annotated[str, Field(max_length=4096), AfterValidator(one_line)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    files: int = Field(ge=0, le=INT64)
    bytes: int = Field(ge=0, le=INT64)


class SavedIn(Model):
    """A checkpoint whose files are committed."""

    manifest: ManifestIn
    content: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """A digest of its files alone."""
    number: int = Field(ge=1, le=INT64)


class CheckpointReportIn(Model):
    job: Id
    claim: Id
    generation: int = Field(ge=0, le=INT64)
    attempt: int = Field(ge=1, le=INT64)
    checkpoint: SavedIn


class CleanupIn(Model):
    error: Annotated[str, Field(max_length=64), AfterValidator(one_line)] = ""
    words: Annotated[str, Field(max_length=1000)] = ""


MAX_STAGED = 50
"""Files of which an end tells; so many mean that there may have been more."""


class StagedIn(Model):
    """How one file came to an attempt, as its pilot tells it: evidence, and never more than that."""

    file: Annotated[str, Field(max_length=4096), AfterValidator(one_line)] = ""
    name: Annotated[str, Field(max_length=1000), AfterValidator(one_line)] = ""
    from_: Annotated[str, Field(alias="from", max_length=32), AfterValidator(one_line)] = ""
    kind: Annotated[str, Field(max_length=32), AfterValidator(one_line)] = ""
    element: Annotated[str, Field(max_length=64), AfterValidator(one_line)] = ""
    bytes: int = Field(default=0, ge=0, le=INT64)
    seconds: float = Field(default=0, ge=0, le=1e12)
    tries: int = Field(default=0, ge=0, le=INT64)
    failed: list[Annotated[str, Field(max_length=300), AfterValidator(one_line)]] = Field(
        default_factory=list, max_length=20
    )


class RankIn(Model):
    """How one rank of a job of several nodes ended."""

    rank: int = Field(ge=0, le=INT64)
    host: Annotated[str, Field(max_length=200), AfterValidator(one_line)] = ""
    exit_code: int | None = Field(default=None, ge=-(2**31), le=2**31)
    signal: int | None = Field(default=None, ge=0, le=128)
    stopped_for: Annotated[str, Field(max_length=100), AfterValidator(one_line)] = ""


class CompletionIn(Model):
    job: Id
    generation: int = Field(ge=0, le=INT64)
    attempt: int = Field(ge=1, le=INT64)
    claim: Id
    outcome: Literal["ok", "failure"]
    reason: Annotated[str, Field(max_length=64), AfterValidator(one_line)] = "exit"
    exit_code: int | None = Field(default=None, ge=-(2**31), le=2**31)
    signal: int | None = Field(default=None, ge=0, le=128)
    started: Annotated[str, Field(max_length=40)] | float | None = None
    wall: float | None = Field(default=None, ge=0, le=1e12)
    cpu: float | None = Field(default=None, ge=0, le=1e12)
    peak_memory: int | None = Field(default=None, ge=0, le=INT64)
    oom_kills: int | None = Field(default=None, ge=0, le=INT64)
    disk_left: int | None = Field(default=None, ge=0, le=INT64)
    left_running: int | None = Field(default=None, ge=0, le=INT64)
    stage: Literal["staging-in", "executing", "staging-out"] | None = None
    error: Annotated[str, Field(max_length=64), AfterValidator(one_line)] | None = None
    file: Annotated[str, Field(max_length=500), AfterValidator(one_line)] | None = None
    image: Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z0-9:_+.-]+$")] | None = None
    """The digest of the container image that it ran in."""
    cleanup: CleanupIn | None = None
    staging: list[StagedIn] = Field(default_factory=list, max_length=MAX_STAGED)
    log_tail: Annotated[str, Field(max_length=65_536)] = ""
    log_bytes: int = Field(default=0, ge=0, le=INT64)
    manifest: ManifestIn | None = None
    checkpoint: SavedIn | None = None
    """What the next attempt begins with, if there is one."""
    devices: list[DeviceName] = Field(default_factory=list, max_length=MAX_DEVICES)
    """The accelerators that were its alone."""
    ranks: list[RankIn] = Field(default_factory=list, max_length=MAX_RANKS)
    """If it failed on several nodes: the rank that failed first comes first."""
    result: Annotated[str, Field(max_length=MAX_RESULT)] | None = None
    task: Annotated[dict[str, JsonValue], AfterValidator(_small_report)] | None = None
    """For a task: the results of its executors, or the targets of its outputs."""
    host: Annotated[str, Field(max_length=200), AfterValidator(one_line)] = ""


class CompletionsIn(Model):
    completions: list[CompletionIn] = Field(min_length=1, max_length=100)
    claim: ClaimIn | None = None
    """A request for work: the answer brings what is queued now, without waiting for more."""


class BegunIn(Model):
    job: Id
    claim: Id


class LogIn(Model):
    claim: Id
    offset: int = Field(default=0, ge=0, le=INT64)
    text: Annotated[str, Field(max_length=1 << 20)] = ""
    last: bool = False
