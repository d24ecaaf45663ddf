"""A user's own batch job that is recorded in the spool: what its state in the batch system means, and what is reported of its failure.

It is not ours. The user submitted it and the batch system runs it; Forestay observes it, reports why it failed, and, if a rule or a person decides so, has the
batch system run it again under the same id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from forestay.domain.sites.batch import OVER, BatchId, BatchOutcome, BatchState

GIVEN_UP = frozenset({"CANCELLED", "REVOKED"})
"""States that a person intended: there is nothing to recover."""
LOST_WITH_NODE = "NODE_FAIL"
NEVER_STARTS = "DependencyNeverSatisfied"
"""The wait reason of a job that its batch system will never start, because of how another one ended."""
MENDABLE = frozenset({"memory", "wall", "cpus", "disk"})
"""Needs that can be changed while a job waits."""


class JobKind(StrEnum):
    """Whether the id of a job stands for one job or for several."""

    SINGLE = "job"
    ARRAY = "array"
    HETEROGENEOUS = "heterogeneous job"


class JobIdentity(NamedTuple):
    """What the batch system itself reports of a recorded job."""

    kind: JobKind
    owner: int | None
    """The user's uid; None if the batch system does not report it."""
    answers: tuple[BatchId, ...] = ()
    """Jobs whose failure it waits for; arrays by their own ids."""


class WatchedJob(NamedTuple):
    """The record of a job in the spool."""

    id: BatchId
    cluster: str
    owner: int
    """The user's uid, from the owner of the file: it cannot be forged."""
    directory: str
    run: str
    """The flow's run that it belongs to, if its submitter stated it."""
    since: float
    """Seconds since 1970."""
    file: str = ""
    """The name of the file in the spool."""
    allow_requeue: bool = False
    """Its user allows it to be requeued although it was submitted with ``--no-requeue``."""

    @property
    def base(self) -> BatchId:
        """The id under which it is recorded; array elements are recorded together."""
        return self.id.partition("_")[0]

    @property
    def key(self) -> str:
        """The run under which it is reported: its flow's run, or itself."""
        return self.run or self.own_key

    @property
    def own_key(self) -> str:
        return f"{self.cluster or 'slurm'}-{self.id}"


class Question(NamedTuple):
    """A question from within a job whose script has failed, while the batch system still considers the job running."""

    restarts: int
    """The number of the job's start."""
    exit_code: int | None
    signal: int | None
    ended: int
    """Seconds since 1970, by the node's clock."""
    oom_kills: int = 0
    """Out-of-memory kills of the job's processes by the kernel."""


def as_asked(outcome: BatchOutcome, question: Question) -> BatchOutcome:
    """The outcome of a job that asks for itself. It has failed, whether the batch system reports it yet or not; its end is the script's, so that
    the failure is the same before and after."""
    if question.restarts != outcome.restarts or fate(outcome) not in (WatchedJobAction.GOING, WatchedJobAction.FAILED):
        return outcome
    if outcome.state is BatchState.RUNNING:
        code, signal = question.exit_code, question.signal
        # As the batch system itself will report it when the job has ended.
        word = "OUT_OF_MEMORY" if question.oom_kills else "FAILED"
        return replace(outcome, state=BatchState.ENDED, word=word, exit_code=code, signal=signal, ended=question.ended)
    return replace(outcome, ended=question.ended) if outcome.state in OVER else outcome


class ArrayReading(NamedTuple):
    """A batch system's report on an array, without its healthy elements: there may be tens of thousands."""

    failed: frozenset[BatchId]
    """Elements whose last start failed."""
    restarted: frozenset[BatchId]
    """Elements that wait for a restart."""
    active: bool
    """Some element waits or runs."""
    stuck: bool = False
    """All active elements wait, and the batch system will never start them."""


class WatchedJobAction(StrEnum):
    """What to do about a job."""

    GOING = "going"
    DONE = "done"
    """It succeeded, or somebody cancelled it."""
    FAILED = "failed"
    SILENT = "silent"
    """Unknown. A missing job is not an ended one."""


def fate(outcome: BatchOutcome) -> WatchedJobAction:
    """The consequence of the batch system's report."""
    if outcome.state is BatchState.UNKNOWN:
        return WatchedJobAction.SILENT
    if outcome.state not in OVER:
        return WatchedJobAction.GOING
    word = outcome.word.split(" ", 1)[0].rstrip("+")
    if word == "COMPLETED" or word in GIVEN_UP:
        return WatchedJobAction.DONE
    return WatchedJobAction.FAILED


def lost_start(outcome: BatchOutcome) -> BatchOutcome | None:
    """The previous start of a job that waits because its batch system lost the node under it and requeued it by itself."""
    if outcome.state is not BatchState.WAITING or not outcome.node_events:
        return None
    nodes, _, word = outcome.node_events[-1].partition(": ")
    if word != LOST_WITH_NODE:
        return None
    return BatchOutcome(
        BatchState.LOST,
        word,
        nodes=tuple(nodes.split(",")) if nodes != "?" else (),
        node_events=outcome.node_events[-1:],
        restarts=max(0, outcome.restarts - 1),
    )


def several(job: BatchId, kind: JobKind) -> str:
    """Why there may be no action on an id that stands for several jobs; empty for a single job and for one element of an array."""
    match kind:
        case JobKind.ARRAY:
            return "" if "_" in job else f"job {job} is an array; Forestay acts on its elements only"
        case JobKind.HETEROGENEOUS:
            return f"job {job} is a heterogeneous job; Forestay does not act on heterogeneous jobs yet"
        case JobKind.SINGLE:
            return ""


