"""The control document of a job: the one small document that holds its whole state.

It is always written whole and version-checked. Large or old parts (log tails, evidence, late ends, the beginning
of a long story) are in create-only records beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple
from zlib import crc32

from forestay.domain.jobs.hash_slots import hash_slot_of
from forestay.domain.jobs.resources import Resources, resource_class
from forestay.domain.jobs.specification import RetryPolicy

WRITER = 1
"""The writer version of this code; a document may require a newer one."""

HIGHEST_PRIORITY = 1000


class State(StrEnum):
    """The state of a job. Suspension is not a state: it is a set of holders beside it."""

    AVAILABLE = "available"
    """Anyone may claim it, unless it is held or its time has not come."""
    RUNNING = "running"
    """A pilot holds it by a claim, or its end is kept because the job is held."""
    FAULTED = "faulted"
    """An attempt failed and the failure waits for a decision."""
    COMPLETED = "completed"
    FORCED_COMPLETE = "forced_complete"
    """Someone declared it done; Forestay committed no outputs."""
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL = frozenset({State.COMPLETED, State.FORCED_COMPLETE, State.FAILED, State.CANCELLED})
"""States that no job leaves."""


class JobPhase(StrEnum):
    """What a running job is doing."""

    STAGING_IN = "staging-in"
    EXECUTING = "executing"
    STAGING_OUT = "staging-out"


class Token(NamedTuple):
    """The fencing token: compared in order, never used again, never lowered."""

    generation: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Claim:
    """One pilot's hold on one job for one attempt."""

    id: str
    """Random, and new for every try to write it: it alone identifies the write that took place."""
    pilot: str
    host: str
    granted: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """Where an attempt's outputs are, and the digest that commits them."""

    path: str
    sha256: str
    files: int
    size: int


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """The newest checkpoint of a job: what its next attempt begins with."""

    token: Token
    """The attempt that committed it."""
    claim: str
    number: int
    """Counts the checkpoints of that attempt."""
    manifest: Manifest
    content: str
    """A digest of the files alone: two checkpoints with the same one are equal, whoever made them."""
    at: int
    continuations: int = 0
    """Attempts so far that ended with progress, and cost nothing."""
    replaced: Manifest | None = None
    """The checkpoint before it, whose files are to be removed."""


class AttemptOutcome(StrEnum):
    """How an attempt ended, as its pilot saw it."""

    OK = "ok"
    FAILURE = "failure"


class RankEnd(NamedTuple):
    """How one rank of a job of several nodes ended."""

    rank: int
    host: str
    exit_code: int | None = None
    signal: int | None = None
    stopped_for: str = ""
    """Why its pilot or another rank ended it; empty if it ended by itself."""

    def __str__(self) -> str:
        how = f"signal {self.signal}" if self.signal else f"exit code {self.exit_code}"
        if self.exit_code is None and not self.signal:
            how = ""
        return f"rank {self.rank} on {self.host}: " + ", ".join(filter(None, (how, self.stopped_for)))


MAX_RANKS = 64
"""Ranks that an end describes."""


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The end of one attempt, as reported by its pilot."""

    token: Token
    claim: str
    outcome: AttemptOutcome
    reason: str = "exit"
    exit_code: int | None = None
    signal: int | None = None
    started: int | None = None
    wall: float | None = None
    cpu: float | None = None
    peak_memory: int | None = None
    host: str = ""
    manifest: Manifest | None = None
    result: str | None = None
    """What a function returned or raised, as JSON, if it is small; Forestay itself never reads it."""
    oom_kills: int | None = None
    """The number of out-of-memory kills by the kernel while it ran."""
    disk_left: int | None = None
    """Bytes that were left where it ran, when it failed."""
    stage: str | None = None
    """The stage that a failed attempt had reached: `staging-in`, `executing`, `staging-out`."""
    error: str | None = None
    """The system's name of the error, such as `ENOSPC`, if the pilot encountered it itself."""
    file: str | None = None
    """The input or output concerned; for a failed start, `program`, `folder` or `process`."""
    left_running: int | None = None
    """Processes of it that its pilot could not end."""
    input_bytes: int | None = None
    """The size of all its input files together, if its pilot reported each."""
    image: str | None = None
    """The digest of the container image that it ran in; a folder has none."""
    devices: tuple[str, ...] = ()
    """The accelerators that were assigned to it alone."""
    ranks: tuple[RankEnd, ...] = ()
    """Of a failure on several nodes: how the ranks ended, the one that failed first at the beginning."""


