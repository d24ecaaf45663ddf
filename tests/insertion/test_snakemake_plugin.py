"""The same flow by the real Snakemake with our executor plugin: a pilot runs its jobs, and what fails for want of memory is mended by a rule."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.insertion.shell import ROOT, VERSIONS
from tests.server.fixtures import local, tenant
from tests.server.running import RunningServer

__all__ = ["local", "tenant"]
pytestmark = [pytest.mark.live, pytest.mark.alone]

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
    resources: mem_mb=100, runtime=5, disk_mb=10
    shell: "cat {input} > {output}"
"""


@pytest.fixture
async def pilot(local: RunningServer, tenant: str, tmp_path: Path) -> AsyncIterator[None]:
    """One that runs two jobs at a time."""
    known = dict(os.environ) | {"HOLDFAST_ENROL_TOKEN": local.domain.token("enrol", tenant=tenant)}
    words = [
        "--server",
        local.url,
        "--outputs",
        str(tmp_path / "outputs"),
        "--work",
        str(tmp_path / "work"),
        "--slots",
        "2",
    ]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast_pilot", *words, env=known, stderr=asyncio.subprocess.DEVNULL
    )
    yield
    process.terminate()
    await process.wait()


def snakemake(folder: Path, local: RunningServer, token: str, *more: str) -> subprocess.CompletedProcess[str]:
    place = folder / "token"
    place.write_text(token)
    place.chmod(0o600)
    words = [
        "uv", "tool", "run", "--quiet", "--from", f"snakemake=={VERSIONS['SNAKEMAKE_VERSION']}", "--with-editable", str(ROOT),
        "--with-editable", str(ROOT / "plugins" / "snakemake-executor-plugin-holdfast"), "snakemake", "--executor", "holdfast",
        "--holdfast-server", local.url, "--holdfast-token-file", str(place), "--jobs", "4", "--latency-wait", "10",
        "--seconds-between-status-checks", "1", *more,
    ]  # fmt: skip
    known = dict(os.environ) | {"SECRET_WORD": "open sesame"}
    return subprocess.run(words, cwd=folder, env=known, capture_output=True, text=True, timeout=400, check=False)


@pytest.mark.usefixtures("pilot")
async def test_a_flow_runs_on_pilots_and_its_variables_are_in_no_document(
    local: RunningServer, tenant: str, tmp_path: Path
) -> None:
    (tmp_path / "Snakefile").write_text(FLOW)
    token = local.domain.token("submitter", tenant=tenant)
    ran = await asyncio.to_thread(snakemake, tmp_path, local, token)
    person = local.person("viewer", tenant=tenant)
    jobs: list[dict[str, Any]] = (await person.get("/v1/jobs")).json()["jobs"]
    logs = [(await person.get(f"/v1/jobs/{job['id']}/log")).text for job in jobs]
    assert ran.returncode == 0, "\n".join([ran.stderr[-2000:], *logs])
    assert sorted((tmp_path / "out" / "merged.txt").read_text().split()) == ["1", "2", "3"]
    assert sorted(job["name"] for job in jobs) == ["merge", "part", "part", "part"]
    assert {job["state"] for job in jobs} == {"completed"}
    assert jobs[0]["resources"]["memory"] == 100_000_000
    for job in jobs:
        told = await person.get(f"/v1/jobs/{job['id']}/specification")
        assert "sesame" not in told.text


@pytest.mark.usefixtures("pilot")
async def test_what_fails_for_good_is_told_with_where_to_look(
    local: RunningServer, tenant: str, tmp_path: Path
) -> None:
    (tmp_path / "Snakefile").write_text(
        'rule all:\n    output: "never.txt"\n    resources: mem_mb=100, disk_mb=10\n    shell: "exit 3"\n'
    )
    ran = await asyncio.to_thread(snakemake, tmp_path, local, local.domain.token("submitter", tenant=tenant))
    assert ran.returncode == 1
    assert "holdfast explain" in ran.stderr


def test_without_a_server_it_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text('rule all:\n    output: "x"\n    shell: "touch {output}"\n')
    places = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("CONFIG", "STATE")}
    words = [
        "uv",
        "tool",
        "run",
        "--quiet",
        "--from",
        f"snakemake=={VERSIONS['SNAKEMAKE_VERSION']}",
        "--with",
        str(ROOT),
    ]
    words += ["--with-editable", str(ROOT / "plugins" / "snakemake-executor-plugin-holdfast"), "snakemake", "--executor", "holdfast", "--jobs", "1"]  # fmt: skip
    bare = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    ran = subprocess.run(
        words, cwd=tmp_path, env=bare | places, capture_output=True, text=True, timeout=200, check=False
    )
    assert ran.returncode == 1
    assert "no Holdfast server is known" in ran.stderr + ran.stdout
    assert shutil.which("uv")
