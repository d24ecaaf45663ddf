"""The shapes of the server's answers, as they are in JSON. Fields of a newer server are simply there as well."""

from __future__ import annotations

from typing import Any, NamedTuple, NotRequired, TypedDict

FINAL = frozenset({"completed", "forced_complete", "failed", "cancelled"})
"""States that no job leaves."""
WELL = frozenset({"completed", "forced_complete"})
"""Final states of jobs that count as done."""
STATES = ("available", "running", "faulted", "completed", "forced_complete", "failed", "cancelled")


class ResourcesJson(TypedDict, total=False):
    cpus: int
    memory: int
    disk: int
    gpus: int
    wall: int | None


class ClaimJson(TypedDict):
    id: str
    pilot: str
    host: str
    granted: str


class ManifestJson(TypedDict):
    path: str
    sha256: str
    files: int
    bytes: int


class LastJson(TypedDict, total=False):
    """How the last attempt that ended did end."""

    attempt: int
    outcome: str
    reason: str
    exit_code: int | None
    signal: int | None
    started: str | None
    wall: float | None
    cpu: float | None
    peak_memory: int | None
    host: str
    result: str | None
    """What a function gave back or raised, as JSON, when it is small."""


class WinnerJson(TypedDict):
    attempt: int
    manifest: ManifestJson | None


class CallbackJson(TypedDict):
    url: str
    tries: int
    done: bool


class Job(TypedDict):
    """A job as the server shows it."""

    id: str
    name: str
    tenant: str
    owner: str
    team: str
    labels: dict[str, str]
    state: str
    phase: str | None
    holders: list[str]
    held: bool
    priority: int
    index: int | None
    parameters: dict[str, object]
    specification: str
    resources: ResourcesJson
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
    overlap_possible: bool
    version: str | None
    """None in an event."""


class InputJson(TypedDict):
    """A file that a job needs; see the how-to on inputs."""

    name: str
    source: str
    bytes: NotRequired[int | None]
    sha256: NotRequired[str | None]


class SpecificationJson(TypedDict):
    """What a job runs; see docs/reference/http-api.md."""

    name: str
    command: list[str]
    environment: NotRequired[dict[str, str]]
    resources: NotRequired[ResourcesJson]
    inputs: NotRequired[list[InputJson]]
    staging: NotRequired[str]
    outputs: NotRequired[list[str]]
    effects: NotRequired[str]
    runner: NotRequired[str]
    container: NotRequired[str]
    max_attempts: NotRequired[int]
    retry_wait: NotRequired[int]
    when_exhausted: NotRequired[str]


class NewJob(TypedDict, total=False):
    """A job as it is asked for."""

    specification: SpecificationJson
    parameters: dict[str, object]
    index: int
    name: str
    owner: str
    team: str
    labels: dict[str, str]
    priority: int
    expected_runtime: int
    resources: ResourcesJson
    not_before: str
    callback: str
    hold: bool


class AcceptedJson(TypedDict):
    """A job that stands in the store; not created: an earlier request with the same key had made it."""

    id: str
    created: bool


class TransitionJson(TypedDict):
    """One line of a job's story."""

    rev: int
    at: str
    event: str
    state: str
    attempt: int
    by: str
    note: str
    words: str


class Story(TypedDict):
    story: list[TransitionJson]
    evidence: list[dict[str, object]]


class JobList(NamedTuple):
    """Some of the jobs found, in order, and where to go on; no cursor: this was the last."""

    jobs: list[Job]
    cursor: str | None


class StoredFlow(TypedDict):
    """A flow that stands in the store."""

    version: str
    name: str


class StartedRunJson(TypedDict):
    """A run that runs; not created: an earlier request with the same key had started it."""

    id: str
    created: bool


class RunJson(TypedDict):
    """A run in a list."""

    id: str
    owner: str
    name: str
    version: str
    state: str
    started: str
    ended: str | None
    above: str | None
    """The run whose sub-flow it is, as far as its engine knows."""


class TaskJson(TypedDict):
    """A task's instance in a run."""

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
    began: NotRequired[str | None]
    finished: NotRequired[str | None]
    after: NotRequired[list[str]]
    """Of a Python flow: the tasks it came after."""


class RunDetails(RunJson):
    """A run with its tasks."""

    params: dict[str, object]
    phase: str
    outcome: str | None
    reason: str
    outputs: dict[str, object]
    holders: list[str]
    tasks: list[TaskJson]
    compensations: int


RUN_WELL = frozenset({"completed", "forced_complete"})
"""States of ended runs that count as done."""


class RunHistoryEventJson(TypedDict):
    """One line of a run's history."""

    at: str
    kind: str
    task: str
    words: str


class StoryLine(RunHistoryEventJson):
    """One line of a run's whole story."""

    incident: str


class StoryPage(NamedTuple):
    """Some of a run's story, the oldest first, and where to go on; no cursor: this was the last."""

    story: list[StoryLine]
    cursor: str | None


class RunList(NamedTuple):
    """Some of the runs found, the newest first, and where to go on; no cursor: this was the last."""

    runs: list[RunJson]
    cursor: str | None


class HistoryList(NamedTuple):
    """Some of what happened, the oldest first, and where to go on; no cursor: this was the last."""

    history: list[RunHistoryEventJson]
    cursor: str | None


class IncidentJson(TypedDict):
    """Something that went wrong, and where it stands."""

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
    note: str


class IncidentWhole(IncidentJson):
    """An incident with everything it was decided by, what was decided and what was done."""

    attempt: int
    engine: str
    context: dict[str, Any]
    decisions: list[dict[str, Any]]
    steps: list[dict[str, Any]]


class IncidentList(NamedTuple):
    """Some incidents, and where to go on."""

    incidents: list[IncidentJson]
    cursor: str | None
