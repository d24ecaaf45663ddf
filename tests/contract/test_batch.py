"""The contract of the batch port, on batch systems that really run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from tests.contract.batch_rooms import PATIENCE, ROOMS, BatchRoom, KubernetesRoom, found

from forestay.domain.sites.batch import BatchId, BatchOutcome, BatchState, PilotJob, SubmitRefusal, SubmitRefused
from forestay.ports.errors import Transient
from forestay.ports.sites.batch import BatchSystem

pytestmark = pytest.mark.live


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("htcondor", "kubernetes")]


@pytest.fixture(params=["psij", "slurm", *SLOW])
async def room(request: pytest.FixtureRequest) -> AsyncIterator[BatchRoom]:
    room = ROOMS[request.param]()
    yield room
    if isinstance(room, KubernetesRoom):
        await room.close()


@pytest.fixture
def batch(room: BatchRoom) -> BatchSystem:
    return room.system()


@pytest.fixture
def name() -> Iterator[str]:
    return iter(f"forestay-test-{uuid4().hex[:12]}" for _ in range(1000))


def job(name: str, script: str, folder: Path) -> PilotJob:
    return PilotJob(name, ("sh", "-c", script), str(folder), wall=600, output=str(folder / f"{name}.out"))


async def submitted(batch: BatchSystem, asked: PilotJob) -> BatchId:
    answer = await batch.submit(asked)
    assert isinstance(answer, str), answer
    return answer


async def until(
    batch: BatchSystem, ids: Collection[BatchId], good: Callable[[BatchOutcome], bool]
) -> dict[BatchId, BatchOutcome]:
    deadline = time.monotonic() + PATIENCE
    while True:
        outcomes = dict(await batch.outcome(ids))
        if all(good(outcomes[identifier]) for identifier in ids):
            return outcomes
        assert time.monotonic() < deadline, outcomes
        await asyncio.sleep(0.3)


def ended(outcome: BatchOutcome) -> bool:
    return outcome.state is BatchState.ENDED


async def test_how_jobs_ended_is_the_batch_systems_own_word(
    batch: BatchSystem, name: Iterator[str], tmp_path: Path
) -> None:
    well = await submitted(batch, job(next(name), "true", tmp_path))
    badly = await submitted(batch, job(next(name), "exit 3", tmp_path))
    killed = await submitted(batch, job(next(name), "kill -9 $$", tmp_path))
    outcomes = await until(batch, [well, badly, killed], ended)
    assert (outcomes[well].exit_code, outcomes[well].signal) == (0, None)
    assert outcomes[badly].exit_code == 3
    assert outcomes[killed].signal == 9 or outcomes[killed].exit_code == 128 + 9
    assert all(outcome.word and outcome.nodes and outcome.restarts == 0 for outcome in outcomes.values())
    assert all(
        outcome.started is not None and outcome.ended is not None and outcome.started <= outcome.ended
        for outcome in outcomes.values()
    )


async def test_jobs_are_found_by_name_while_they_wait_run_and_are_over(
    batch: BatchSystem, room: BatchRoom, name: Iterator[str], tmp_path: Path
) -> None:
    waits, runs, over = job(next(name), "true", tmp_path), job(next(name), "sleep 600", tmp_path), next(name)
    ids = {
        waits.name: await submitted(batch, replace(waits, options=room.hold)),
        runs.name: await submitted(batch, runs),
        over: await submitted(batch, job(over, "true", tmp_path)),
    }
    try:
        await until(batch, [ids[over]], ended)
        await until(batch, [ids[runs.name]], lambda outcome: outcome.state is BatchState.RUNNING)
        jobs = await found(batch, [*ids, "forestay-nobody-used-this"])
        assert {each: tuple(job.id for job in jobs) for each, jobs in jobs.items()} == {
            each: (identifier,) for each, identifier in ids.items()
        }
        states = {each: jobs[0].outcome.state for each, jobs in jobs.items()}
        assert states == {
            waits.name: BatchState.WAITING,
            runs.name: BatchState.RUNNING,
            over: BatchState.ENDED,
        }
    finally:
        await batch.cancel(list(ids.values()))
    await until(batch, list(ids.values()), ended)


async def test_two_jobs_of_one_name_show_both_the_older_first(
    batch: BatchSystem, room: BatchRoom, name: Iterator[str], tmp_path: Path
) -> None:
    twice = job(next(name), "true", tmp_path)
    first, second = await submitted(batch, twice), await submitted(batch, twice)
    jobs = await found(batch, [twice.name])
    expected = (first,) if room.unique else (first, second)
    assert tuple(job.id for job in jobs[twice.name]) == expected
    assert (first == second) is room.unique


async def test_what_is_cancelled_ends_and_may_be_cancelled_again(
    batch: BatchSystem, name: Iterator[str], tmp_path: Path
) -> None:
    runs = await submitted(batch, job(next(name), "sleep 600", tmp_path))
    await until(batch, [runs], lambda outcome: outcome.state is BatchState.RUNNING)
    await batch.cancel([runs, "987654321"])
    await until(batch, [runs], ended)
    await batch.cancel([runs])


async def test_an_id_that_nobody_knows_is_unknown_and_no_end(batch: BatchSystem) -> None:
    outcomes = await batch.outcome(["987654321", "987654322"])
    assert {name: outcome.state for name, outcome in outcomes.items()} == {
        "987654321": BatchState.UNKNOWN,
        "987654322": BatchState.UNKNOWN,
    }


async def test_the_environment_arrives_and_shows_in_no_command_line(
    batch: BatchSystem, name: Iterator[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTS_OWN_SECRET", "stays at home")
    secret = uuid4().hex
    script = 'printf "%s|%s|" "$ENROLMENT" "${AGENTS_OWN_SECRET-none}"; tr "\\0" " " </proc/$$/cmdline; pwd'
    asked = replace(job(next(name), script, tmp_path), environment={"ENROLMENT": secret})
    text = await submitted(batch, asked)
    await until(batch, [text], ended)
    assert asked.output is not None
    printed = await asyncio.to_thread(Path(asked.output).read_text)
    assert printed.startswith(f"{secret}|none|")
    assert printed.count(secret) == 1
    assert printed.endswith(f"{tmp_path}\n")
    assert secret not in repr(asked)


@pytest.mark.ledger("P0-24")
async def test_a_scheduler_that_refuses_is_told_from_one_that_is_down(
    batch: BatchSystem, room: BatchRoom, name: Iterator[str], tmp_path: Path
) -> None:
    asked = job(next(name), "true", tmp_path)
    refused = await batch.submit(replace(asked, options=room.wrong))
    assert isinstance(refused, SubmitRefused)
    assert (refused.why, refused.later) == (SubmitRefusal.REFUSED, False)
    down = await room.without_scheduler(tmp_path).submit(asked)
    assert isinstance(down, SubmitRefused)
    assert (down.why, down.later) == (SubmitRefusal.SCHEDULER_DOWN, True)
    assert refused.words
    assert down.words
    assert await found(batch, [asked.name]) == {}, "nothing was queued"


async def test_a_batch_system_that_is_down_says_nothing_of_any_job(
    batch: BatchSystem, room: BatchRoom, name: Iterator[str], tmp_path: Path
) -> None:
    over = job(next(name), "true", tmp_path)
    text = await submitted(batch, over)
    await until(batch, [text], ended)
    down = room.without_scheduler(tmp_path)
    assert (await down.outcome([text]))[text].state is BatchState.UNKNOWN
    with pytest.raises(Transient):
        await down.find([over.name])
    with pytest.raises(Transient):
        await down.cancel([text])


async def test_many_jobs_are_asked_for_by_few_commands(batch: BatchSystem, room: BatchRoom) -> None:
    before = room.commands
    outcomes = await batch.outcome([str(987000000 + number) for number in range(400)])
    assert len(outcomes) == 400
    assert room.commands - before <= 6
