"""A user's cancellation wins whenever it comes, with the fakes of test_batch_job_recovery; on a real Slurm: tests/system/insertion/test_cancelled_jobs.py."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import pytest
from tests.unit.services.insertion.test_batch_job_recovery import (
    CANCELLED,
    OOM,
    RUNS,
    FakeArray,
    FakeBatch,
    FakeService,
    FakeSpool,
    Room,
    element,
    job,
    order,
)

from forestay.domain.sites.batch import BatchState
from forestay.domain.sites.cancel_call import CancelCall, JobSelector
from forestay.domain.sites.watched_job import Question
from forestay.ports.exceptions.exception_service import EngineNews

BY_USER = CancelCall(1000, 139.0, (JobSelector("7"),))
"""While the job was shown as running: it had failed at 130, and Slurm did nothing."""


def kinds(room: Room) -> list[str]:
    return [str(event["kind"]) for event in room.service.events]


@dataclass
class CancelledMeanwhile(FakeService):
    """The user cancels the job while its orders are fetched."""

    spool: FakeSpool = field(default_factory=FakeSpool)

    async def news(self, incidents: Collection[str], *, wait: float) -> EngineNews:
        self.spool.calls.append(BY_USER)
        return await super().news(incidents, wait=wait)


async def test_before_the_failure_is_reported() -> None:
    room = Room(FakeBatch(OOM))
    room.service.orders = [order()]
    room.spool.calls = [BY_USER]
    await room.recovery().look()
    assert not room.batch.done
    assert not room.service.events, "nobody is asked about a cancelled job"
    assert not room.spool.words, "it is shown as it is"


async def test_while_the_incident_waits_for_a_decision() -> None:
    room = Room(FakeBatch(OOM))
    recovery = room.recovery()
    await recovery.look()
    room.spool.calls = [BY_USER]
    room.service.orders = [order()]
    await recovery.look()
    assert not room.batch.done
    assert kinds(room) == ["task-aborted", "run-completed"]
    assert not room.spool.words


async def test_between_the_decision_and_the_act() -> None:
    """The poll has seen nothing of it; the order is being fetched."""
    room = Room(FakeBatch(OOM))
    room.service = CancelledMeanwhile(spool=room.spool, orders=[order()])
    await room.recovery().look()
    assert not room.batch.done
    assert room.service.answers == {
        "o-1": ("refused", "job 7 was cancelled after it had failed, so it is not run again")
    }
    assert not room.spool.words


@pytest.mark.parametrize("verb", ["resubmit", "suspend", "restart"])
async def test_while_the_job_is_queued_again(verb: str) -> None:
    """Slurm did nothing about the call, for the job had ended; now it waits and could start."""
    room = Room(FakeBatch(OOM))
    room.batch.on_requeue = lambda: room.spool.calls.append(BY_USER)
    room.service.orders = [order(verb)]
    recovery = room.recovery()
    await recovery.look()
    assert room.batch.done == [("cancel", "7")]
    assert room.service.answers == {"o-1": ("refused", "somebody cancelled the job")}
    await recovery.look()
    assert room.batch.done == [("cancel", "7")]
    assert not room.spool.words


async def test_while_it_waits_to_start_slurm_itself_cancels_it() -> None:
    room = Room(FakeBatch(OOM))
    room.service.orders = [order(wait=600)]
    recovery = room.recovery()
    await recovery.look()
    assert [what for what, _ in room.batch.done] == ["again"]
    room.batch.now = CANCELLED
    room.service.orders.append(order(id="o-2"))
    await recovery.look()
    assert [what for what, _ in room.batch.done] == ["again"]
    assert not room.spool.words


async def test_while_the_job_itself_asks_before_it_ends() -> None:
    """It is settled, so that it ends at once, if Slurm has not ended it already."""
    room = Room(FakeBatch(replace(RUNS, started=100)))
    room.spool.asks = {"7": Question(0, 3, None, 135)}
    room.service.orders = [order()]
    room.spool.calls = [BY_USER]
    await room.recovery().look()
    assert not room.batch.done
    assert not room.spool.asks


async def test_one_element_and_not_its_neighbours() -> None:
    room = Room(FakeArray(states={"7_3": OOM, "7_4": OOM}), spool=FakeSpool({"7": job()}))
    room.service.orders = [element(4)]
    room.service.incident = "i-4"
    room.spool.calls = [CancelCall(1000, 139.0, (JobSelector("7", 3, 3),))]
    await room.recovery().look()
    assert room.batch.done == [("again", "7_4")]
    assert room.spool.ended == {"7_3"}


async def test_a_whole_array() -> None:
    room = Room(FakeArray(states={"7_3": OOM, "7_4": OOM}), spool=FakeSpool({"7": job()}))
    room.service.orders = [element(3), element(4)]
    room.spool.calls = [BY_USER]
    await room.recovery().look()
    assert not [what for what, _ in room.batch.done if what == "again"]


async def test_preempted_without_a_requeue_and_then_cancelled() -> None:
    room = Room(FakeBatch(replace(OOM, word="PREEMPTED")))
    room.service.orders = [order()]
    room.spool.calls = [BY_USER]
    await room.recovery().look()
    assert not room.batch.done


async def test_the_call_of_somebody_else_or_for_an_earlier_start_is_none() -> None:
    for call in (BY_USER._replace(by=1001), BY_USER._replace(at=90.0)):
        room = Room(FakeBatch(OOM))
        room.service.orders = [order()]
        room.spool.calls = [call]
        await room.recovery().look()
        assert [what for what, _ in room.batch.done] == ["again"]


async def test_a_job_that_somebody_else_queued_again_runs_on_and_stays_watched() -> None:
    """With scontrol requeue, while the failure waits for a decision."""
    room = Room(FakeBatch(OOM))
    recovery = room.recovery()
    await recovery.look()
    room.batch.now = replace(RUNS, restarts=1)
    room.service.orders = [order()]
    await recovery.look()
    assert not room.batch.done
    assert room.service.answers == {"o-1": ("refused", "somebody else had job 7 run again already")}
    assert room.spool.words
    room.batch.now = replace(OOM, restarts=1, ended=139)
    await recovery.look()
    assert kinds(room) == ["task-aborted", "task-aborted"]


async def test_records_of_calls_are_removed_once_nothing_can_depend_on_them() -> None:
    room = Room(FakeBatch(RUNS))
    room.spool.calls = [BY_USER]
    recovery = room.recovery()
    await recovery.look()
    assert room.spool.calls
    room.clock.at += 300
    await recovery.look()
    assert not room.spool.calls
    assert room.batch.now.state is BatchState.RUNNING
