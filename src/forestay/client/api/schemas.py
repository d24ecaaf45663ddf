"""Requests and answers as they are in JSON, written by scripts/client_types.py from the interface's description.

Fields of a newer server are simply there as well.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict


class AcceptedJson(TypedDict):
    id: str
    created: bool


class CallbackJson(TypedDict):
    url: str
    tries: int
    done: bool


class ClaimJson(TypedDict):
    """Who holds the job for this attempt."""

    id: str
    pilot: str
    host: str
    granted: str


class ColocateJson(TypedDict):
    """Whom the jobs are brought together with: those that share the key, with `{name}` where a parameter stands."""

    key: str
    room: NotRequired[int]
    of: NotRequired[int]


class DecisionJson(TypedDict):
    n: int
    at: str
    verdict: str
    by: str
    playbook: dict[str, Any] | None
    detail: dict[str, Any]


class EventAnswerJson(TypedDict):
    event: str
    run: str
    answer: str
    incident: str | None
    words: str


class IncidentJson(TypedDict):
    id: str
    owner: str
    type: str
    at: str
    state: str
    due: str | None
    cause: str
    flow: str
    run: str
    task: str
    job: str
    group: str
    fingerprint: str
    title: str
    host: str
    site: str
    exit_code: str
    note: str


class IncidentWhole(TypedDict):
    id: str
    owner: str
    type: str
    at: str
    state: str
    due: str | None
    cause: str
    flow: str
    run: str
    task: str
    job: str
    group: str
    fingerprint: str
    title: str
    host: str
    site: str
    exit_code: str
    note: str
    attempt: int
    engine: str
    context: dict[str, Any]
    retry_verdict: str
    advice: str
    retry_record: RetryRecordJson | None
    decisions: list[DecisionJson]
    steps: list[StepJson]


class InputJson(TypedDict):
    name: str
    source: str
    bytes: NotRequired[int | None]
    sha256: NotRequired[str | None]


class Job(TypedDict):
    id: str
    name: str
    tenant: str
    owner: str
    team: str
    labels: dict[str, str]
    patterns: list[str]
    state: str
    phase: str | None
    holders: list[str]
    held: bool
    priority: int
    index: int | None
    parameters: dict[str, Any]
    specification: str
    resources: StoredResourcesJson
    resource_class: str
    expected_runtime: int | None
    created: str
    changed: str
    not_before: str | None
    generation: int
    attempt: int
    retries: int
    failures: int
    releases: int
    max_attempts: int
    claim: ClaimJson | None
    last: LastJson | None
    winner: WinnerJson | None
    callback: CallbackJson | None
    run: str | None
    work: str | None
    overlap_possible: bool
    version: str | None
    waiting: NotRequired[str]


class LastJson(TypedDict):
    """The end of an attempt, as its pilot told it."""

    generation: NotRequired[int]
    attempt: NotRequired[int]
    claim: NotRequired[str]
    outcome: NotRequired[str]
    reason: NotRequired[str]
    host: NotRequired[str]
    exit_code: NotRequired[int | None]
    signal: NotRequired[int | None]
    started: NotRequired[str | None]
    wall: NotRequired[float | None]
    cpu: NotRequired[float | None]
    peak_memory: NotRequired[int | None]
    oom_kills: NotRequired[int | None]
    disk_left: NotRequired[int | None]
    stage: NotRequired[str | None]
    error: NotRequired[str | None]
    file: NotRequired[str | None]
    result: NotRequired[str | None]
    input_bytes: NotRequired[int | None]
    image: NotRequired[str | None]
    manifest: NotRequired[ManifestJson | None]
    devices: NotRequired[list[str]]


class ManifestJson(TypedDict):
    path: str
    sha256: str
    files: int
    bytes: int


class NewEvent(TypedDict):
    id: str
    run: str
    kind: str
    task: NotRequired[str]
    at: NotRequired[int | None]
    attempt: NotRequired[int]
    flow: NotRequired[str]
    owner: NotRequired[str]
    parent: NotRequired[str]
    data: NotRequired[dict[str, Any]]
    result: NotRequired[Any]
    evidence: NotRequired[dict[str, Any]]
    tasks: NotRequired[dict[str, str]]
    trigger: NotRequired[str]
    labels: NotRequired[dict[str, str]]
    otherwise: NotRequired[str]


class NewJob(TypedDict):
    specification: NotRequired[SpecificationJson | None]
    parameters: NotRequired[dict[str, Any]]
    index: NotRequired[int | None]
    name: NotRequired[str | None]
    owner: NotRequired[str | None]
    team: NotRequired[str]
    labels: NotRequired[dict[str, str]]
    priority: NotRequired[int]
    expected_runtime: NotRequired[int | None]
    resources: NotRequired[ResourcesJson | None]
    not_before: NotRequired[str | None]
    callback: NotRequired[str | None]
    hold: NotRequired[bool]


class OrderJson(TypedDict):
    n: int
    id: str
    run: str
    key: str
    verb: str
    task: str
    holder: str
    wait: int
    needs: dict[str, dict[str, float]]
    data: dict[str, Any]
    by: str
    reason: str
    incident: str
    at: str


class ResourcesJson(TypedDict):
    cpus: NotRequired[int]
    memory: NotRequired[int]
    disk: NotRequired[int]
    gpus: NotRequired[int]
    wall: NotRequired[int | None]


class RetryRecordJson(TypedDict):
    seen: int
    retried: int
    helped: int
    whole: bool
    words: str


class RunDetails(TypedDict):
    id: str
    owner: str
    name: str
    version: str
    state: str
    started: str
    ended: str | None
    above: str | None
    schedule: str | None
    params: dict[str, Any]
    phase: str
    outcome: str | None
    reason: str
    outputs: dict[str, Any]
    holders: list[str]
    flow_holders: list[str]
    tasks: list[TaskJson]
    compensations: int
    waits: list[RunWaitJson]


class RunHistoryEventJson(TypedDict):
    at: str
    kind: str
    task: str
    words: str


class RunJson(TypedDict):
    id: str
    owner: str
    name: str
    version: str
    state: str
    started: str
    ended: str | None
    above: str | None
    schedule: str | None


class RunWaitJson(TypedDict):
    task: str
    holder: str
    incident: str
    words: str
    who: str
    command: str


class SpecificationJson(TypedDict):
    name: NotRequired[str]
    command: list[str]
    environment: NotRequired[dict[str, str]]
    resources: NotRequired[ResourcesJson]
    inputs: NotRequired[list[InputJson]]
    staging: NotRequired[str]
    outputs: NotRequired[list[str]]
    effects: NotRequired[str]
    runner: NotRequired[str]
    max_attempts: NotRequired[int]
    retry_wait: NotRequired[int]
    when_exhausted: NotRequired[str]
    colocate: NotRequired[ColocateJson | None]
    container: NotRequired[str]
    requires: NotRequired[str]
    licences: NotRequired[dict[str, int]]


class StartedRunJson(TypedDict):
    id: str
    created: bool


class StepJson(TypedDict):
    n: int
    step: int
    action: str
    at: str
    state: str
    detail: str


class StoredColocateJson(TypedDict):
    key: str
    room: int
    of: int


class StoredFlow(TypedDict):
    version: str
    name: str


class StoredInputJson(TypedDict):
    name: str
    source: str
    bytes: int | None
    sha256: str | None


class StoredResourcesJson(TypedDict):
    cpus: int
    memory: int
    disk: int
    gpus: int
    wall: NotRequired[int | None]


class StoredSpecificationJson(TypedDict):
    id: str
    name: str
    command: list[str]
    environment: dict[str, str]
    resources: StoredResourcesJson
    inputs: list[StoredInputJson]
    staging: str
    outputs: list[str]
    effects: str
    runner: str
    max_attempts: int
    retry_wait: int
    when_exhausted: str
    colocate: NotRequired[StoredColocateJson | None]
    container: NotRequired[str]
    requires: NotRequired[str]
    licences: NotRequired[dict[str, int]]


class Story(TypedDict):
    story: list[TransitionJson]
    evidence: list[dict[str, Any]]


class StoryLine(TypedDict):
    at: str
    kind: str
    task: str
    words: str
    incident: str


class TaskJson(TypedDict):
    id: str
    task: str
    state: str
    round: int
    count: int
    well: int
    bad: int
    exit_code: int | None
    reason: str
    holders: list[str]
    began: str | None
    finished: str | None
    after: list[str]


class ToldIncident(TypedDict):
    state: str
    closed: bool
    words: str


class TransitionJson(TypedDict):
    """One transition of a job."""

    rev: int
    at: str
    event: str
    state: str
    attempt: int
    by: str
    note: str
    words: str


class WhyRun(TypedDict):
    """Why a job runs, or whose result it has instead."""

    reused: str | None
    why: str
    differs: list[str]
    nearest: str | None


class WinnerJson(TypedDict):
    attempt: int
    manifest: ManifestJson | None
