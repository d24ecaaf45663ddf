"""The contract of the batch port, on batch systems that really run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from tests.contract.batch_rooms import ROOMS, BatchRoom

from forestay.domain.sites.batch import BatchId, BatchOutcome, BatchState, PilotJob, SubmitRefusal, SubmitRefused
from forestay.ports.errors import Transient
from forestay.ports.sites.batch import BatchSystem

pytestmark = pytest.mark.live
PATIENCE = 180.0


@pytest.fixture(params=sorted(ROOMS))
def room(request: pytest.FixtureRequest) -> BatchRoom:
    return ROOMS[request.param]()


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
        found = dict(await batch.outcome(ids))
        if all(good(found[one]) for one in ids):
            return found
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.3)


def ended(outcome: BatchOutcome) -> bool:
    return outcome.state is BatchState.ENDED


async def test_how_jobs_ended_is_the_batch_systems_own_word(
    batch: BatchSystem, name: Iterator[str], tmp_path: Path
) -> None:
    well = await submitted(batch, job(next(name), "true", tmp_path))
    badly = await submitted(batch, job(next(name), "exit 3", tmp_path))
    killed = await submitted(batch, job(next(name), "kill -9 $$", tmp_path))
    found = await until(batch, [well, badly, killed], ended)
    assert (found[well].exit_code, found[well].signal) == (0, None)
    assert found[badly].exit_code == 3
    assert found[killed].signal == 9 or found[killed].exit_code == 128 + 9
    assert all(one.word and one.nodes and one.restarts == 0 for one in found.values())
    assert all(one.started is not None and one.ended is not None and one.started <= one.ended for one in found.values())


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
        await until(batch, [ids[runs.name]], lambda one: one.state is BatchState.RUNNING)
        found = await batch.find([*ids, "forestay-nobody-used-this"])
        assert {each: tuple(one.id for one in jobs) for each, jobs in found.items()} == {
            each: (one,) for each, one in ids.items()
        }
        states = {each: jobs[0].outcome.state for each, jobs in found.items()}
        assert states == {
            waits.name: BatchState.WAITING,
            runs.name: BatchState.RUNNING,
            over: BatchState.ENDED,
        }
    finally:
        await batch.cancel(list(ids.values()))
    await until(batch, list(ids.values()), ended)


async def test_two_jobs_of_one_name_show_both_the_older_first(
    batch: BatchSystem, name: Iterator[str], tmp_path: Path
) -> None:
    twice = job(next(name), "true", tmp_path)
    first, second = await submitted(batch, twice), await submitted(batch, twice)
    found = await batch.find([twice.name])
    assert tuple(one.id for one in found[twice.name]) == (first, second)


async def test_what_is_cancelled_ends_and_may_be_cancelled_again(
    batch: BatchSystem, name: Iterator[str], tmp_path: Path
) -> None:
    runs = await submitted(batch, job(next(name), "sleep 600", tmp_path))
    await until(batch, [runs], lambda one: one.state is BatchState.RUNNING)
    await batch.cancel([runs, "987654321"])
    await until(batch, [runs], ended)
    await batch.cancel([runs])


async def test_an_id_that_nobody_knows_is_unknown_and_no_end(batch: BatchSystem) -> None:
    found = await batch.outcome(["987654321", "987654322"])
    assert {one: outcome.state for one, outcome in found.items()} == {
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
    one = await submitted(batch, asked)
    await until(batch, [one], ended)
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
    assert await batch.find([asked.name]) == {}, "nothing was queued"


async def test_a_batch_system_that_is_down_says_nothing_of_any_job(
    batch: BatchSystem, room: BatchRoom, name: Iterator[str], tmp_path: Path
) -> None:
    over = job(next(name), "true", tmp_path)
    one = await submitted(batch, over)
    await until(batch, [one], ended)
    down = room.without_scheduler(tmp_path)
    assert (await down.outcome([one]))[one].state is BatchState.UNKNOWN
    with pytest.raises(Transient):
        await down.find([over.name])
    with pytest.raises(Transient):
        await down.cancel([one])


async def test_many_jobs_are_asked_for_by_few_commands(batch: BatchSystem, room: BatchRoom) -> None:
    before = room.commands
    found = await batch.outcome([str(987000000 + one) for one in range(400)])
    assert len(found) == 400
    assert room.commands - before <= 6
