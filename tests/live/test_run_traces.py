"""One trace follows a run through every process: server, orchestrator, pilot, reconciler, Temporal; and its lineage is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests import servers
from tests.live.run_site import new_namespace
from tests.unit.apps.server.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.unit.apps.server.processes import processes
from tests.unit.apps.server.running import Domain, until
from tests.unit.apps.server.store_room import store_room
from tests.unit.formats.provenance.test_open_lineage import check

pytestmark = pytest.mark.live
TRACE, ABOVE = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TENANT = "traced"
FLOW = """
forestay: 1
name: traced
tasks:
  align: {run: "test $FORESTAY_ATTEMPT = 2", when_exhausted: hold}
"""
RULE = {
    "type": "abort",
    "condition": "job.attempt == 1",
    "conclusion": {"steps": [{"action": "notify", "text": "once more"}, {"action": "resubmit"}]},
    "reference_incident": "i1",
    "context": {"cause": "code", "job": {"attempt": 1}},
}


def read_lineage(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def stages(receiver: OtlpReceiver) -> list[str]:
    return [entry.name for entry in receiver.of(TRACE)]


async def test_a_run_is_one_trace_from_its_start_through_a_failure_and_a_playbook_to_its_end(tmp_path: Path) -> None:
    known = {"temporal": servers.temporal(), "temporal_namespace": await new_namespace(), "relay_every": 0.1}
    async with otlp_receiver() as receiver, store_room("sqlite", tmp_path) as url:
        known |= {"otlp": receiver.url, "approvals": "off", "lease": 30}
        lineage = tmp_path / "lineage.jsonl"
        known["lineage"] = f"file:{lineage}"
        async with processes(Domain(url, tmp_path, {"approvals": "off"}), tmp_path, **known) as running:
            server = await running.server()
            running.reconciler()
            running.orchestrator()
            running.pilot(TENANT, server)
            ann = running.client(server, "operator", tenant=TENANT)
            made = await ann.post("/v1/rules/domain/site", json=RULE)
            assert made.status_code == 200, made.text
            rule = made.json()["rule"]
            promoted = await ann.post(f"/v1/rules/domain/site/rules/{rule}/state", json={})
            assert promoted.status_code == 200, promoted.text
            version = (await ann.post("/v1/flows", json={"text": FLOW})).json()["version"]
            headers = {"traceparent": f"00-{TRACE}-{ABOVE}-01"}
            run = (await ann.post("/v1/runs", json={"flow": version}, headers=headers)).json()["id"]

            async def ended() -> bool:
                # An orchestrator that has just started cannot say at once.
                return bool((await ann.get(f"/v1/runs/{run}")).json().get("state") == "completed")

            await until(ended, "the run to be completed", 90)

            async def whole() -> bool:
                return {"job align", "attempt 2", "playbook: resubmit"} <= set(stages(receiver))

            await until(whole, "the spans of all processes", 30)

            async def written() -> bool:
                return [record["eventType"] for record in read_lineage(lineage)].count("COMPLETE") >= 2

            await until(written, "the lineage of the run and its job", 60)
    kinds: dict[str, set[str]] = {}
    for event in read_lineage(lineage):
        check(event)
        kinds.setdefault(event["job"]["name"], set()).add(event["eventType"])
        if event["job"]["name"] == "traced.align":
            assert event["run"]["facets"]["parent"]["run"]["runId"] == run
        else:
            assert event["run"]["runId"] == run
    assert kinds == {"traced": {"START", "COMPLETE"}, "traced.align": {"START", "COMPLETE"}}
    spans = receiver.of(TRACE)
    by_name = {span.name: span for span in spans}
    order = [
        "StartWorkflow:", "submit", "queued", "attempt 1", "incident abort", "playbook: notify", "playbook: resubmit", "attempt 2",
    ]  # fmt: skip
    places = [next(n for n, span in enumerate(spans) if span.name.startswith(name)) for name in order]
    assert places == sorted(places), stages(receiver)
    start = next(span for span in spans if span.name.startswith("StartWorkflow:"))
    assert start.parent == ABOVE
    assert start.service == "forestay-server"
    job = by_name["job align"]
    assert job.attributes["forestay.run"] == run
    above = {span.id: span for span in spans}
    line = [job]
    while line[-1].parent in above:
        line.append(above[line[-1].parent])
    assert line[-1] is start, "the job hangs below the start of its run"
    assert {entry.service for entry in line} == {"forestay-server", "forestay-orchestrator"}
    assert by_name["playbook: resubmit"].service in ("forestay-orchestrator", "forestay-reconciler", "forestay-server")
    assert {"forestay-server", "forestay-orchestrator", "forestay-pilot"} <= {span.service for span in spans}
    runs = [span for span in spans if span.name == "run"]
    assert [(run.service, run.failed) for run in runs] == [("forestay-pilot", True), ("forestay-pilot", False)]
