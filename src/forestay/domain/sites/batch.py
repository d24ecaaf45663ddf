"""Requests to a batch system and its answers: pilot jobs, their states reduced to four, and kinds of refusals.

A batch system's own state (``NODE_FAIL``, ``C``, ``EXIT``) is kept beside ours, because the failure patterns use it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

BatchId = str
"""The batch system's own id of a job, as its commands print and accept it."""


class BatchState(StrEnum):
    """The state of a batch job in the batch system."""

    WAITING = "waiting"
    """It is queued or held and no process of it runs."""
    RUNNING = "running"
    """It runs, or is being started, suspended or cleaned up: its processes may live."""
    ENDED = "ended"
    """The batch system reports its end, confirmed by the node: none of its processes lives."""
    LOST = "lost"
    """The batch system gave it up without confirmation from its node (a node that failed): its processes may still live."""
    UNKNOWN = "unknown"
    """The batch system did not report it. It may be in any of the other states: this is never an end."""


OVER = frozenset({BatchState.ENDED, BatchState.LOST})
"""States after which it will not run again under this id."""


@dataclass(frozen=True, slots=True)
class PilotJob:
    """A pilot job for a batch system, to be run once: it must not be requeued."""

    name: str
    """Contains the launch's id and is never reused, so that a submitted job can be found by it."""
    command: tuple[str, ...]
    """Visible to everyone on the host: it contains no secret."""
    directory: str
    """Its working directory, there and here."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Passed without appearing in any command line; may hold a secret."""
    nodes: int = 1
    """The command runs on the first of them; what follows is of each."""
    cpus: int = 1
    memory: int | None = None
    """Bytes in all; None: the batch system's own default."""
    wall: int | None = None
    """Seconds; batch systems round it up to minutes."""
    queue: str | None = None
    """Partition, queue or class."""
    account: str | None = None
    output: str | None = None
    """The file for its output; if it is not set, output is discarded."""
    options: tuple[str, ...] = ()
    """Further options of this batch system's own submit command, set by the operator of the site; for Kubernetes, JSON merge patches of the Job."""
    user: str = ""
    """The Unix user as whom it is submitted; empty: the agent's own."""
    size: str = ""
    """The size by which a launcher knows what to run, if it is submitted as another user, and Kubernetes which image and devices."""


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The batch system's report on one job."""

    state: BatchState
    word: str = ""
    """Its own state, such as ``TIMEOUT``."""
    reason: str = ""
    """Its own reason and comment, if any."""
    exit_code: int | None = None
    signal: int | None = None
    nodes: tuple[str, ...] = ()
    node_events: tuple[str, ...] = ()
    """Its reports on a node that failed under the job: ``n2: DOWN (not responding)``."""
    restarts: int = 0
    """How often it restarted the job by itself; 0 for a pilot, which is never requeued."""
    started: int | None = None
    """Seconds since 1970, by the batch system's clock."""
    ended: int | None = None

    def as_plain(self) -> dict[str, object]:
        return {
            "state": str(self.state),
            "word": self.word,
            "reason": self.reason,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "nodes": list(self.nodes),
            "node_events": list(self.node_events),
            "restarts": self.restarts,
            "started": self.started,
            "ended": self.ended,
        }

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> BatchOutcome:
        """Read the stored form of this or another release: a state that is not known here is `unknown`."""
        known = {str(state) for state in BatchState}
        state = BatchState(data["state"]) if data.get("state") in known else BatchState.UNKNOWN
        return cls(
            state,
            word=str(data.get("word") or ""),
            reason=str(data.get("reason") or ""),
            exit_code=data.get("exit_code"),
            signal=data.get("signal"),
            nodes=tuple(data.get("nodes") or ()),
            node_events=tuple(data.get("node_events") or ()),
            restarts=int(data.get("restarts") or 0),
            started=data.get("started"),
            ended=data.get("ended"),
        )


def ended_event(start: BatchOutcome) -> str:
    """The entry of an earlier start of a job among its node events."""
    return f"{','.join(start.nodes) or '?'}: {start.word}"


SILENT = BatchOutcome(BatchState.UNKNOWN, reason="the batch system does not respond")
FORGOTTEN = BatchOutcome(BatchState.UNKNOWN, reason="it is neither in the queue nor in the accounting data")
"""The queue and the history answered, and neither has the job. A killed controller forgets the newest jobs; their processes may live for a while."""


@dataclass(frozen=True, slots=True)
class BatchJob:
    """A job known to the batch system."""

    id: BatchId
    name: str
    outcome: BatchOutcome


AT_ONCE = 200
"""Names or ids in one command: far below the limit of a command line."""


def slices(names: Collection[str], most: int = AT_ONCE) -> list[tuple[str, ...]]:
    """The distinct names, in slices for one command each."""
    every = tuple(dict.fromkeys(names))
    return [every[at : at + most] for at in range(0, len(every), most)]


def told_of(asked: Collection[BatchId], jobs: Mapping[BatchId, BatchJob] | None) -> dict[BatchId, BatchOutcome]:
    """The states of the requested jobs by one answer; None: there was no answer."""
    if jobs is None:
        return dict.fromkeys(asked, SILENT)
    return {job: jobs[job].outcome if job in jobs else FORGOTTEN for job in asked}


class SubmitRefusal(StrEnum):
    """Why a pilot job was refused (paper P0, section 5): each needs a different reaction."""

    NETWORK_DOWN = "network-down"
    """The batch system's host cannot be reached from here."""
    SCHEDULER_DOWN = "scheduler-down"
    """Its host responds, the scheduler does not."""
    REFUSED = "refused"
    """The scheduler is up and rejects this job."""


@dataclass(frozen=True, slots=True)
class SubmitRefused:
    """The job was certainly not submitted."""

    why: SubmitRefusal
    words: str
    """The batch system's own message, on one line."""
    later: bool = True
    """Whether the same job may be accepted later (a limit, a closed partition); False if the job itself is invalid."""