@dataclass(frozen=True, slots=True)
class JobDetails:
    """The batch system's details of a job, as long as it keeps them."""

    id: BatchId
    name: str
    user: str
    held: bool
    """Waiting, and not to start before somebody releases it."""
    mark: str
    """The mark that we last wrote to it; see `BatchSteering.again`."""
    needs: Mapping[str, int]
    """Its needs under our names: memory in bytes, wall in seconds, cpus."""
    logs: tuple[str, ...] = ()
    """Its output files, standard error first."""
    waiting: bool = False
    """It is in the queue and has not begun."""
    running: bool = False
    requeue: bool = True
    """Whether the batch system may requeue it. Slurm does not allow changing this after its end."""
    waits_in_vain_for: tuple[BatchId, ...] = ()
    """Jobs that had to succeed for it, and did not; arrays by their own ids."""
    number: BatchId = ""
    """The batch system's own number of it; an element of an array has one beside ``12_3``."""


class Vouching(NamedTuple):
    """Since when somebody promises without interruption to decide on jobs that fail, and for how long a decision may take. A failed job is shown as
    running only while this holds, so one whose end falls outside of it may have been seen to fail."""

    since: float | None
    """Seconds since 1970; None: there is no such promise now."""
    seconds: float
    """For one decision, from the end of the job on."""

    def covers(self, job: WatchedJob, outcome: BatchOutcome) -> bool:
        """Whether nobody can have seen the job fail. Its end is by the batch system's clock, its submission by ours."""
        if self.since is None or outcome.ended is None:
            return False
        return outcome.ended >= self.since + (0 if job.since >= self.since else CLOCKS)

    def is_late(self, outcome: BatchOutcome, now: float) -> bool:
        """Whether the time for a decision on a failed job has passed."""
        return outcome.ended is None or now > outcome.ended + self.seconds


CLOCKS = 5.0
"""The assumed largest difference between the clocks of two hosts, in seconds."""


def obstacle(
    job: WatchedJob,
    kind: JobKind,
    outcome: BatchOutcome,
    details: JobDetails | None,
    vouching: Vouching,
    now: float,
) -> str:
    """Why there must be no action on a job, whatever is ordered; empty if there may. A job in the batch system's queue will run in any case."""
    why_not = several(job.id, kind)
    if why_not:
        return why_not
    if fate(outcome) is not WatchedJobAction.FAILED or (details is not None and details.waiting):
        return ""
    if not vouching.covers(job, outcome):
        return f"job {job.id} ended while no watcher was active, so its user may have seen it fail; submit it again"
    if vouching.is_late(outcome, now):
        return (
            f"job {job.id} got no decision within {vouching.seconds:g} seconds after its end, so it is shown as failed; "
            "submit it again"
        )
    if details is not None and not details.requeue:
        return (
            f"job {job.id} may not be requeued (--no-requeue, or JobRequeue=0 in slurm.conf); to have such jobs recovered, "
            "submit them with FORESTAY_REQUEUE=allow, or start the watcher with --override-no-requeue"
        )
    return ""


class PayloadRecord(NamedTuple):
    """The record that one start of a job wrote on its node, as far as it got."""

    host: str
    begun: int
    seen: int
    """When it was last seen alive, seconds since 1970 by the node's clock."""
    peak_memory: int
    """The peak of all its processes together, in bytes."""
    exit_code: int | None = None
    signal: int | None = None
    tail: str = ""


def evidence(
    outcome: BatchOutcome,
    details: JobDetails | None,
    tail: str,
    peak_memory: int | None,
    record: PayloadRecord | None = None,
) -> dict[str, object]:
    """The evidence of a failure, in the fields of an evidence record. If both the batch system and the job itself report something, the
    batch system determines how it ended, and the larger peak counts."""
    if record is not None:
        peak_memory = max(record.peak_memory, peak_memory or 0)
        tail = tail or record.tail
    fields: dict[str, object] = {
        "scheduler": "slurm",
        "scheduler_state": outcome.word,
        "scheduler_reason": "; ".join([*([outcome.reason] if outcome.reason else []), *outcome.node_events]),
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "node": ",".join(outcome.nodes),
        "log_tail": tail,
        "peak_memory": peak_memory,
    }
    if details is not None:
        fields |= {"memory_limit": details.needs.get("memory"), "time_limit": details.needs.get("wall")}
    if record is not None:
        if outcome.exit_code is None and outcome.signal is None:
            fields |= {"exit_code": record.exit_code, "signal": record.signal or None}
        fields |= {"payload_host": record.host, "payload_seen": record.seen}
        fields["wall_time"] = float(max(0, record.seen - record.begun))
    if outcome.started is not None and outcome.ended is not None:
        fields["wall_time"] = float(max(0, outcome.ended - outcome.started))
    return {name: value for name, value in fields.items() if value not in (None, "")}


def needed(details: JobDetails, wanted: Mapping[str, Mapping[str, float]]) -> dict[str, int]:
    """The needs of the next try: the present ones by a factor, or to an amount, up to a bound, never less
    than now. An unknown one cannot be multiplied."""
    needs: dict[str, int] = {}
    for name, how in wanted.items():
        if name not in MENDABLE:
            continue
        now = details.needs.get(name)
        amount = how["to"] if "to" in how else now * how.get("factor", 1.0) if now else None
        if amount is not None:
            needs[name] = int(max(min(amount, how.get("at_most", amount)), now or 0))
    return needs
