"""An unmodified pipeline, run by the real Nextflow with its own Slurm executor on the real Slurm, through the shim.

Without the shim Nextflow waits for minutes for the exit code that a killed job never wrote, and fails. Nextflow comes from its own jars, which takes minutes
the first time: `just insertion` runs this.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.insertion.shell import MORE, VERSIONS, incidents, shell
from tests.server.fixtures import local, tenant
from tests.server.running import RunningServer
from tests.server.test_engines import add_rule

__all__ = ["local", "tenant"]
pytestmark = [pytest.mark.live, pytest.mark.alone, pytest.mark.slow]

OPENED = ["lang", "io", "nio", "net", "util", "util.concurrent.locks", "util.concurrent.atomic", "util.regex"]
MORE_OPENED = ["sun.nio.ch", "sun.nio.fs", "sun.net.www.protocol.http", "sun.net.www.protocol.https", "sun.net.www.protocol.ftp", "sun.net.www.protocol.file", "jdk.internal.misc", "jdk.internal.vm"]  # fmt: skip
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>tests</groupId><artifactId>nextflow-jars</artifactId><version>1</version>
<dependencies><dependency><groupId>io.nextflow</groupId><artifactId>nextflow</artifactId><version>{version}</version></dependency></dependencies></project>
"""
CONFIG = """
process.executor = 'slurm'
executor.pollInterval = '1 sec'
executor.queueStatInterval = '2 sec'
"""


@pytest.fixture(scope="session")
def nextflow() -> list[str]:
    """The command; its jars are kept."""
    version = VERSIONS["NEXTFLOW_VERSION"]
    usual = "/var/cache/holdfast" if os.getuid() == 0 else str(Path.home() / ".cache" / "holdfast")
    jars = Path(os.environ.get("HOLDFAST_CACHE_DIR", usual)) / f"nextflow-{version}"
    if not jars.exists():
        draft = jars.with_suffix(".draft")
        draft.mkdir(parents=True, exist_ok=True)
        (draft / "pom.xml").write_text(POM.format(version=version))
        words = ["mvn", "-q", "-B", "-f", str(draft), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        subprocess.run([*words, f"-DoutputDirectory={draft}"], check=True)
        draft.rename(jars)
    opened = [f"java.base/java.{one}" for one in OPENED] + [f"java.base/{one}" for one in MORE_OPENED]
    flags = [f"--add-opens={one}=ALL-UNNAMED" for one in opened]
    return ["java", *flags, "-Xmx400m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", "nextflow.cli.Launcher"]


async def test_it_survives_jobs_that_are_killed_for_their_memory(
    local: RunningServer, tenant: str, tmp_path: Path, nextflow: list[str]
) -> None:
    await add_rule(local, tenant, MORE)
    shutil.copy(Path(__file__).parent / "main.nf", tmp_path)
    (tmp_path / "nextflow.config").write_text(CONFIG)
    settings = {"NXF_OFFLINE": "true", "NXF_PLUGINS_DEFAULT": "false", "NXF_DISABLE_CHECK_LATEST": "true"}
    settings["NXF_HOME"] = str(tmp_path / "home")
    async with shell(tmp_path, local, tenant) as user:
        ran = await asyncio.to_thread(user.run, *nextflow, "run", "main.nf", "-ansi-log", "false", more=settings)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1000:]
    assert sorted((tmp_path / "out" / "merged.txt").read_text().split()) == ["1", "2"]
    assert "retried" not in ran.stdout
    found = await incidents(local, tenant)
    assert {(one["cause"], one["state"]) for one in found} == {("memory", "complete")}
