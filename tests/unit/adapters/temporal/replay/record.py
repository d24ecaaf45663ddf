"""Records histories of runs and shards on a real Temporal, for the replay tests: ``python -m tests.unit.adapters.temporal.replay.record RELEASE [NAME…]``.

A release adds its histories under a name of its own; those of earlier releases stay, and must replay for as long as their runs may run.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.live import (
    test_bpel_runs,
    test_compensation_library,
    test_external_events,
    test_playbooks,
    test_python_flows,
    test_questions,
    test_runs,
    test_schedules,
    test_streaming,
)
from tests.live.run_site import BAD, GOOD, TENANT, RunSite, run_site
from tests.unit.apps.server.running import until
from tests.unit.bpel.jobs import POLLING, REGISTERED, job_process

from forestay.adapters.temporal.workflows.temporal_runtime import SCHEDULED_RUN
from forestay.domain.flows.events import VerbKind
from forestay.domain.flows.schedule import RunSchedule
from forestay.domain.playbooks.action import ActionKind, ActionTarget, CompensateAction, Steer, Worklet
from forestay.domain.playbooks.playbook_run import run_name, worklet_run
from forestay.formats.flows.yaml_flow import read_flow_text
from forestay_bpel.formats.bpel import message_plain

FOLDER = Path(__file__).parent
FILES = """
forestay: 1
name: files
flows:
  usual: {name: usual, tasks: {look: {command: [echo]}}}
tasks:
  listed: {command: [cat, "${file}"], scatter: {file: {files: "*.raw"}}}
  watched: {command: [cat, "${file}"], scatter: {file: {watch: "*.raw", until: {file: done}}}}
  late: {worklet: anywhere, default: usual, after: [listed, watched]}
"""
PLACED = """
forestay: 1
name: placed
flows:
  inner: {name: inner, params: {n: 0}, tasks: {one: {command: [echo, "${params.n}"]}}}
tasks:
  each: {flow: inner, domain: any, params: {n: "${x}"}, scatter: {x: [1, 2]}}
  last: {command: [echo], after: [each]}
