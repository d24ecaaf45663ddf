"""`forestay demo --auto` as a visitor starts it, on a real Temporal: every act comes out as promised, and the figures of its report are those of the store that it leaves.

It costs between one and two minutes of processor time: twelve processes are started, and two of them again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.live.laptop import FORESTAY
from tests.servers import address

from forestay.adapters.sql.job_store import SqlJobStore
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.ports.jobs.job_store import JobQuery

pytestmark = [pytest.mark.live, pytest.mark.pair]

PAPERS = ["P3", "P4", "P0", "P1", "P2"]
PATIENCE = 1800


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a demonstration that was played to its end, with its report and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    own = {name: value for name, value in os.environ.items() if not name.startswith("FORESTAY_")}
    environment = own | {"FORESTAY_TEMPORAL_PROGRAM": address("FORESTAY_TEST_TEMPORAL_PROGRAM")}
    words = [*FORESTAY, "demo", "--auto", "--report", str(folder / "report.html"), "--keep", str(folder / "kept")]
    ended = subprocess.run(
        words, env=environment, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 0, (ended.stdout, ended.stderr[-4000:])
    (folder / "printed").write_text(ended.stdout)
    return folder


def acts(folder: Path) -> dict[str, dict[str, Any]]:
    """What the report says of each act, by its paper."""
    page = (folder / "report.html").read_text()
    (data,) = re.findall(r'<script type="application/json" id="figures">(.*?)</script>', page, re.DOTALL)
    return {act["paper"]: act for act in json.loads(data)}


def figures(act: dict[str, Any]) -> dict[str, Any]:
    return {figure["name"]: figure["value"] for figure in act["figures"]}


def of_runs(act: dict[str, Any]) -> JobQuery:
    """The jobs of an act's runs."""
    return JobQuery(anyof={"run": act["runs"]})


async def stored(folder: Path, query: JobQuery) -> Sequence[JobDocument]:
    store = SqlJobStore(f"sqlite:///{folder / 'kept' / 'forestay.db'}")
    await store.open()
    try:
        page = await store.search(query, limit=1000)
    finally:
        await store.close()
    return [stored_job.document for stored_job in page.jobs]


def test_every_act_comes_out_as_promised(folder: Path) -> None:
    assert [(paper, act["problem"]) for paper, act in acts(folder).items()] == [(paper, "") for paper in PAPERS]
    printed = (folder / "printed").read_text()
    assert [line[:2] for line in printed.splitlines() if re.match(r"P\d ", line)] == PAPERS


async def test_the_counter_of_the_kills_is_that_of_the_store(folder: Path) -> None:
    act = acts(folder)["P4"]
    shown, jobs = figures(act), await stored(folder, of_runs(act))
    assert shown["jobs accepted"] == len(jobs) == sum(job.state is State.COMPLETED for job in jobs)
    assert shown["extra attempts"] == sum(job.attempt - 1 for job in jobs) > 0
    assert shown["of them recorded with their reason"] == shown["extra attempts"]
    assert shown["lost"] == shown["published twice"] == shown["of them unknown to the documents"] == 0
    # What the payloads noted themselves, which nobody of Forestay reads.
    starts = (folder / "kept" / "starts").read_text().splitlines()
    assert shown["starts of payloads"] == len(starts) == len(set(starts))
    assert {line.split()[0] for line in starts} == {job.id for job in jobs}


async def test_the_figures_of_caches_and_patterns_are_those_of_the_store(folder: Path) -> None:
    act = acts(folder)["P3"]
    shown, jobs = figures(act), await stored(folder, of_runs(act))
    ends = [job.last for job in jobs if job.last is not None]
    assert shown["jobs completed"] == len(ends) == len(jobs) == 31
    assert shown["bytes of inputs staged"] == sum(end.input_bytes or 0 for end in ends)
    for host in ("alba", "brio", "cima"):
        assert shown[f"of them on host {host}"] == sum(end.host == host for end in ends) > 0
    act = acts(folder)["P0"]
    (fit,) = [job for job in await stored(folder, of_runs(act)) if job.name == "fit-model"]
    shown = figures(act)
    assert (shown["bytes of memory at last"], shown["attempts of that job"]) == (fit.resources.memory, fit.attempt)
    assert shown["bytes of memory at first"] < fit.resources.memory


async def test_what_a_lost_domain_had_begun_ran_here(folder: Path) -> None:
    act = acts(folder)["P0"]
    shown = figures(act)
    lines = [line.split(" ", 1) for line in (folder / "kept" / "nights").read_text().splitlines()]
    there = {night for night, where in lines if where.startswith(f"{folder / 'kept' / 'south'}/")}
    here = {night for night, where in lines if not where.startswith(f"{folder / 'kept' / 'south'}/")}
    assert shown["sub-flows"] == len(there | here) == 16
    assert shown["of them begun in the other domain"] == len(there)
    assert shown["of those run again here when it was lost"] == len(there & here) > 0
    page = (folder / "report.html").read_text()
    jobs = await stored(folder, JobQuery(anyof={"name": ["read-run", "fit-model", "night"]}))
    assert [int(count) for count in re.findall(r"claim × (\d+)", page)] == [sum(job.attempt for job in jobs)]
    assert shown["jobs of sub-flows completed here"] == len(here) == sum(job.name == "night" for job in jobs)


def test_nothing_is_left_running(folder: Path) -> None:
    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path)]
    assert not [words for words in running if str(folder / "kept").encode() in words]


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True
