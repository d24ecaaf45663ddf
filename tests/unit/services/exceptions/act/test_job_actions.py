"""What a playbook does to a job is one write, and leaves no failure unseen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.examples import job

from forestay.adapters.sql.job_store import SqlJobStore
from forestay.adapters.system.clock import SystemClock
from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exceptions.incidents.incident import Incident
from forestay.domain.jobs.claim import leave_failure
from forestay.domain.jobs.job_document import AttemptOutcome, AttemptResult, Claim, State, Token
from forestay.domain.jobs.resources import Resources
from forestay.domain.playbooks.action import ActionKind, Amount, NeedChange, Resubmission, Resubmit, Steer
from forestay.ports.jobs.job_store import DocumentChange
from forestay.services.exceptions.act.job_actions import JobActions
from forestay.services.jobs.job_control import JobControl
from forestay.services.shared.checked_writer import CheckedWriter


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlJobStore]:
    store = SqlJobStore(f"sqlite:///{tmp_path / 'recover.db'}")
    await store.open()
    yield store
    await store.close()


async def test_the_failure_of_a_job_that_a_playbook_continues_is_left_to_the_pipeline(
    store: SqlJobStore,
) -> None:
    """By its own retry policy it would be tried again at once, and nobody would hear of the failure."""
    clock, writer = SystemClock(), CheckedWriter(store)
    recover = JobActions(writer, JobControl(store, writer, clock, leave_failure), clock)
    ended = AttemptResult(Token(0, 1), "claim-1", AttemptOutcome.FAILURE, exit_code=1, host="n17")
    held = job("one", tenant="lab", state=State.RUNNING, attempt=1, holders=("step-1",), held_completion=ended)
    await store.write([DocumentChange(held, None)])
    incident = Incident("i1", "lab", "ann", ExceptionType.ABORT, at=1, job="one", attempt=1)
    outcome = await recover.recover(incident, Steer(ActionKind.CONTINUE), step="step-2", release_of="step-1")
    assert outcome.done, outcome.detail
    document = (await store.get(["one"]))["one"].document
    assert (document.state, document.last) == (State.FAULTED, ended)


@pytest.mark.parametrize("state", [State.RUNNING, State.AVAILABLE])
async def test_a_job_in_which_nothing_failed_is_taken_back_and_sent_off_with_more(
    store: SqlJobStore, state: State
) -> None:
    """A limit that was passed, or a resource that nobody has, is answered while the job runs or waits; a failure never is."""
    clock, writer = SystemClock(), CheckedWriter(store)
    recover = JobActions(writer, JobControl(store, writer, clock, leave_failure), clock)
    needs = Resources(cpus=1, memory=1 << 30)
    claim = Claim("claim-1", "p-1", "n17", granted=1) if state is State.RUNNING else None
    known = job("one", tenant="lab", state=state, attempt=1, resources=needs, claim=claim, phase=None)
    await store.write([DocumentChange(known, None)])
    more = Resubmit(Resubmission.CHANGED, {Amount.MEMORY: NeedChange(factor=2, at_most=1 << 40)})
    failure = Incident("i0", "lab", "ann", ExceptionType.ABORT, at=1, job="one", attempt=1)
    assert not (await recover.recover(failure, more, step="step-0")).done
    incident = Incident("i1", "lab", "ann", ExceptionType.CONSTRAINT_VIOLATION, at=1, job="one", attempt=1)
    for _ in range(2):
        outcome = await recover.recover(incident, more, step="step-1")
        assert outcome.done, outcome.detail
    document = (await store.get(["one"]))["one"].document
    assert (document.state, document.claim, document.resources.memory) == (State.AVAILABLE, None, 2 << 30)
    assert (document.releases, document.holders) == (0, ())


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        (0, "the job asked for no memory, so there is nothing to multiply"),
        (1 << 40, "the job already has the maximum"),
    ],
)
async def test_more_of_nothing_is_refused_with_the_reason(store: SqlJobStore, memory: int, words: str) -> None:
    clock, writer = SystemClock(), CheckedWriter(store)
    recover = JobActions(writer, JobControl(store, writer, clock, leave_failure), clock)
    needs = Resources(cpus=1, memory=memory)
    await store.write([DocumentChange(job("one", tenant="lab", attempt=1, resources=needs), None)])
    more = Resubmit(Resubmission.CHANGED, {Amount.MEMORY: NeedChange(factor=2, at_most=1 << 40)})
    incident = Incident("i1", "lab", "ann", ExceptionType.CONSTRAINT_VIOLATION, at=1, job="one", attempt=1)
    outcome = await recover.recover(incident, more, step="step-1")
    assert (outcome.done, outcome.detail) == (False, words)
