"""The two layers of the first paper on a real Slurm: a flow manager that runs BPEL, and below it what submits, watches and fixes JSDL jobs.

The same process and the same job definitions are run twice, once with nothing wrong and once with data and jobs that fail at first. The process is not
changed, has no word about faults in it, and sees the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests import servers
from tests.live.run_site import TENANT, RunSite, run_site
from tests.live.test_site_agent import SETTINGS, slurm
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import until
from tests.unit.bpel.jobs import POLLING, REGISTERED, definition, job_process

from forestay.adapters.private_file import write_private
from forestay.ports.flows.flow_engine import RunStart
from forestay_bpel.formats.bpel import read_bpel

pytestmark = [pytest.mark.live, pytest.mark.pair, pytest.mark.slow]
PATIENCE = 150.0
SETS = '<correlationSets><correlationSet name="job" properties="j:jobId"/></correlationSets>'


@dataclass
class Layers:
    site: RunSite
    person: httpx.AsyncClient

    async def run(self, process: str, jobs: dict[str, str]) -> str:
        read = read_bpel(process, jobs=jobs, mapping=MAPPING)
        assert read.flow is not None, (
            read.other,
            [str(entry) for entry in read.report.entries if entry.fate == "refused"],
        )
        version = await self.site.server.services.components.flows.put_grown(read.flow, tenant=TENANT)
        run = str(uuid4())
        start = RunStart(run, TENANT, "ada", version, read.flow.name, read.flow.as_plain(), {})
        assert await self.site.engine.start(start)
        return run

    async def jobs(self, run: str) -> dict[str, dict[str, Any]]:
        jobs = (await self.person.get("/v1/jobs", params={"run": run})).json()["jobs"]
        return {job["name"]: job for job in jobs}


MAPPING = """
partners:
  jobs:
    run: {kind: run, max_attempts: 100}
    submit: {kind: submit, max_attempts: 5}
    forget: {kind: forget, max_attempts: 5}
"""


@pytest.fixture
async def layers(tmp_path: Path) -> AsyncIterator[Layers]:
    servers.slurm()
    async with (
        run_site("sqlite", tmp_path, pilots=0, outputs=(tmp_path / "outputs",)) as site,
        processes(site.domain, tmp_path, lease=30) as running,
    ):
        write_private(tmp_path / "token", site.domain.token("site", tenant=TENANT))
        limits = "max_pilots = 2"
        text = SETTINGS.format(server=site.server.url, folder=tmp_path, limits=limits, idle_exit=20)
        (tmp_path / "site.toml").write_text(text)
        running._start("site", "--config", str(tmp_path / "site.toml"))
        agent = site.server.person("site", tenant=TENANT)
        try:
            yield Layers(site, site.server.person("operator", tenant=TENANT))
        finally:
            launches = (await agent.get("/v1/sites/hall/launches")).json()["launches"]
            if launches:
                await asyncio.to_thread(slurm, "scancel", "--quiet", *(word for launch in launches for word in ("--name", launch["name"])))  # fmt: skip


def documents(folder: Path) -> tuple[str, dict[str, str]]:
    """The process with the four patterns of submission and data staging, and its jobs."""
    source, target = folder / "numbers", folder / "sum"

    def once(name: str, then: str) -> list[str]:
        mark = folder / f"{name}.mark"
        return ["-c", f"[ -e {mark} ] || {{ touch {mark}; exit 9; }}; {then}"]

    staged = (
        f"<d:DataStaging><d:FileName>in</d:FileName><d:CreationFlag>overwrite</d:CreationFlag><d:Source><d:URI>file://{source}</d:URI></d:Source></d:DataStaging>"
        f"<d:DataStaging><d:FileName>out</d:FileName><d:CreationFlag>overwrite</d:CreationFlag><d:Target><d:URI>file://{target}</d:URI></d:Target></d:DataStaging>"
    )
    jobs = {
        "gather.jsdl": definition("gather", "awk", "{ s += $1 } END { print s }", "in", streams="<p:Output>out</p:Output>", more=staged),
        "first.jsdl": definition("first", "sh", *once("first", "hostname")),
        "second.jsdl": definition("second", "sh", *once("second", "hostname")),
        "clean.jsdl": definition("clean", "sh", "-c", "true"),
    }  # fmt: skip

    def name(text: str, job: str) -> str:
        return text.replace("'first'", f"'{job}'").replace('name="a"', f'name="{job}"')

    def call(operation: str, job: str) -> str:
        return f"<assign><copy><from>'{job}'</from><to>$ask.body</to></copy></assign><invoke name=\"{job}\" partnerLink=\"jobs\" operation=\"{operation}\" inputVariable=\"ask\" outputVariable=\"got\"/>"  # fmt: skip

    body = (
        call("run", "gather")
        + f"<scope>{SETS}<sequence>{name(POLLING, 'first')}</sequence></scope>"
        + f"<scope>{SETS}<sequence>{name(REGISTERED, 'second')}</sequence></scope>"
        + "<assign><copy><from>$got.body</from><to>$ask2.body</to></copy></assign>"
        + call("forget", "clean")
    )
    return job_process(body, state="$ask2.body/j:state", name="layers"), jobs


@pytest.mark.ledger("P0-02")
async def test_the_same_process_with_and_without_faults(layers: Layers, tmp_path: Path) -> None:
    process, jobs = documents(tmp_path)
    marks = [tmp_path / f"{name}.mark" for name in ("first", "second")]
    for mark in marks:
        mark.touch()
    (tmp_path / "numbers").write_text("1\n2\n3\n")
    good = await layers.run(process, jobs)
    await layers.site.ended(good, patience=PATIENCE)
    clean = await layers.site.result(good)
    assert (clean["outcome"], (tmp_path / "sum").read_text()) == ("completed", "6\n"), clean
    done = await layers.jobs(good)
    assert {name: record["attempt"] for name, record in done.items() if name != "clean"} == {
        "gather": 1,
        "first": 1,
        "second": 1,
    }
    assert done["first"]["last"]["host"] in {f"n{number}" for number in range(1, 11)}, "a node of that Slurm"

    for mark in marks:
        mark.unlink()
    (tmp_path / "numbers").unlink()
    (tmp_path / "sum").unlink()
    bad = await layers.run(process, jobs)

    async def tried() -> bool:
        return bool((await layers.jobs(bad)).get("gather", {"attempt": 0})["attempt"] >= 2)

    await until(tried, "the data to be missed", PATIENCE)
    (tmp_path / "numbers").write_text("1\n2\n3\n")
    await layers.site.ended(bad, patience=PATIENCE)
    recovered = await layers.site.result(bad)
    assert recovered == clean
    assert (tmp_path / "sum").read_text() == "6\n"
    again = await layers.jobs(bad)
    assert again["gather"]["attempt"] >= 2, "re-staged"
    assert (again["first"]["attempt"], again["second"]["attempt"]) == (2, 2), (
        "re-submitted, polled and told under the same id"
    )
