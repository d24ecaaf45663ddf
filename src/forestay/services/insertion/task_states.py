"""The state of a TES task, derived from its jobs."""

from __future__ import annotations

from collections.abc import Iterable

from forestay.domain.jobs.job_document import JobDocument, JobPhase, State
from forestay.formats.ga4gh.tes_job import BRINGS, MARK, TASK
from forestay.formats.ga4gh.tes_task import TaskState
from forestay.ports.jobs.job_store import JobQuery


def state_of(document: JobDocument, outputs: JobDocument | None) -> TaskState:
    """The state of a task, from its job and the job that delivers its outputs."""
    match document.state:
        case State.AVAILABLE:
            return TaskState.QUEUED
        case State.RUNNING:
            return TaskState.INITIALIZING if document.phase is JobPhase.STAGING_IN else TaskState.RUNNING
        case State.FAULTED:
            return TaskState.RUNNING
        case State.CANCELLED:
            return TaskState.CANCELED
        case State.FORCED_COMPLETE:
            return TaskState.COMPLETE
        case State.COMPLETED:
            verdict = TaskState.COMPLETE
        case _:
            last = document.last
            own = last is not None and last.reason == "exit" and last.exit_code not in (None, 0)
            verdict = TaskState.EXECUTOR_ERROR if own else TaskState.SYSTEM_ERROR
    if BRINGS not in document.labels:
        return verdict
    if outputs is None or not outputs.final:
        return TaskState.RUNNING  # shown as ended only when its outputs are delivered
    if verdict is not TaskState.COMPLETE or _nothing_to_bring(document):
        return verdict
    if outputs.state is State.CANCELLED:
        return TaskState.CANCELED
    return TaskState.SYSTEM_ERROR if outputs.state is State.FAILED else verdict


def _nothing_to_bring(document: JobDocument) -> bool:
    return document.winner is not None and document.winner.manifest is None


def states_asked(state: TaskState) -> frozenset[State]:
    """The states of jobs that tasks of this state can have."""
    return {
        TaskState.QUEUED: frozenset({State.AVAILABLE}),
        TaskState.INITIALIZING: frozenset({State.RUNNING}),
        TaskState.RUNNING: frozenset({State.RUNNING, State.FAULTED, State.COMPLETED, State.FAILED}),
        TaskState.COMPLETE: frozenset({State.COMPLETED, State.FORCED_COMPLETE}),
        TaskState.EXECUTOR_ERROR: frozenset({State.FAILED}),
        TaskState.SYSTEM_ERROR: frozenset({State.FAILED, State.COMPLETED}),
        TaskState.CANCELED: frozenset({State.CANCELLED, State.COMPLETED}),
        TaskState.CANCELING: frozenset({State.CANCELLED}),
    }.get(state, frozenset())


def tasks_of(tenant: str, state: TaskState | None, tags: Iterable[tuple[str, str]]) -> JobQuery:
    """The query that finds the jobs of tasks; conditions that it cannot express are checked afterwards."""
    states = states_asked(state) if state is not None else frozenset()
    return JobQuery(tenant=tenant, states=states, labels={MARK: TASK, **dict(tags)})


def completion_record(document: JobDocument, claim: str, kind: str, pilot: str) -> str:
    """The name of the pilot's record on the end of the last attempt."""
    return f"{document.id}:{document.generation}.{document.attempt}:{claim}:{kind}:{pilot}"
