"""The real Snakemake with our executor plugin on a real server and a real pilot: what it asks, what it tells, and what it finds again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.insertion.snakemake_room import FlowFolder, snakemake, wait_for_line
from tests.unit.apps.server.fixtures import local, tenant
from tests.unit.apps.server.running import RunningServer, until

__all__ = ["local", "snakemake", "tenant"]
pytestmark = [pytest.mark.live, pytest.mark.pair]

FLOW = """
envvars: "SECRET_WORD"
rule all:
    input: "out/merged.txt"
rule part:
    output: "out/part{n}.txt"
    resources: mem_mb=100, runtime=5, disk_mb=10
    shell: 'test "$SECRET_WORD" = "open sesame" && echo {wildcards.n} > {output}'
rule merge:
    input: expand("out/part{n}.txt", n=[1, 2, 3])
    output: "out/merged.txt"
    threads: 2
    resources: mem_mb=100, runtime=5, disk_mb=10
    shell: "cat {input} > {output}"
"""
GROUPED = """
rule all:
    input: "out/merged.txt"
rule part:
    output: "out/part{n}.txt"
    group: "both"
    resources: mem_mb=100, runtime=5, disk_mb=10
    shell: "echo {wildcards.n} > {output}"
rule merge:
    input: expand("out/part{n}.txt", n=[1, 2])
    output: "out/merged.txt"
    group: "both"
    resources: mem_mb=100, runtime=5, disk_mb=10
    shell: "cat {input} > {output}"
"""
LONG = """
rule all:
    input: "out/slow.txt", "out/quick.txt"
rule slow:
    output: "out/slow.txt"
    resources: mem_mb=100, disk_mb=10
    shell: 'echo begun >> slow.runs; while ! test -e go; do sleep 0.1; done; echo done > {output}'
rule quick:
    output: "out/quick.txt"
    resources: mem_mb=100, disk_mb=10
    shell: 'echo begun >> quick.runs; while ! test -e go-quick; do sleep 0.1; done; echo done > {output}'