"""
"""Without peers they stay, started by the same activity."""
FLOWS: dict[str, tuple[str, dict[str, Any]]] = {
    "chain": (test_runs.CHAIN, {}),
    "diamond": (test_runs.DIAMOND, {}),
    "choice": (test_runs.CHOICE, {"size": 7}),
    "loop": (test_runs.LOOP, {}),
    "subflow": (test_runs.SUBFLOW, {}),
    "compensated": (test_runs.COMPENSATED, {}),
    "scatter": (test_runs.SCATTER, {"n": 600}),
    "files": (FILES, {}),
    "placed": (PLACED, {}),
    "asked": (test_questions.IN_TIME, {}),
    "awaited": (test_external_events.LATE, {}),
}


PYTHON: dict[str, dict[str, Any]] = {
    "wide": {},
    "caught": {},
    "uncaught": {},
    "many": {"n": 12},
    "long": {"rounds": 8},
    "clock": {},
}
"""Python flows and their parameters."""


GIVEN_UP = (
    "<scope><faultHandlers><catchAll><empty/></catchAll></faultHandlers>"
    f"<flow><sequence>{test_bpel_runs.invoke('run', 'given-up', 'first')}</sequence><sequence>"
    + test_bpel_runs.invoke("run", "b", "second").replace("$ask", "$ask2").replace('"ask"', '"ask2"')
    + '<throw faultName="t:enough"/></sequence></flow></scope>'
)
BPEL: dict[str, str] = {
    "polling": POLLING,
    "registered": REGISTERED,
    "given-up": GIVEN_UP,
    "person": test_bpel_runs.invoke("run", "b", "second") + test_bpel_runs.invoke("approve", "ask"),
}
"""Bodies of processes in WS-BPEL."""
MAPPING = "partners: {jobs: {approve: manual}}"


async def record(release: str, *only: str) -> None:
    """All of them, or those that are named."""
    with TemporaryDirectory() as folder, TemporaryDirectory() as shared:
        for name in ("a.raw", "b.raw", "done"):
            (Path(shared) / name).touch()
        async with run_site("sqlite", Path(folder), flow_files=(Path(shared),), watch_every=0.1) as site:
            site.fate = lambda claim: BAD if claim["name"] == "d" else GOOD
            for name, (text, params) in FLOWS.items():
                if only and name not in only:
                    continue
                run = await site.start(text, **params)
                await site.ended(run)
                await _keep(site, run, f"{release}-{name}")
                if name == "scatter":
                    await _keep(site, f"{run}:many@1:0", f"{release}-shard")
    if not only or "stream" in only:
        await record_streamed(release)
    if not only or "library" in only:
        await record_library(release)
    if not only or "scheduled" in only:
        await record_scheduled(release)
    await record_python(release, *only)
    await record_bpel(release, *only)
    if not only or "playbook" in only:
        await record_playbook(release)


async def record_streamed(release: str) -> None:
    """Scatters that follow one another by their elements, and of more elements the first shards of two of them."""
    with TemporaryDirectory() as folder:
        async with run_site("sqlite", Path(folder), relay_patience=0.2) as site:
            site.fate = test_streaming.good
            run = await site.start(test_streaming.LINE)
            await site.ended(run)
            await _keep(site, run, f"{release}-stream")
            run = await site.start(test_streaming.LINE, n=600)
            await site.ended(run)
            await _keep(site, run, f"{release}-stream-wide")
            await _keep(site, f"{run}:a@1:0", f"{release}-stream-producer")
            await _keep(site, f"{run}:b@1:0", f"{release}-stream-follower")


async def record_library(release: str) -> None:
    """A run that is undone by compensations of the library, one of which a person rebinds."""
    with TemporaryDirectory() as folder:
        async with run_site("sqlite", Path(folder)) as site:
            site.fate = lambda claim: BAD if claim["name"] == "publish" else GOOD
            ann = site.server.person("operator", tenant=TENANT)
            await test_compensation_library.register(ann, "reserve", "release")
            run = await site.start(test_compensation_library.SLOT)
            await site.task_is(run, "publish", "faulted")
            version = await test_compensation_library.register(ann, "reserve", "release", "again")
            changes = {"version": version, "tries": 1}
            assert (await site.verb(run, VerbKind.REBIND, "!1", changes=changes)).accepted
            assert (await site.verb(run, VerbKind.FORCE_FAIL)).accepted
            await site.ended(run)
            await _keep(site, run, f"{release}-library")


async def record_scheduled(release: str) -> None:
    """A start of a schedule, and the run that it started."""
    with TemporaryDirectory() as folder:
        async with run_site("sqlite", Path(folder)) as site:
            components = site.server.services.components
            read = read_flow_text(test_runs.CHAIN)
            assert read.flow is not None
            version = await components.flows.put(read.flow, tenant=TENANT)
            schedules = components.schedules()
            await schedules.put(TENANT, "ada", RunSchedule("nightly", version, ("0 0 1 1 *",)))
            await schedules.kept.trigger_schedule(TENANT, "nightly")
            (run,) = await test_schedules.runs_of(site, "nightly", 1)
            await site.ended(run["id"])
            client = await site.engine.client()
            query = f"WorkflowType = '{SCHEDULED_RUN}' AND ExecutionStatus = 'Completed'"

            async def started() -> str | None:
                return next(iter([execution.id async for execution in client.list_workflows(query)]), None)

            await _keep(site, await until(started, "the start to be over"), f"{release}-scheduled")


async def record_playbook(release: str) -> None:
    """A playbook with a worklet that gives something back, the worklet's run, and the run that is suspended, changed and continued."""
    with TemporaryDirectory() as folder:
        async with run_site("sqlite", Path(folder)) as site:
            site.hold_back = lambda claim: claim["name"] == "show"
            run = await test_playbooks.begun(site)
            change = await test_playbooks.stored(site, test_playbooks.CHANGE_VENUE)
            incident = await test_playbooks.incident_of(site, run)
            worklet = Worklet(change, {"from": "${params.venue}"}, {"venue": "venue"})
            suspend, go_on = (Steer(action, ActionTarget.RUN) for action in (ActionKind.SUSPEND, ActionKind.CONTINUE))
            await test_playbooks.done(site, incident, suspend, CompensateAction((worklet,)), go_on)
            await test_playbooks.go_on(site)
            await site.ended(run)
            await _keep(site, run_name(incident.id, 1), f"{release}-playbook")
            await _keep(site, worklet_run(incident.id, 1, 1, 0), f"{release}-playbook-worklet")
            await _keep(site, run, f"{release}-playbook-run")


async def record_python(release: str, *only: str) -> None:
    with TemporaryDirectory() as folder:
        async with run_site("sqlite", Path(folder), flows=folder, history_limit=30) as site:
            site.fate = lambda claim: BAD if claim["name"] == "bad" else GOOD
            for name, params in PYTHON.items():
                if only and f"python-{name}" not in only:
                    continue
                run = await site.start_python(test_python_flows.SOURCE, name, **params)
                await site.ended(run)
                await _keep(site, run, f"{release}-python-{name}")


async def record_bpel(release: str, *only: str) -> None:
    """Processes by the patterns of submission; one that gives up a job, and one that waits for a person."""
    with TemporaryDirectory() as folder:
        async with run_site("sqlite", Path(folder)) as site:
            site.hold_back = lambda claim: claim["name"] == "given-up"
            for name, body in BPEL.items():
                if only and f"bpel-{name}" not in only:
                    continue
                run = await test_bpel_runs.start(site, job_process(body), mapping=MAPPING)
                if name == "person":
                    await site.task_is(run, "b", "completed")
                    message = {"body": "<j:job xmlns:j='urn:forestay:jobs'><j:state>fine</j:state></j:job>"}
                    incoming = {
                        "partner": "jobs",
                        "operation": "approve",
                        "message": message_plain(message),
                    }
                    await site.engine.send_message(run, incoming)
                await site.ended(run)
                await _keep(site, run, f"{release}-bpel-{name}")


async def _keep(site: RunSite, workflow: str, name: str) -> None:
    client = await site.engine.client()
    history: Any = await client.get_workflow_handle(workflow).fetch_history()
    # Who ran it is nobody's business, and not needed to run it again.
    text = re.sub(r'"identity": ?"[^"]*"', '"identity": "orchestrator"', history.to_json())
    text = re.sub(r'"[0-9]+@[^"-]*(-?[^"]*)"', r'"orchestrator\1"', text)
    (FOLDER / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    asyncio.run(record(*sys.argv[1:]))
