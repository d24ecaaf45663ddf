"""Python flows as runs on a real Temporal and a real store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.live.run_site import BAD, GOOD, RunSite, run_site
from tests.unit.apps.server.running import until

from forestay.adapters.temporal import flow_engine
from forestay.domain.flows.events import VerbKind
from forestay.ports.errors import NotFound

pytestmark = pytest.mark.live

SOURCE = '''
import time
from forestay.flows import JobFailed, checkpoint, files, flow, gather, job, lines, restored, scatter

@flow
async def chain(n: int = 2):
    """One after the other."""
    for number in range(n):
        await job("step", ["echo", str(number)])
    return {"done": n}

@flow
async def wide():
    first = await job("first", "echo $HOME ${HOME}")
    left, right = await gather(job("left", ["l"]), job("right", ["r"]))
    return [first.exit_code, left.task, right.task]

@flow
async def caught():
    try:
        await job("bad", ["x"])
    except JobFailed as error:
        await job("instead", ["y"])
        return {"task": error.task, "code": error.exit_code}

@flow
async def uncaught():
    await job("done", ["x"], compensate=["undo"])
    await job("bad", ["x"])

@flow
async def forgotten():
    job("bad", ["x"])

@flow
async def many(n: int):
    all = await scatter("many", ["x", "${at}"], {"at": range(n)}, tolerate=1)
    return {"count": all.count, "well": all.well, "bad": all.bad}

@flow
async def long(rounds: int):
    at = restored({"round": 0})
    while at["round"] < rounds:
        await job("step", ["x"])
        at = {"round": at["round"] + 1}
        await checkpoint(at)
    return at

@flow
async def endless(rounds: int):
    for _ in range(rounds):
        await job("step", ["x"])

@flow
async def clock():
    await job("step", ["x"])
    time.sleep(1)

@flow
async def reader():
    open("/etc/passwd")

@flow
async def listed():
    """Over what lies in the shared folder when the task begins, and over the lines of a file there."""
    raw = await scatter("raw", ["cat", "${file}"], {"file": files("*.raw")})
    samples = await scatter("samples", ["look", "${name}"], {"name": lines("samples.txt")})
    return [raw.count, samples.count]

@flow
async def held():
    await job("held", ["x"], when_failed="hold")
    await job("last", ["x"])
'''


def line_of(text: str) -> int:
    """The last line of the source that has this text."""
    return max(number for number, line in enumerate(SOURCE.splitlines(), 1) if text in line)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[RunSite]:
    async with run_site("sqlite", tmp_path, flows=tmp_path) as site:
        yield site


async def test_jobs_one_after_the_other(site: RunSite) -> None:
    run = await site.start_python(SOURCE, "chain", n=3)
    end = await site.result(run)
    assert end == {"outcome": "completed", "outputs": {"done": 3}, "reason": ""}
    assert site.ran == ["step", "step-2", "step-3"]
    assert await site.tasks(run) == {"step": "completed", "step-2": "completed", "step-3": "completed"}


async def test_side_by_side(site: RunSite) -> None:
    run = await site.start_python(SOURCE, "wide")
    assert (await site.result(run))["outputs"] == {"result": [0, "left", "right"]}
    state = await site.engine.state(run)
    assert {instance["id"]: instance["after"] for instance in state["instances"]} == {
        "first": [],
        "left": ["first"],
        "right": ["first"],
    }


async def test_a_failed_job_is_an_exception(site: RunSite) -> None:
    site.fate = lambda claim: BAD if claim["name"] == "bad" else GOOD
    run = await site.start_python(SOURCE, "caught")
    assert await site.result(run) == {"outcome": "completed", "outputs": {"task": "bad", "code": 1}, "reason": ""}
    assert site.ran == ["bad", "instead"]


async def test_uncaught_it_fails_the_run_which_is_compensated(site: RunSite) -> None:
    site.fate = lambda claim: BAD if claim["name"] == "bad" else GOOD
    run = await site.start_python(SOURCE, "uncaught")
    end = await site.result(run)
    assert end["outcome"] == "failed"
    assert end["reason"].startswith(f"flows.py, line {line_of('undo') + 1}: bad: job ")
    assert site.ran == ["done", "bad", "done"]
    assert (await site.engine.describe(run)).state == "failed"


async def test_a_failure_that_nobody_awaits_is_not_lost(site: RunSite) -> None:
    site.fate = lambda _claim: BAD
    run = await site.start_python(SOURCE, "forgotten")
    end = await site.result(run)
    assert end["outcome"] == "failed"
    assert "bad: job " in end["reason"]


@pytest.mark.parametrize("n", [7, 600])
async def test_a_scatter_and_its_shards(site: RunSite, n: int) -> None:
    site.fate = lambda claim: BAD if claim["index"] == 3 else GOOD
    run = await site.start_python(SOURCE, "many", n=n)
    assert (await site.result(run))["outputs"] == {"count": n, "well": n - 1, "bad": 1}
    assert len(site.ran) == n


async def test_what_is_not_for_flows_is_said_with_its_line(site: RunSite) -> None:
    clock = await site.start_python(SOURCE, "clock")
    reader = await site.start_python(SOURCE, "reader")
    text = "is not allowed in flows: a flow must behave the same in every replay; do it in a job"
    assert (await site.result(clock))["reason"] == f"flows.py, line {line_of('time.sleep')}: time.sleep {text}"
    assert (await site.result(reader))["reason"] == f"flows.py, line {line_of('open(')}: open() {text}"


async def test_a_task_held_for_a_person_goes_on_by_a_verb(site: RunSite) -> None:
    site.fate = lambda _claim: BAD
    run = await site.start_python(SOURCE, "held")
    await site.task_is(run, "held", "faulted")
    site.fate = lambda _claim: GOOD
    assert (await site.verb(run, VerbKind.REDO, "held")).accepted
    assert (await site.result(run))["outcome"] == "completed"
    assert site.ran == ["held", "held", "last"]


async def test_a_run_is_suspended_continued_and_removed(site: RunSite) -> None:
    site.hold_back = lambda _claim: True
    run = await site.start_python(SOURCE, "chain", n=2)
    await site.task_is(run, "step", "running")
    assert (await site.verb(run, VerbKind.SUSPEND, holder="eve")).accepted

    async def kept() -> bool:
        return len(site.kept) == 1

    await until(kept, "the claim")
    await site.let_go()
    assert (await site.verb(run, VerbKind.CONTINUE, holder="eve")).accepted
    await site.task_is(run, "step-2", "running")
    refused = await site.verb(run, VerbKind.REDO, "step")  # while the run is sure to be there
    assert not refused.accepted
    await until(kept, "the claim of the second step")
    await site.let_go()
    await site.ended(run)

    site.hold_back = lambda _claim: True
    run = await site.start_python(SOURCE, "chain", n=2)
    await site.task_is(run, "step", "running")
    assert (await site.verb(run, VerbKind.REMOVE)).accepted
    assert (await site.result(run))["outcome"] == "removed"


async def test_a_removed_task_is_an_exception(site: RunSite) -> None:
    site.hold_back = lambda claim: claim["name"] == "bad"
    run = await site.start_python(SOURCE, "caught")
    await site.task_is(run, "bad", "running")
    assert (await site.verb(run, VerbKind.REMOVE, "bad")).accepted
    assert (await site.result(run))["outputs"] == {"task": "bad", "code": None}


@pytest.fixture
async def short(tmp_path: Path) -> AsyncIterator[RunSite]:
    """A site on which histories are short."""
    async with run_site("sqlite", tmp_path, flows=tmp_path, history_limit=30) as site:
        yield site


async def test_a_long_loop_continues_as_new_at_its_checkpoints(short: RunSite) -> None:
    run = await short.start_python(SOURCE, "long", rounds=12)
    assert (await short.result(run))["outputs"] == {"round": 12}
    assert short.ran == ["step", *(f"step-{number}" for number in range(2, 13))]
    assert await short.runs(run) > 1


async def test_without_a_checkpoint_a_long_loop_is_refused(short: RunSite) -> None:
    run = await short.start_python(SOURCE, "endless", rounds=50)
    end = await short.result(run)
    assert end["outcome"] == "failed"
    assert end["reason"].startswith("its history has more than 60 events: call 'await checkpoint(state)'")


async def test_a_scatter_over_files_and_over_lines(tmp_path: Path) -> None:
    shared, flows = tmp_path / "shared", tmp_path / "flows"
    shared.mkdir()
    flows.mkdir()
    for name in ("a.raw", "b.raw", "c.raw", "other"):
        (shared / name).touch()
    (shared / "samples.txt").write_text("ann\nben\n")
    (tmp_path / "state").mkdir()
    async with run_site("sqlite", tmp_path / "state", flows=flows, flow_files=(shared,)) as site:
        results: list[dict[str, Any]] = []

        def note(claim: Mapping[str, Any]) -> dict[str, Any]:
            results.append(claim["parameters"])
            return GOOD

        site.fate = note
        run = await site.start_python(SOURCE, "listed")
        assert (await site.result(run))["outputs"] == {"result": [3, 2]}
    assert sorted(Path(result["file"]).name for result in results if "file" in result) == ["a.raw", "b.raw", "c.raw"]
    assert sorted(result["name"] for result in results if "name" in result) == ["ann", "ben"]


@pytest.mark.finding("F-G1")
async def test_a_verb_that_meets_the_end_of_a_run_is_taken_or_finds_it_ended(
    site: RunSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporal drops updates whose workflow task fails because a signal came while the run completed; nobody should hear of that."""
    # Forty updates and signals at once may take longer than a person waits, on a busy machine.
    monkeypatch.setattr(flow_engine, "ANSWER", timedelta(seconds=60))
    for _ in range(5):
        site.hold_back = lambda _claim: True
        run = await site.start_python(SOURCE, "chain", n=1)
        await site.kept_some()

        async def steer(run: str = run) -> None:
            with suppress(NotFound):
                for _ in range(10):
                    assert not (await site.verb(run, VerbKind.REDO, "nothing")).accepted

        async def signal(run: str = run) -> None:
            with suppress(NotFound):
                for _ in range(20):
                    await site.engine.tell_run(run, ())

        await asyncio.gather(site.let_go(), steer(), steer(), signal(), signal())
        await site.ended(run)