class Transition(NamedTuple):
    """One line of a job's story."""

    rev: int
    at: int
    event: str
    state: str
    attempt: int
    by: str
    note: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """How far the notification of a job's end has come."""

    url: str
    tries: int = 0
    due: int | None = None
    """When to try next; None before the job is final and after the notification was taken."""
    done: bool = False


class FlowRef(NamedTuple):
    """The task that requested a job, and the receiver of its completion."""

    run: str
    work: str
    """The round of the task."""
    flow: str
    """The version of the flow."""
    shard: int
    """The shard that manages the job; -1: the run itself."""
    place: int
    """Its index among the jobs that the same shard or run manages."""
    of: int
    """The number of these jobs, as far as known when the job was made; 0: nobody waits for its end."""
    result: str = ""
    """The output whose content is the task's result."""
    above: tuple[str, ...] = ()
    """The versions of the flows whose runs started this one, the nearest first."""
    prompt: bool = False
    """Another task consumes the jobs of this one as they end: completions are reported promptly."""

    @property
    def room(self) -> str:
        """Identifies the jobs that are managed together."""
        return f"{self.run}:{self.work}:{self.shard}"


@dataclass(frozen=True)
class JobDocument:
    """Everything that is decided about one job. Times are milliseconds since 1970 in UTC.

    Not slotted like the other parts: every claim and end copies a document, and a copy of its `__dict__` costs a
    tenth of `dataclasses.replace`.
    """

    id: str
    tenant: str
    specification: str
    name: str
    owner: str
    created: int
    changed: int
    resources: Resources
    index: int | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    team: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    expected_runtime: int | None = None
    """Seconds."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    stages: bool = False
    """Whether it has inputs, which are staged before it executes."""
    not_before: int = 0
    state: State = State.AVAILABLE
    phase: JobPhase | None = None
    generation: int = 0
    attempt: int = 0
    claim: Claim | None = None
    former_claim: str | None = None
    """The claim that was released last: its late end may still be adopted."""
    holders: tuple[str, ...] = ()
    held_completion: AttemptResult | None = None
    """The end of a job that is held; applied when the last holder releases it."""
    last: AttemptResult | None = None
    """The end that was applied last."""
    winner: AttemptResult | None = None
    """The one attempt whose outputs count."""
    failures: int = 0
    """Failed attempts; releases do not count here."""
    releases: int = 0
    overlap_possible: bool = False
    """An earlier attempt was given up without proof that its process is gone."""
    checkpoint: SavedCheckpoint | None = None
    """Only of jobs whose specification names files for it."""
    confirmations: int = 0
    """Raised by a confirming write, which changes nothing else."""
    delivery: Delivery | None = None
    flow_ref: FlowRef | None = None
    """Only for jobs of a run."""
    rev: int = 0
    """Counts transitions; stories and audits are ordered by it, not by clocks."""
    history: tuple[Transition, ...] = ()
    min_writer: int = WRITER
    extra: Mapping[str, object] = field(default_factory=dict)
    """Fields of a newer writer; they are kept when this release writes the document."""

    def having(self, **changes: Any) -> JobDocument:
        """The same document with these fields changed."""
        if not changes.keys() <= FIELDS:
            raise TypeError(f"a job document has no {', '.join(changes.keys() - FIELDS)}")
        copy = object.__new__(JobDocument)
        copy.__dict__.update(self.__dict__, **changes)
        return copy

    @staticmethod
    def whole(fields: dict[str, Any]) -> JobDocument:
        """A document from all its fields, as read by a store's format."""
        if fields.keys() != FIELDS:
            raise TypeError(f"a job document needs all its fields; these differ: {fields.keys() ^ FIELDS}")
        document = object.__new__(JobDocument)
        document.__dict__.update(fields)
        return document

    @property
    def token(self) -> Token:
        return Token(self.generation, self.attempt)

    @property
    def final(self) -> bool:
        return self.state in FINAL


FIELDS = frozenset(attribute.name for attribute in fields(JobDocument))
_PLACES = 12
"""Bits that distinguish jobs of the same millisecond."""
_EPOCH = 1_600_000_000_000
_FARTHEST = 1 << 32


