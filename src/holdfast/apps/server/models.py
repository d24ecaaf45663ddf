"""What requests may contain, with every bound."""

from __future__ import annotations

import json
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

from holdfast.domain.pilots.enrolment import LONGEST

INT64 = 2**63 - 1
MAX_RESULT = 4096
"""Characters of what a function gave back; what is larger is an output."""


def _printable(text: str) -> str:
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text):
        raise ValueError("control characters are not allowed")
    return text


def _name(text: str) -> str:
    if re.search(r"[\x00-\x1f\x7f\u2028\u2029\u202a-\u202e\u2066-\u2069]", text):
        raise ValueError("control and direction characters are not allowed")
    return text


MAX_REPORT = 1 << 20


def _small_report(report: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if len(json.dumps(report)) > MAX_REPORT:
        raise ValueError(f"a report has at most {MAX_REPORT} bytes")
    return report


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_name)]
Word = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._@+-]+$")]
"""Tenants, owners, teams: they become part of keys."""
Holder = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._@+:-]+$")]
"""A person, or an incident and its step."""
Reason = Annotated[str, Field(max_length=200), AfterValidator(_name)]
Id = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._:-]+$")]
"""Ids of jobs and claims; ours have no other characters, and they become part of keys."""
NoNul = Annotated[str, AfterValidator(_printable)]
EnvName = Annotated[str, Field(max_length=200, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ResourcesIn(Model):
    cpus: int = Field(default=1, ge=0, le=100_000)
    memory: int = Field(default=0, ge=0, le=2**50)
    disk: int = Field(default=0, ge=0, le=2**55)
    gpus: int = Field(default=0, ge=0, le=100_000)
    wall: int | None = Field(default=None, ge=1, le=31_536_000)


class InputIn(Model):
    name: Annotated[Name, Field(max_length=1000)]
    source: Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_name)]
    bytes: int | None = Field(default=None, ge=0, le=INT64)
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


class MeetIn(Model):
    """Whom the jobs are brought together with: those that share the key, with `{name}` where a parameter stands."""

    key: Annotated[Name, Field(max_length=500)]
    room: int = Field(default=1, ge=1, le=10_000)
    of: int = Field(default=0, ge=0, le=1_000_000)


class SpecificationIn(Model):
    name: Name = "job"
    command: list[Annotated[NoNul, Field(max_length=131_072)]] = Field(min_length=1, max_length=10_000)
    environment: dict[EnvName, Annotated[NoNul, Field(max_length=131_072)]] = Field(
        default_factory=dict, max_length=1000
    )
    resources: ResourcesIn = ResourcesIn()
    inputs: list[InputIn] = Field(default_factory=list, max_length=1000)
    staging: Literal["parallel", "sequential"] = "parallel"
    outputs: list[Annotated[Name, Field(max_length=1000)]] = Field(default_factory=list, max_length=1000)
    effects: Literal["internal", "external"] = "internal"
    runner: Literal["process", "warm"] = "process"
    max_attempts: int = Field(default=1, ge=1, le=100)
    retry_wait: int = Field(default=0, ge=0, le=86_400)
    when_exhausted: Literal["fail", "hold"] = "fail"
    meet: MeetIn | None = None
    container: Annotated[str, Field(max_length=1000, pattern=r"^([A-Za-z0-9/][^\x00-\x20\x7f]*)?$")] = ""

    @model_validator(mode="after")
    def _calls_have_no_container(self) -> SpecificationIn:
        if self.container and self.runner == "warm":
            raise ValueError("a call of a function cannot run in a container; name one for a process")
        return self


class JobIn(Model):
    specification: SpecificationIn | None = None
    parameters: dict[Annotated[str, Field(max_length=100)], JsonValue] = Field(default_factory=dict, max_length=100)
    index: int | None = Field(default=None, ge=0, le=INT64)
    name: Name | None = None
    owner: Word | None = None
    team: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9._@+-]*$")] = ""
    labels: dict[
        Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9._/-]+$")],
        Annotated[str, Field(max_length=200), AfterValidator(_name)],
    ] = Field(default_factory=dict, max_length=32)
    priority: int = Field(default=0, ge=-1000, le=1000)
    expected_runtime: int | None = Field(default=None, ge=1, le=31_536_000)
    resources: ResourcesIn | None = None
    not_before: Annotated[str, Field(max_length=40)] | None = None
    callback: Annotated[str, Field(max_length=2000)] | None = None
    hold: bool = False