"""


@pytest.fixture
async def pilot(local: RunningServer, tenant: str, tmp_path: Path) -> AsyncIterator[None]:
    """One that runs two jobs at a time."""
    known = dict(os.environ) | {"FORESTAY_ENROL_TOKEN": local.domain.token("enrol", tenant=tenant)}
    words = ["--server", local.url, "--outputs", str(tmp_path / "outputs"), "--work", str(tmp_path / "work")]
    words += ["--slots", "2", "--grace", "1"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "forestay_pilot", *words, env=known, stderr=asyncio.subprocess.DEVNULL
    )
    yield
    process.terminate()
    process.terminate()
    await process.wait()


@pytest.fixture
def flow(snakemake: Path, local: RunningServer, tenant: str, tmp_path: Path) -> Iterator[FlowFolder]:
    folder = tmp_path / "flow"
    folder.mkdir()
    token = local.domain.token("submitter", tenant=tenant)
    flow = FlowFolder(snakemake, folder, local.url, token, {"SECRET_WORD": "open sesame"})
    yield flow
    flow.close()


async def jobs_of(local: RunningServer, tenant: str) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = (await local.person("viewer", tenant=tenant).get("/v1/jobs")).json()["jobs"]
    return jobs


@pytest.mark.usefixtures("pilot")
async def test_a_flow_runs_on_pilots_with_one_question_a_look_and_its_variables_in_no_document(
    local: RunningServer, tenant: str, flow: FlowFolder
) -> None:
    asked: list[tuple[str, str]] = []

    async def counted(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and dict(scope["headers"]).get(b"user-agent") == b"forestay-client":
            asked.append((scope["method"], scope["path"]))
        await plain(scope, receive, send)

    config = local._uvicorn.config
    plain = config.loaded_app
    config.loaded_app = counted
    flow.holds(FLOW)
    began = time.monotonic()
    try:
        run = await asyncio.to_thread(flow.run)
    finally:
        config.loaded_app = plain
    person = local.person("viewer", tenant=tenant)
    jobs = await jobs_of(local, tenant)
    logs = [(await person.get(f"/v1/jobs/{job['id']}/log")).text for job in jobs]
    assert run.process.returncode == 0, "\n".join([run.said[-2000:], *logs])
    flow.well(run, "1", "2", "3")
    assert sorted(job["name"] for job in jobs) == ["merge", "part", "part", "part"]
    assert {job["state"] for job in jobs} == {"completed"}
    (merge,) = [job for job in jobs if job["name"] == "merge"]
    assert merge["resources"] == {"cpus": 2, "memory": 100_000_000, "disk": 10_000_000, "gpus": 0, "wall": 300}
    assert {job["labels"]["snakemake-wildcards"] for job in jobs} == {"n=1", "n=2", "n=3", ""}
    for job in jobs:
        response = await person.get(f"/v1/jobs/{job['id']}/specification")
        assert "sesame" not in response.text
    assert [pair for pair in asked if pair[0] == "POST"] == [("POST", "/v1/jobs")] * 4
    looks = [path for method, path in asked if method == "GET"]
    assert set(looks) == {"/v1/jobs"}, "nothing is asked of a single job"
    assert len(looks) <= time.monotonic() - began + 2, "one question a second for all of them, and one at the start"


@pytest.mark.slow
@pytest.mark.usefixtures("pilot")
async def test_a_group_is_one_job(local: RunningServer, tenant: str, flow: FlowFolder) -> None:
    flow.holds(GROUPED)
    run = await asyncio.to_thread(flow.run)
    flow.well(run)
    (job,) = await jobs_of(local, tenant)
    assert job["name"].startswith("both"), job["name"]


@pytest.mark.usefixtures("pilot")
async def test_what_fails_for_good_is_told_with_its_cause_what_was_done_and_its_log(
    local: RunningServer, tenant: str, flow: FlowFolder
) -> None:
    flow.holds(
        'rule all:\n    output: "never.txt"\n    resources: mem_mb=100, disk_mb=10\n'
        "    shell: \"echo ModuleNotFoundError: No module named 'numpy' >&2; exit 3\"\n"
    )
    run = await asyncio.to_thread(flow.run)
    assert run.process.returncode == 1
    (job,) = await jobs_of(local, tenant)
    assert f"Forestay job {job['id']} is failed after 1 attempt: exit code" in run.said
    assert "Cause: code." in run.said
    assert "Done: fail by " in run.said
    assert f"{local.url}/v1/incidents/" in run.said
    assert f"forestay explain {job['id']}" in run.said
    (log,) = (flow.folder / ".snakemake" / "forestay_logs").iterdir()
    assert str(log.relative_to(flow.folder)) in run.said
    assert "No module named 'numpy'" in log.read_text()


@pytest.mark.usefixtures("pilot")
async def test_after_snakemake_was_killed_its_jobs_are_found_again_and_none_runs_twice(
    local: RunningServer, tenant: str, flow: FlowFolder
) -> None:
    flow.holds(LONG)
    first = await asyncio.to_thread(flow.start)
    for name in ("slow", "quick"):
        await asyncio.to_thread(wait_for_line, flow.folder / f"{name}.runs", "begun")
    first.kill()
    (flow.folder / "go-quick").touch()  # it ends while nobody looks

    async def quick_is_done() -> bool:
        return any(job["state"] == "completed" for job in await jobs_of(local, tenant))

    await until(quick_is_done, "the job that ends while nobody looks")
    flow.unlock()
    second = await asyncio.to_thread(flow.start, "--rerun-incomplete")
    await asyncio.to_thread(wait_for_line, second.log, "is on Forestay from an earlier run")
    (flow.folder / "go").touch()
    assert await asyncio.to_thread(second.ended) == 0, second.said
    for name in ("slow", "quick"):
        assert (flow.folder / f"{name}.runs").read_text().split() == ["begun"], f"{name} ran once"
    assert len(await jobs_of(local, tenant)) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("pilot")
async def test_an_earlier_job_that_does_other_work_is_stopped_before_its_outputs_are_made_anew(
    local: RunningServer, tenant: str, flow: FlowFolder
) -> None:
    flow.holds(LONG)
    first = await asyncio.to_thread(flow.start, "out/slow.txt")
    await asyncio.to_thread(wait_for_line, flow.folder / "slow.runs", "begun")
    first.kill()
    (old,) = await jobs_of(local, tenant)
    flow.unlock()
    flow.holds(LONG.replace("echo begun >> slow.runs; while ! test -e go; do sleep 0.1; done; ", ""))
    second = await asyncio.to_thread(flow.run, "--rerun-incomplete", "out/slow.txt")
    assert second.process.returncode == 0, second.said
    assert f"job {old['id']} of an earlier run makes the outputs of slow otherwise: cancelled" in second.said
    states = {job["id"]: job["state"] for job in await jobs_of(local, tenant)}
    assert states.pop(old["id"]) == "cancelled"
    assert list(states.values()) == ["completed"]
    story = (await local.person("viewer", tenant=tenant).get(f"/v1/jobs/{old['id']}/story")).json()
    assert story["evidence"], "it was known to have stopped"


@pytest.mark.slow
@pytest.mark.usefixtures("pilot")
async def test_who_stops_snakemake_stops_its_jobs(local: RunningServer, tenant: str, flow: FlowFolder) -> None:
    flow.holds(LONG)
    run = await asyncio.to_thread(flow.start)
    for name in ("slow", "quick"):
        await asyncio.to_thread(wait_for_line, flow.folder / f"{name}.runs", "begun")
    run.interrupt()
    assert await asyncio.to_thread(run.ended) == 1
    assert {job["state"] for job in await jobs_of(local, tenant)} == {"cancelled"}


def test_without_a_server_it_says_what_to_do(snakemake: Path, tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text('rule all:\n    output: "x"\n    shell: "touch {output}"\n')
    places = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CONFIG", "STATE")}
    bare = {key: value for key, value in os.environ.items() if "FORESTAY_" not in key}
    words = [str(snakemake), "--executor", "forestay", "--jobs", "1"]
    ran = subprocess.run(
        words, cwd=tmp_path, env=bare | places, capture_output=True, text=True, timeout=200, check=False
    )
    assert ran.returncode == 1
    assert "no Forestay server is known" in ran.stderr + ran.stdout
