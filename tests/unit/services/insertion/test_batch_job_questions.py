"""Jobs that ask what becomes of them before they end: their batch system still takes them to be running."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest
from tests.unit.services.insertion.test_batch_job_recovery import OOM, RUNS, WAITS, FakeBatch, FakeService, Room, order

from forestay.domain.sites.batch import BatchId, BatchOutcome, BatchState
from forestay.domain.sites.watched_job import JobKind, Question, WatchedJobAction, as_asked, fate
from forestay.services.insertion.batch_job_recovery import A_LOOK

pytestmark = pytest.mark.finding("F-A2")

ASKS = Question(0, 3, None, 130)


def asking(question: Question = ASKS, service: FakeService | None = None) -> Room:
    room = Room(FakeBatch(RUNS), service or FakeService())
    room.spool.asks["7"] = question
    return room


async def test_a_job_that_asks_has_failed_and_is_run_again_before_it_ends() -> None:
    room = asking()
    room.service.orders = [order()]
    await room.recovery().look()
    (event,) = room.service.events
    assert (event["evidence"]["exit_code"], event["evidence"]["scheduler_state"]) == (3, "FAILED")
    assert room.batch.ended_starts == [0]
    assert room.service.answers == {"o-1": ("done", "")}
    assert room.spool.words
    assert not room.spool.asks


async def test_where_nothing_is_to_be_done_it_is_told_at_once_and_ends() -> None:
    room = asking(service=FakeService(incident=None))
    await room.recovery().look()
    assert not room.spool.words
    assert not room.spool.asks
    assert not room.batch.done


async def test_a_decision_that_comes_after_its_end_is_about_the_same_failure() -> None:
    room = asking()
    recovery = room.recovery()
    await recovery.look()
    room.batch.now = BatchOutcome(BatchState.ENDED, "FAILED", exit_code=3, ended=141)
    room.service.orders = [order()]
    await recovery.look()
    await room.recovery().look()  # another watcher, which knows nothing of the first one's reports
    assert len({event["id"] for event in room.service.events}) == 1
    assert room.service.answers == {"o-1": ("done", "")}


async def test_who_waits_for_its_failure_has_not_begun_and_is_no_obstacle() -> None:
    room = asking()
    room.batch.answers = {"8": ("7",)}
    room.spool.words["8"] = room.spool.words["7"]._replace(id="8")
    room.service.orders = [order()]
    await room.recovery().look()
    assert room.service.answers == {"o-1": ("done", "")}


async def test_giving_up_lets_it_end_and_does_not_cancel_it() -> None:
    room = asking()
    room.service.orders = [order("force-fail")]
    await room.recovery().look()
    assert not room.batch.done
    assert not room.spool.asks


async def test_a_hold_ends_the_start_that_failed() -> None:
    room = asking()
    room.service.orders = [order("suspend")]
    await room.recovery().look()
    assert (room.batch.done, room.batch.ended_starts) == ([("hold", "7")], [0])


async def test_the_question_of_another_start_counts_for_nothing() -> None:
    room = asking(ASKS._replace(restarts=1))
    await room.recovery().look()
    assert not room.service.events
    assert not room.batch.done
    assert room.spool.words


async def test_a_heterogeneous_job_that_asks_is_not_touched() -> None:
    room = asking()
    room.batch.kind = JobKind.HETEROGENEOUS
    room.service.orders = [order()]
    await room.recovery().look()
    assert not room.batch.done
    assert room.service.answers["o-1"][0] == "refused"
    assert not room.spool.asks


@pytest.mark.parametrize(
    ("outcome", "ended"),
    [(RUNS, 130), (OOM, 130), (WAITS, None), (replace(RUNS, restarts=1), None), (replace(OOM, word="COMPLETED"), 130)],
)
def test_only_what_runs_or_failed_is_as_it_asks(outcome: BatchOutcome, ended: int | None) -> None:
    asked = as_asked(outcome, ASKS)
    assert asked.ended == ended
    failed = outcome.restarts == 0 and outcome.state is not BatchState.WAITING and outcome.word != "COMPLETED"
    assert (fate(asked) is WatchedJobAction.FAILED) is failed


async def test_in_a_storm_those_that_wait_to_end_come_first_and_then_those_that_waited_longest() -> None:
    room = Room(Many(RUNS))
    word = room.spool.words.pop("7")
    room.spool.words = {str(number): word._replace(id=str(number)) for number in range(10, 10 + 2 * A_LOOK)}
    room.spool.asks["59"] = ASKS._replace(ended=139)
    await room.recovery().look()
    reported = [event["task"].rpartition(":")[2] for event in room.service.events]
    assert reported == ["59", *(str(number) for number in range(58, 58 - A_LOOK + 1, -1))]


class Many(FakeBatch):
    """All have failed, those with high numbers first, but for one that asks."""

    async def outcome(self, jobs: Collection[BatchId]) -> Mapping[BatchId, BatchOutcome]:
        return {job: RUNS if job == "59" else replace(OOM, ended=190 - int(job)) for job in jobs}


@pytest.mark.finding("F-A3")
async def test_a_job_that_did_not_wait_for_the_decision_is_not_run_again() -> None:
    room = asking()
    room.spool.waiting = False
    room.service.orders = [order()]
    await room.recovery().look()
    assert not room.batch.done
    assert room.service.answers["o-1"] == ("refused", "job 7 has waited too long for a decision and has ended")


@pytest.mark.finding("F-A3")
async def test_what_the_kernel_killed_in_a_job_that_asks_is_called_as_slurm_will_call_it() -> None:
    room = asking(Question(0, 137, None, 130, oom_kills=1))
    await room.recovery().look()
    (event,) = room.service.events
    assert event["evidence"]["scheduler_state"] == "OUT_OF_MEMORY"
