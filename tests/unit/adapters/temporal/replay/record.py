"""Records histories of cases and shards on a real Temporal, for the replay tests: ``python -m tests.unit.adapters.temporal.replay.record RELEASE [NAME…]``.

A release adds its histories under a name of its own; those of earlier releases stay, and must replay for as long as their cases may run.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.live import test_cases, test_exlets, test_python_flows
from tests.live.case_site import BAD, GOOD, CaseSite, case_site

from forestay.domain.exlets.exlet_run import run_name, worklet_case
from forestay.domain.exlets.primitive import Action, ActionTarget, CompensateAction, Steer, Worklet

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
    "chain": (test_cases.CHAIN, {}),
    "diamond": (test_cases.DIAMOND, {}),
    "choice": (test_cases.CHOICE, {"size": 7}),
    "loop": (test_cases.LOOP, {}),
    "subflow": (test_cases.SUBFLOW, {}),
    "compensated": (test_cases.COMPENSATED, {}),
    "scatter": (test_cases.SCATTER, {"n": 600}),
    "files": (FILES, {}),
    "placed": (PLACED, {}),
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


async def record(release: str, *only: str) -> None:
    """All of them, or those that are named."""
    with TemporaryDirectory() as folder, TemporaryDirectory() as shared:
        for name in ("a.raw", "b.raw", "done"):
            (Path(shared) / name).touch()
        async with case_site("sqlite", Path(folder), flow_files=(Path(shared),), watch_every=0.1) as site:
            site.fate = lambda claim: BAD if claim["name"] == "d" else GOOD
            for name, (text, params) in FLOWS.items():
                if only and name not in only:
                    continue
                case = await site.start(text, **params)
                await site.ended(case)
                await _keep(site, case, f"{release}-{name}")
                if name == "scatter":
                    await _keep(site, f"{case}:many@1:0", f"{release}-shard")
    await record_python(release, *only)
    if not only or "exlet" in only:
        await record_exlet(release)


async def record_exlet(release: str) -> None:
    """An exlet with a worklet that gives something back, the worklet's case, and the case that is suspended, changed and continued."""
    with TemporaryDirectory() as folder:
        async with case_site("sqlite", Path(folder)) as site:
            site.hold_back = lambda claim: claim["name"] == "show"
            case = await test_exlets.begun(site)
            change = await test_exlets.stored(site, test_exlets.CHANGE_VENUE)
            incident = await test_exlets.incident_of(site, case)
            worklet = Worklet(change, {"from": "${params.venue}"}, {"venue": "venue"})
            suspend, go_on = (Steer(action, ActionTarget.CASE) for action in (Action.SUSPEND, Action.CONTINUE))
            await test_exlets.done(site, incident, suspend, CompensateAction((worklet,)), go_on)
            await test_exlets.go_on(site)
            await site.ended(case)
            await _keep(site, run_name(incident.id, 1), f"{release}-exlet")
            await _keep(site, worklet_case(incident.id, 1, 1, 0), f"{release}-exlet-worklet")
            await _keep(site, case, f"{release}-exlet-case")


async def record_python(release: str, *only: str) -> None:
    with TemporaryDirectory() as folder:
        async with case_site("sqlite", Path(folder), flows=folder, history_limit=30) as site:
            site.fate = lambda claim: BAD if claim["name"] == "bad" else GOOD
            for name, params in PYTHON.items():
                if only and f"python-{name}" not in only:
                    continue
                case = await site.start_python(test_python_flows.SOURCE, name, **params)
                await site.ended(case)
                await _keep(site, case, f"{release}-python-{name}")


async def _keep(site: CaseSite, workflow: str, name: str) -> None:
    client = await site.engine.client()
    history: Any = await client.get_workflow_handle(workflow).fetch_history()
    # Who ran it is nobody's business, and not needed to run it again.
    text = re.sub(r'"identity": ?"[^"]*"', '"identity": "worker"', history.to_json())
    text = re.sub(r'"[0-9]+@[^"-]*(-?[^"]*)"', r'"worker\1"', text)
    (FOLDER / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    asyncio.run(record(*sys.argv[1:]))
