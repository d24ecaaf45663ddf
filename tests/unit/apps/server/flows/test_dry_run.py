"""A dry run over HTTP, on a server that has no Temporal: it tells what would run, to those who may run it, and stores nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.apps.server.asks import problem
from tests.unit.apps.server.running import Domain
from tests.unit.apps.server.store_room import store_room

from forestay.apps.cli.flows.dry_run import dry_run_lines

FLOW = """
forestay: 1
name: nightly
reuse: true
params: {day: null, deep: /nowhere/a/folder/whose/name/is/so/long/that/no/line/of/a/hundred/columns/could/ever/hold/it/without/a/break/in/it}
tasks:
  align:
    scatter: {sample: {files: "*.fq"}}
    command: [align, "${sample}"]
    inputs: {reads: "${sample}", genome: "/nowhere/${params.day}.fa"}
    resources: {cpus: 4, memory: 30 GiB, wall: 2 h}
    max_attempts: 3
  collect:
    command: [collect]
    after: [align]
    inputs: {table: "${params.deep}/table.csv"}
    when: "tasks.align.well > 2"
  report: {command: [report], when: "params.day == 'sunday'", after: [collect]}
"""


@pytest.fixture
async def domain(tmp_path: Path) -> Any:
    shared = tmp_path / "shared"
    shared.mkdir()
    for name in ("a", "b"):
        (shared / f"{name}.fq").write_text(name)
    async with store_room("sqlite", tmp_path / "state") as url:
        yield Domain(url, tmp_path / "state", {"flow_files": (shared, Path("/nowhere"))})


async def test_what_a_run_would_do(domain: Domain) -> None:
    async with domain.server() as server:
        person = server.person("submitter", tenant="lab")
        answer = await person.post("/v1/runs/dry-run", json={"text": FLOW, "params": {"day": "monday"}})
        assert answer.status_code == 200, answer.text
        forecast = answer.json()
        assert [(task["name"], task["jobs"], task["runs"]) for task in forecast["tasks"]] == [
            ("align", 2, True), ("collect", 1, None), ("report", 1, False),
        ]  # fmt: skip
        assert (forecast["problems"], forecast["jobs"], forecast["missing"]) == ([], 3, 2)
        assert forecast["tasks"][0]["inputs"]["missing"] == ["/nowhere/monday.fa"]
        assert forecast["tasks"][0]["resources"] == {
            "cpus": 4,
            "memory": 30 << 30,
            "disk": 0,
            "gpus": 0,
            "wall": 7200,
            "nodes": 1,
        }
        assert problem(await person.get(f"/v1/flows/{forecast['version']}"), 404), "the flow was not stored"

        lines = list(dry_run_lines(forecast, 100))
        assert max(map(len, lines)) <= 100, lines
        text = "\n".join(lines)
        for words in (
            "nightly: 3 tasks, 3 jobs. Nothing was started.", "align: missing inputs: /nowhere/monday.fa",
            "report: skipped; its condition does not hold: params.day == 'sunday'",
            "collect: runs only if tasks.align.well > 2", "collect: missing inputs:",
            "align: would run: the content of genome is not known before the job runs",
            "Rules: none", "infrastructure failures are retried 4 times",
        ):  # fmt: skip
            assert words in text, text
        assert lines[2].split() == ["align", "-", "2", "4", "30G", "2", "h", "3", "0"]


async def test_rules_that_would_be_asked_and_who_holds_the_flow(domain: Domain) -> None:
    async with domain.server() as server:
        operator = server.person("operator", "submitter", tenant="lab")
        version = (await operator.post("/v1/flows", json={"text": FLOW})).json()["version"]
        rule = {
            "type": "abort", "task": "align", "condition": 'cause == "memory"', "reference_incident": "i1",
            "context": {"cause": "memory"}, "conclusion": {"steps": [{"action": "hold"}]},
        }  # fmt: skip
        added = await operator.post("/v1/rules/flow/nightly", json=rule)
        assert added.status_code < 300, added.text
        await operator.post(f"/v1/flows/{version}/suspend")
        forecast = (await operator.post("/v1/runs/dry-run", json={"flow": version})).json()
        assert forecast["rules"] == [
            {"rule_set": "flow/nightly", "type": "abort", "task": "align", "active": 0, "shadow": 1}
        ]
        assert forecast["holders"] == ["ada"]
        assert forecast["problems"] == ["the parameters do not match the flow; missing: day"]
        lines = list(dry_run_lines(forecast, 100))
        assert "Rules of flow/nightly: abort of task align: 0 active, 1 in shadow" in lines
        assert "Cannot start: the parameters do not match the flow; missing: day" in lines


async def test_who_may_not_and_what_is_no_flow(domain: Domain) -> None:
    async with domain.server() as server:
        person = server.person("submitter", tenant="lab")
        version = (await person.post("/v1/flows", json={"text": FLOW})).json()["version"]
        stranger = server.person("submitter", tenant="other")
        problem(await stranger.post("/v1/runs/dry-run", json={"flow": version}), 404)
        problem(await server.person("viewer", tenant="lab").post("/v1/runs/dry-run", json={"flow": version}), 403)
        for body in ({}, {"flow": version, "text": FLOW}, {"text": "forestay: 1"}):
            problem(await person.post("/v1/runs/dry-run", json=body), 422)
        problem(await person.post("/v1/runs/dry-run", json={"flow": "nobody"}), 404)