class SubmitIn(Model):
    specification: SpecificationIn | None = None
    jobs: list[JobIn] = Field(min_length=1, max_length=10_000)


class ReasonIn(Model):
    reason: Reason = ""


class ContinueIn(Model):
    holder: Annotated[str, Field(max_length=200)] | None = None


class ReleaseIn(Model):
    expected_attempt: int = Field(ge=0, le=INT64)
    expected_claim: Id
    reason: Annotated[Reason, Field(min_length=1)]


class ForceIn(Model):
    expected_attempt: int = Field(ge=0, le=INT64)
    expected_generation: int = Field(default=0, ge=0, le=INT64)
    reason: Annotated[Reason, Field(min_length=1)]


Launch = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9._:-]*$")]
Nonce = Annotated[str, Field(min_length=16, max_length=128, pattern=r"^[A-Za-z0-9_-]+$")]
"""A random number that a pilot made: with it, it may ask again."""


class AreaIn(Model):
    """Where a pilot keeps files, open to the other pilots of its host."""

    path: Annotated[str, Field(max_length=4096, pattern=r"^/"), AfterValidator(_name)]
    space: int = Field(default=0, ge=0, le=INT64)


class PilotIn(Model):
    host: Name
    site: Annotated[str, Field(max_length=64), AfterValidator(_name)] = ""
    slots: int = Field(default=1, ge=1, le=10_000)
    resources: ResourcesIn = ResourcesIn()
    time_left: float | None = Field(default=None, ge=0, le=1e9)
    batch_job: Annotated[Name, Field(max_length=200)] | None = None
    version: Annotated[str, Field(max_length=64), AfterValidator(_name)] = ""
    element: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9._-]*$")] = ""
    launch: Launch = ""
    nonce: Nonce | None = None
    cache: AreaIn | None = None


class FindingIn(Model):
    check: Annotated[Name, Field(max_length=64)]
    words: Annotated[str, Field(max_length=500), AfterValidator(_name)]


class FailedChecksIn(Model):
    host: Name
    site: Annotated[str, Field(max_length=64), AfterValidator(_name)] = ""
    batch_job: Annotated[Name, Field(max_length=200)] | None = None
    launch: Launch = ""
    version: Annotated[str, Field(max_length=64), AfterValidator(_name)] = ""
    nonce: Nonce
    findings: list[FindingIn] = Field(min_length=1, max_length=32)


class EnrolmentIn(Model):
    site: Word
    launch: Launch = ""
    seconds: int = Field(default=3600, ge=1, le=LONGEST)


class DrainIn(Model):
    pilots: list[Id] = Field(default_factory=list, max_length=1000)
    site: Annotated[str, Field(max_length=64), AfterValidator(_name)] = ""
    host: Annotated[str, Field(max_length=200), AfterValidator(_name)] = ""
    reason: Annotated[Reason, Field(min_length=1)]


class RevokeIn(Model):
    reason: Annotated[Reason, Field(min_length=1)]


class BeatIn(Model):
    counter: int = Field(ge=0, le=INT64)
    session: int = Field(default=0, ge=0, le=INT64)
    claims: list[Id] = Field(default_factory=list, max_length=10_000)