def rank(document: JobDocument) -> int:
    """One number that sorts the queue: higher priority first, then the older job, then the place in its array.

    Ranks of one lane should differ: a store pages through different numbers quickly, and through a million equal
    ones slowly. It has 63 bits.
    """
    place = crc32(document.id.encode()) >> 20 if document.index is None else min(document.index, _FARTHEST)
    age = document.created - _EPOCH + (place >> _PLACES)
    return (HIGHEST_PRIORITY - document.priority << 52) | (age << _PLACES) | (place & (1 << _PLACES) - 1)


EFFECTS = "effects"
"""The field of a document for external effects that a further attempt would repeat."""
PILOT_DEATHS = "pilot_deaths"
"""The field of a document that counts the pilots that died while they ran it, until a person or a rule lets it run again."""
FORMER_PILOT = "former_pilot"
"""The field of a document that names the pilot of the former claim: a late completion is accepted from it, and from a pilot that may have the job."""
TRACE = "trace"
"""The field of a document for the trace context that its submitter gave."""
DOWNSTREAM = "downstream"
"""The field of a document for the task servers that its job is meant for; jobs without it are for pilots."""
ANY_DOWNSTREAM = "any"


def downstream_of(document: JobDocument) -> str:
    named = document.extra.get(DOWNSTREAM) if document.extra else None
    return named if isinstance(named, str) else ""


def queue_named(tenant: str, downstream: str = "") -> str:
    """The queue of a tenant's jobs: those for its pilots under its own name, those for each downstream separately."""
    return f"{tenant}>{downstream}" if downstream else tenant


class QueueLane(NamedTuple):
    """The queue lane of a job: jobs of one owner and priority with similar resources."""

    tenant: str
    """The tenant, with the downstream if the jobs are not for pilots."""
    resource_class: str
    priority: int
    owner: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.resource_class}/{self.priority}/{self.owner}"


def lane_of(document: JobDocument) -> QueueLane:
    queue = queue_named(document.tenant, downstream_of(document))
    return QueueLane(queue, resource_class(document.resources), document.priority, document.owner)


def lane_named(text: str) -> QueueLane:
    """Parse the name of a lane. Tenants have no slash in them, owners may."""
    tenant, name, priority, owner = text.split("/", 3)
    return QueueLane(tenant, name, int(priority), owner)


def search_fields(document: JobDocument) -> dict[str, object]:
    """The fields that stores index beside the document itself: derived, never read back; fields that do not apply are left out."""
    needs = document.resources
    kind = resource_class(needs)
    fields: dict[str, object] = {
        "slot": hash_slot_of(document.id),
        "lane": f"{queue_named(document.tenant, downstream_of(document))}/{kind}/{document.priority}/{document.owner}",
        "rank": rank(document),
        "resource_class": kind,
        "retries": max(0, document.attempt - 1),
        "held": bool(document.holders),
        "cpus": needs.cpus,
        "memory": needs.memory,
        "disk": needs.disk,
        "gpus": needs.gpus,
    }
    last = document.last
    if last is not None:
        fields["host"] = last.host
        if last.exit_code is not None:
            fields["exit_code"] = last.exit_code
    claim = document.claim
    if claim is not None:
        fields["pilot"] = claim.pilot
        fields["host"] = claim.host
        if document.expected_runtime is not None and document.held_completion is None:
            fields["overdue"] = claim.granted + 1000 * document.expected_runtime
    if document.delivery is not None and document.delivery.due is not None:
        fields["notify_due"] = document.delivery.due
    flow_ref = document.flow_ref
    if flow_ref is not None:
        fields["run"] = flow_ref.run
        fields["work"] = flow_ref.work
        if flow_ref.of and document.state in FINAL:
            fields["ended"] = document.changed
    return fields


def instance_of(work: str) -> tuple[str, int]:
    """The task of a round, as verbs name it, and the number of the round; for a compensation its own name, without a number."""
    instance, _, after = work.rpartition("@")
    number, undoing, rest = after.partition("!")
    if undoing:
        return f"!{rest.partition('.')[0]}", 0
    return instance, int(number)


def task_of(instance: str) -> str:
    """The task whose instance it is: inside loops and choices its name comes after the round that it is in."""
    return instance.rpartition("/")[2]
