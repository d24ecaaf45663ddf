"""What answers contain, for the interface's own description; the routes write them without these."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from holdfast.apps.server.problems import TITLES

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
JobState = Literal["available", "running", "faulted", "completed", "forced_complete", "failed", "cancelled"]


class Out(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FieldErrorOut(Out):
    at: str
    detail: str


class ProblemOut(Out):
    """Any error, by RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldErrorOut] = []


class ResourcesOut(Out):
    cpus: int
    memory: int
    disk: int
    gpus: int
    wall: int | None = None


class ManifestOut(Out):
    path: str
    sha256: str
    files: int
    bytes: int


class EndingOut(Out):
    """The end of an attempt, as its pilot told it."""

    generation: int
    attempt: int
    claim: str
    outcome: Literal["ok", "fault"]
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
    manifest: ManifestOut | None = None


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
    faults: int
    releases: int
    max_attempts: int
    claim: HoldOut | None
    last: EndingOut | None
    winner: WinnerOut | None
    callback: CallbackOut | None
    case: str | None
    """The case that asked for it, and the round of its item."""
    work: str | None
    overlap_possible: bool
    version: str | None


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
    """One place that a file can be had from."""

    kind: Literal["file", "http", "s3", "root", "peer"]
    path: str | None = None
    url: str | None = None
    private: bool | None = None
    ticket: str | None = None
    host: str | None = None
    element: str | None = None


class TransferOut(Out):
    """How files are brought, where that is not as usual."""

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
    """An input as a pilot is told of it."""

    file: str | None = None
    from_: list[SourceOut] | None = Field(default=None, alias="from")
    transfer: TransferOut | None = None
    private: bool | None = None
    refused: str | None = None
    missing: str | None = None
    manifest: ManifestOut | None = None
    path: str | None = None


class MeetOut(Out):
    key: str
    room: int
    of: int


class SpecificationOut(Out):
    id: str
    name: str
    command: list[str]
    environment: dict[str, str]
    resources: ResourcesOut
    inputs: list[InputOut]
    staging: Literal["parallel", "sequential"]
    outputs: list[str]
    effects: Literal["internal", "external"]
    runner: Literal["process", "warm"]
    max_attempts: int
    retry_wait: int
    when_exhausted: Literal["fail", "hold"]
    meet: MeetOut | None = None
    container: str = ""


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
    """What a fault, a late end or an alert left behind."""

    model_config = ConfigDict(extra="allow")

    kind: Literal["evidence", "late-end", "alert", "staging"]
    at: Time


class StoryOut(Out):
    story: list[LineOut]
    evidence: list[EvidenceOut]


class OutputsOut(Out):
    attempt: int
    manifest: ManifestOut


class PilotOut(BaseModel):
    model_config = ConfigDict(extra="allow")

    id: str
    tenant: str
    host: str
    site: str
    slots: int
    resources: ResourcesOut
    lease: int
    registered: Time
    state: Literal["alive", "gone", "silent"]
    changed: Time
    batch_job: str | None
    version: str
    note: str
    launch: str = ""
    drain: str = ""
    activity: Literal["idle", "busy"] | None
    """Of one that is alive."""
    claims: int


class InactiveOut(Out):
    launch: str
    site: str
    state: Literal["planned", "submitted", "running"]
    batch_job: str
    planned: Time


class PilotsOut(Out):
    pilots: list[PilotOut]
    inactive: list[InactiveOut]
    """Pilots that wait in their batch systems."""


class DrainedOut(Out):
    pilots: list[str]


class AlertOut(BaseModel):
    model_config = ConfigDict(extra="allow")

    id: str
    at: Time
    job: str | None
    alert: str
    words: str


class AlertsOut(Out):
    alerts: list[AlertOut]


class ServerOut(Out):
    name: str
    url: str
    slots: int


class CallerOut(Out):
    subject: str
    tenant: str
    roles: list[str]


class StatusOut(Out):
    version: str
    you: CallerOut
    server: str
    servers: list[ServerOut]
    store: str
    lease: int
    slots_served: int
    requests_waiting: int
    channels: int
    jobs: dict[str, int]


class TokenOut(Out):
    token: str
    token_seconds: int


class NeighbourOut(Out):
    pilot: str
    cache: str


class RegisteredOut(TokenOut):
    pilot: str
    lease: int
    beat_every: float
    servers: list[str]
    neighbours: list[NeighbourOut]


class EnrolmentOut(Out):
    secret: str
    expires: Time


class BeatOut(Out):
    token: str | None
    token_seconds: int
    cancel: list[str]
    drain: bool
    neighbours: list[NeighbourOut] | None = None


class ClaimOut(Out):
    job: str
    generation: int
    attempt: int
    claim: str
    tenant: str
    owner: str
    name: str
    index: int | None
    parameters: dict[str, Any]
    resources: ResourcesOut
    inputs: list[StagedInputOut] | None = None
    outputs_to: OutputsToOut | None = None
    free: int | None = None
    specification: SpecificationOut


class CacheKnownOut(Out):
    known: int


class ClaimsOut(Out):
    claims: list[ClaimOut]
    cache: CacheKnownOut | None = None


class EndResultOut(Out):
    claim: str
    result: Literal["committed", "held", "superseded", "unknown"]
    detail: str


class EndResultsOut(Out):
    results: list[EndResultOut]


class ReplicaOut(Out):
    element: str
    path: str
    since: Time | None
    bad: bool
    bad_since: Time | None
    why: str


class FileOut(Out):
    """A logical file and its replicas, the one to be tried first, first."""

    name: str
    bytes: int | None
    sha256: str | None
    replicas: list[ReplicaOut]


class FilesOut(Out):
    files: list[FileOut]
    more: bool


class UploadsOut(Out):
    urls: dict[str, str]
    base: str


class NothingOut(Out):
    pass


class ByeOut(Out):
    released: int


Responses = dict[int | str, dict[str, Any]]

ALWAYS = (401, 403, 422, 503)
WITH_BODY = (400, 408, 413)


def errors(*statuses: int, body: bool = False) -> Responses:
    """The errors that a route may answer, beside those that any may."""
    wanted = sorted({*ALWAYS, *statuses, *(WITH_BODY if body else ())})
    schema = {"$ref": "#/components/schemas/ProblemOut"}
    return {
        status: {"description": TITLES[status], "content": {"application/problem+json": {"schema": schema}}}
        for status in wanted
    }


class ExchangeOut(Out):
    """One attempt of a job at a task server."""

    attempt: int
    generation: int
    downstream: str
    task: str
    """Its id there."""
    adopted: bool
    """The task was made by an earlier attempt, and found again."""
    registered: bool
    """Whether that server was asked to tell the end."""


class RegisteredCallbackOut(Out):
    url: str
    told: bool


class ConversationOut(Out):
    """What is said about a job between its client and task servers."""

    job: str
    downstream: str
    """Where it is meant to go; empty: to pilots."""
    state: str
    attempt: int
    exchanges: list[ExchangeOut]
    callback: RegisteredCallbackOut | None