CachedName = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_name)]


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
    path: Annotated[str, Field(max_length=4096), AfterValidator(_name)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    files: int = Field(ge=0, le=INT64)
    bytes: int = Field(ge=0, le=INT64)


class CleanupIn(Model):
    error: Annotated[str, Field(max_length=64), AfterValidator(_name)] = ""
    words: Annotated[str, Field(max_length=1000)] = ""


class StagedIn(Model):
    """How one file came to an attempt, as its pilot tells it: evidence, and never more than that."""

    file: Annotated[str, Field(max_length=4096), AfterValidator(_name)] = ""
    name: Annotated[str, Field(max_length=1000), AfterValidator(_name)] = ""
    from_: Annotated[str, Field(alias="from", max_length=32), AfterValidator(_name)] = ""
    kind: Annotated[str, Field(max_length=32), AfterValidator(_name)] = ""
    element: Annotated[str, Field(max_length=64), AfterValidator(_name)] = ""
    bytes: int = Field(default=0, ge=0, le=INT64)
    seconds: float = Field(default=0, ge=0, le=1e12)
    tries: int = Field(default=0, ge=0, le=INT64)
    failed: list[Annotated[str, Field(max_length=300), AfterValidator(_name)]] = Field(
        default_factory=list, max_length=20
    )


class EndIn(Model):
    job: Id
    generation: int = Field(ge=0, le=INT64)
    attempt: int = Field(ge=1, le=INT64)
    claim: Id
    outcome: Literal["ok", "fault"]
    reason: Annotated[str, Field(max_length=64), AfterValidator(_name)] = "exit"
    exit_code: int | None = Field(default=None, ge=-(2**31), le=2**31)
    signal: int | None = Field(default=None, ge=0, le=128)
    started: Annotated[str, Field(max_length=40)] | float | None = None
    wall: float | None = Field(default=None, ge=0, le=1e12)
    cpu: float | None = Field(default=None, ge=0, le=1e12)
    peak_memory: int | None = Field(default=None, ge=0, le=INT64)
    oom_kills: int | None = Field(default=None, ge=0, le=INT64)
    disk_left: int | None = Field(default=None, ge=0, le=INT64)
    stage: Literal["staging-in", "executing", "staging-out"] | None = None
    error: Annotated[str, Field(max_length=64), AfterValidator(_name)] | None = None
    file: Annotated[str, Field(max_length=500), AfterValidator(_name)] | None = None
    cleanup: CleanupIn | None = None
    staging: list[StagedIn] = Field(default_factory=list, max_length=50)
    log_tail: Annotated[str, Field(max_length=65_536)] = ""
    log_bytes: int = Field(default=0, ge=0, le=INT64)
    manifest: ManifestIn | None = None
    result: Annotated[str, Field(max_length=MAX_RESULT)] | None = None
    task: Annotated[dict[str, JsonValue], AfterValidator(_small_report)] | None = None
    """Of a task: what became of its executors, or where its outputs went."""
    host: Annotated[str, Field(max_length=200), AfterValidator(_name)] = ""


class EndsIn(Model):
    ends: list[EndIn] = Field(min_length=1, max_length=100)


class BegunIn(Model):
    job: Id
    claim: Id


class UploadIn(Model):
    path: Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_name)]
    bytes: int = Field(default=0, ge=0, le=INT64)


class UploadsIn(Model):
    job: Id
    claim: Id
    files: list[UploadIn] = Field(min_length=1, max_length=1000)


FileName = Annotated[str, Field(min_length=1, max_length=1200), AfterValidator(_name)]
ElementPathIn = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_name)]


class ReplicaIn(Model):
    name: FileName
    element: Word
    path: ElementPathIn | None = None
    bytes: int | None = Field(default=None, ge=0, le=INT64)
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    reason: Reason = ""


class ReplicaOutIn(Model):
    name: FileName
    element: Word
    path: ElementPathIn | None = None
    reason: Reason = ""


class MarkIn(Model):
    name: FileName
    element: Word
    path: ElementPathIn | None = None
    bad: bool = True
    reason: Reason = ""


class LogIn(Model):
    claim: Id
    offset: int = Field(default=0, ge=0, le=INT64)
    text: Annotated[str, Field(max_length=1 << 20)] = ""
    last: bool = False


class ToldIn(BaseModel):
    """What a callback says; only which task it is about counts."""

    model_config = ConfigDict(extra="ignore")

    job: Annotated[str, Field(min_length=1, max_length=200)]
