"""The POST script for DAGMan on a real server: what DAGMan would do with its exit codes, for recorded runs of a node."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.speed import clock_limit
from tests.system.insertion.dagman import (
    KILLED,
    NORMAL,
    SCRIPT,
    Dag,
    Run,
    executing,
    held,
    lost,
    removed,
    size,
    submitted,
    terminated,
)
from tests.system.insertion.shell import VERSIONS
from tests.unit.apps.server.exceptions.test_engines import add_rule, incidents
from tests.unit.apps.server.fixtures import local, tenant
from tests.unit.apps.server.running import RunningServer, until

sys.path.insert(0, str(SCRIPT.parent))
from condor_event_log import events_of, read_job

__all__ = ["local", "tenant"]
READER = """
import json, sys, warnings
warnings.simplefilter("ignore")
import htcondor2
for event in htcondor2.JobEventLog(sys.argv[1]).events(stop_after=0):
    print(json.dumps({name: str(event[name]) for name in event.keys()} | {"number": int(event.type)}))
"""
GOOD = Run(0, lambda cluster: terminated(cluster, NORMAL.format(0)))
BAD = Run(3, lambda cluster: terminated(cluster, NORMAL.format(3)))
HUNGRY = Run(-9, lambda cluster: size(cluster, 127) + terminated(cluster, KILLED, used=128))
LOST = Run(-1002, lambda cluster: lost(cluster) + removed(cluster))


def dag(local: RunningServer, tenant: str, folder: Path, *more: str, **fields: Any) -> Dag:
    token = folder / "token"
    token.write_text(local.domain.token("engine", tenant=tenant, subject="dagman"))
    return Dag(folder, ["--server", local.url, "--token-file", str(token), "--seconds", "30", *more], **fields)


async def run(made: Dag, *recorded: Run) -> bool:
    return await asyncio.to_thread(made.go, *recorded)


async def test_a_rule_has_the_node_run_again_with_more_memory(
    local: RunningServer, tenant: str, tmp_path: Path
) -> None:
    more: dict[str, object] = {
        "action": "resubmit",
        "how": "changed",
        "needs": {"memory": {"factor": 2.0, "at_most": 1 << 34}},
    }
    await add_rule(local, tenant, more)
    made = dag(local, tenant, tmp_path)
    assert await run(made, HUNGRY, GOOD)
    assert made.runs == 2, made.output
    assert (tmp_path / "A.forestay.sub").exists(), made.output
    assert (tmp_path / "A.forestay.sub").read_text() == "request_memory = 256\n"
    (fields,) = await incidents(local.person("viewer", tenant=tenant))
    assert (fields["cause"], fields["task"]) == ("memory", "A")


async def test_what_a_rule_gives_up_on_is_not_tried_again(local: RunningServer, tenant: str, tmp_path: Path) -> None:
    await add_rule(local, tenant, {"action": "force-fail", "target": "task"}, condition='cause == "memory"')
    made = dag(local, tenant, tmp_path)
    assert not await run(made, HUNGRY)
    assert made.runs == 1, made.output


async def test_without_a_rule_the_node_is_tried_as_dagman_would(
    local: RunningServer, tenant: str, tmp_path: Path
) -> None:
    made = dag(local, tenant, tmp_path, retries=2)
    assert not await run(made, BAD)
    assert (made.runs, made.scripts) == (3, 3)
    ada = local.person("viewer", tenant=tenant)
    assert len(await until(lambda: incidents(ada), "the incidents")) == 3


async def test_a_failure_that_nobody_foresaw_waits_for_a_person_while_dagman_asks_again(
    local: RunningServer, tenant: str, tmp_path: Path
) -> None:
    made = dag(local, tenant, tmp_path, "--hold", "--seconds", "4")
    running = asyncio.create_task(run(made, BAD))
    ada = local.person("operator", tenant=tenant, subject="olga")
    (value,) = await until(lambda: incidents(ada, state="held"), "the incident to wait")
    await until(_asked(made, 2), "DAGMan to ask again")
    answer = await ada.post(f"/v1/runs/{value['run']}/verbs", json={"verb": "force-complete", "task": "A"})
    assert answer.status_code == 200, answer.text
    assert await running, made.output
    assert made.runs == 1


def _asked(made: Dag, times: int) -> Any:
    async def enough() -> bool:
        return made.scripts >= times

    return enough


async def test_an_order_that_dagman_has_no_retries_for_is_refused_and_the_node_fails(
    local: RunningServer, tenant: str, tmp_path: Path
) -> None:
    await add_rule(local, tenant, {"action": "resubmit"})
    made = dag(local, tenant, tmp_path, "--defer", "0", "--seconds", "4", retries=0)
    assert not await run(made, HUNGRY)
    assert made.runs == 1


async def test_with_forestay_away_everything_is_as_without_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x")
    made = Dag(tmp_path, ["--server", "http://127.0.0.1:9", "--token-file", str(tmp_path / "token")], retries=1)
    began = time.monotonic()
    assert not await run(made, BAD)
    assert (made.runs, made.scripts) == (2, 2)
    assert await run(Dag(tmp_path, ["--server", "nowhere"]), GOOD)
    assert time.monotonic() - began < clock_limit(30)
    assert "Forestay was not asked" in made.output[0]
    assert await run(Dag(tmp_path, []), GOOD)


@pytest.mark.parametrize(
    ("returned", "code"),
    [(0, 0), (1, 1), (3, 3), (75, 1), (77, 1), (-9, 1), (-1001, 1), (-1002, 1), (-1004, 1), (256, 1)],
)
def test_no_code_of_a_job_is_taken_for_one_of_ours(tmp_path: Path, returned: int, code: int) -> None:
    """Above all not for that of DEFER: the script would be run for ever."""
    made = Dag(tmp_path, ["--server", "nowhere"])
    assert made._post("12.0", returned, 0, 1.0) == code


def test_what_the_log_tells_of_a_job() -> None:
    text = held(
        12,
        "Error from slot1_3@node7.example.org: Job has gone over memory limit of 128 megabytes. Peak usage: 140 megabytes.",
        34,
    )
    text += (
        "000 (013.000.000) 2026-11-15 10:00:00 Job submitted from host: <>\n...\n"
        + HUNGRY.events(14)
        + "005 (012.000.000) 2026-11-15 10:00:0"
    )
    job = read_job(text, 12)
    assert (job.state, job.hold_code, job.seen) == ("held", 34, [12])
    assert "memory limit" in job.reason
    hungry = read_job(text, 14)
    assert (hungry.signal, hungry.exit_code, hungry.memory, hungry.peak_memory) == (9, None, 128 << 20, 128 << 20)
    assert read_job(text, 99).evidence() == {"scheduler": "htcondor"}


def test_why_a_job_was_on_hold_outlives_its_removal() -> None:
    """A POST script is run only when the job is gone, and `periodic_remove` says no more than that it was on hold."""
    words = "Error from slot1_1@vm: memory usage exceeded request_memory"
    job = read_job(executing(12) + held(12, words, 21, 102) + removed(12), 12)
    assert (job.state, job.reason, job.hold_code, job.hold_subcode) == ("removed", words, 21, 102)


async def test_a_lost_node_is_known_as_such(local: RunningServer, tenant: str, tmp_path: Path) -> None:
    await add_rule(
        local, tenant, {"action": "resubmit"}, condition='cause == "node" || cause == "network"', cause="node"
    )
    made = dag(local, tenant, tmp_path)
    assert await run(made, LOST, GOOD)
    (fields,) = await incidents(local.person("viewer", tenant=tenant))
    assert fields["cause"] in ("node", "network")


@pytest.mark.slow
def test_the_recorded_logs_are_such_as_htcondor_itself_reads_and_reads_alike(tmp_path: Path) -> None:
    """By the reader of HTCondor's own Python package; its daemons are not needed for that."""
    words = "Error from slot1_3@node7.example.org: Job has gone over memory limit of 128 megabytes."
    runs = {12: size(12, 127) + held(12, words, 34, 2), 13: HUNGRY.events(13), 14: BAD.events(14), 15: LOST.events(15)}
    text = "".join(submitted(cluster, "A") + executing(cluster) + events for cluster, events in runs.items())
    log, reader = tmp_path / "a.dag.nodes.log", tmp_path / "reader.py"
    log.write_text(text)
    reader.write_text(READER)
    package = f"htcondor=={VERSIONS['HTCONDOR_BINDINGS_VERSION']}"
    asked = ["uv", "run", "--quiet", "--isolated", "--no-project", "--python", "3.11", "--with", package, "python"]
    ran = subprocess.run([*asked, reader, log], capture_output=True, text=True, timeout=300, check=True)
    theirs = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [(entry["number"], int(entry["Cluster"])) for entry in theirs] == [event[:2] for event in events_of(text)]
    by = {(entry["Cluster"], entry["number"]): entry for entry in theirs}
    held_job, hungry, bad, gone = (read_job(text, cluster) for cluster in runs)
    assert (str(held_job.hold_code), str(held_job.hold_subcode), held_job.reason) == (
        by["12", 12]["HoldReasonCode"], by["12", 12]["HoldReasonSubCode"], by["12", 12]["HoldReason"],
    )  # fmt: skip
    assert held_job.peak_memory == int(by["12", 6]["MemoryUsage"]) << 20
    assert str(hungry.signal) == by["13", 5]["TerminatedBySignal"]
    assert (hungry.memory, hungry.disk) == (
        int(by["13", 5]["RequestMemory"]) << 20,
        int(by["13", 5]["RequestDisk"]) << 10,
    )
    assert (str(bad.exit_code), bad.node) == (by["14", 5]["ReturnValue"], by["14", 1]["SlotName"].partition("@")[2])
    assert (gone.state, gone.reason) == ("removed", by["15", 9]["Reason"])
