"""Results of earlier runs are reused: real Temporal, real store, a real pilot that runs real processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.live.run_site import TENANT
from tests.live.test_run_files import FileSite, file_site

pytestmark = pytest.mark.live

FLOW = """
forestay: 1
name: reused
reuse: true
tasks:
  count:
    scatter: {file: {files: "in/*.txt"}}
    inputs: {in.txt: "${file}"}
    run: wc -c < in.txt > out.txt
    outputs: {out: out.txt}
  double:
    scatter: {count: "${tasks.count.outputs.out}"}
    inputs: {in.txt: "${count}"}
    run: echo $(( 2 * $(cat in.txt) )) > out.txt
    outputs: {out: out.txt}
  all:
    inputs: {parts: "${tasks.double.outputs.out}"}
    run: printf '{"sum":%s}' "$(cat parts/* | awk '{s+=$1} END {print s}')" > sum.json
    result: sum.json
  tell: {command: [echo, told], effects: external, after: [all]}
outputs: {sum: "${tasks.all.result.sum}"}
"""


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FileSite]:
    async with file_site("sqlite", tmp_path_factory.mktemp("reused"), relay_patience=0.2) as running:
        yield running


async def jobs(site: FileSite, run: str) -> dict[str, dict[str, Any]]:
    return {job["name"] + ("" if job["index"] is None else str(job["index"])): job for job in await site.jobs(run)}


async def why(site: FileSite, job: str) -> dict[str, Any]:
    person = site.server.person("viewer", tenant=TENANT)
    answer: dict[str, Any] = (await person.get(f"/v1/jobs/{job}/why-run")).json()
    return answer


async def forecast(site: FileSite) -> dict[str, tuple[int, int, int]]:
    """What a dry run says: jobs of each task that would be reused, that would run, and that are open."""
    person = site.server.person("submitter", tenant=TENANT)
    answer = (await person.post("/v1/runs/dry-run", json={"text": FLOW})).json()
    return {
        task["name"]: (task["reuse"]["reused"], task["reuse"]["run"], task["reuse"]["open"]) for task in answer["tasks"]
    }


async def test_only_the_line_of_the_file_that_changed_runs_again(site: FileSite) -> None:
    folder = site.folder / "in"
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.txt").write_text(name)
    first = await site.start(FLOW)
    assert (await site.result(first))["outputs"] == {"sum": 6}

    assert await forecast(site) == {"count": (3, 0, 0), "double": (3, 0, 0), "all": (1, 0, 0), "tell": (0, 1, 0)}
    second = await site.start(FLOW)
    assert (await site.result(second))["outputs"] == {"sum": 6}
    before, after = await jobs(site, first), await jobs(site, second)
    reused = {name: (await why(site, job["id"]))["reused"] for name, job in after.items()}
    expected = {name: job["id"] for name, job in before.items()} | {"tell": None}
    assert reused == expected, "all but what acts outside"
    person = site.server.person("viewer", tenant=TENANT)
    story = (await person.get(f"/v1/jobs/{after['count0']['id']}/story")).json()["story"]
    assert story[-1]["words"] == f"The result of job {before['count0']['id']} was reused; nothing was run."

    (folder / "b.txt").write_text("bb")
    assert await forecast(site) == {"count": (2, 1, 0), "double": (2, 0, 1), "all": (0, 0, 1), "tell": (0, 1, 0)}
    third = await site.start(FLOW)
    assert (await site.result(third))["outputs"] == {"sum": 8}
    again = {name: await why(site, job["id"]) for name, job in (await jobs(site, third)).items()}
    assert {name for name, answer in again.items() if answer["reused"] is None} == {"count1", "double1", "all", "tell"}
    assert again["count1"]["differs"] == [f"file {folder / 'b.txt'}", "input in.txt"]
    assert again["count1"]["nearest"] == after["count1"]["id"]
    assert "effects are external" in again["tell"]["why"]


async def test_a_flow_that_does_not_ask_runs_everything(site: FileSite) -> None:
    text = "forestay: 1\nname: plain\ntasks: {only: {run: 'true'}}\n"
    for _ in range(2):
        run = await site.start(text)
        assert (await site.result(run))["outcome"] == "completed"
    answer = await why(site, (await jobs(site, run))["only"]["id"])
    assert (answer["reused"], answer["differs"]) == (None, [])
    assert "reuse: true" in answer["why"]
