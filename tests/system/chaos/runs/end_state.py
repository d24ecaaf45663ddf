"""What the runs of a trial have come to, in a form that can be compared with another run's; and what must hold in every run."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.client import Client
from tests.system.chaos.runs.pilot import Effect, persist

from forestay.domain.flows.execution.run_names import run_of

JOB_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
RUN = ("state", "outcome", "outputs", "holders", "compensations")
TASK = ("task", "state", "round", "count", "well", "bad", "exit_code", "holders")
SUB_RUNS = (("each@1", 2), ("sub@1", 1))


@dataclass(slots=True)
class EndState:
    """Of all runs of one trial, by their places in it."""

    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """State, outcome, outputs, reason, and what is left of the stack."""
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    jobs: dict[str, Counter[tuple[str, int | None, str]]] = field(default_factory=dict)
    """How many jobs of a name and index are in which state."""
    effects: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    """Jobs that had at least one effect, by name and index."""
    reused: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    """Jobs that have the result of an earlier one."""
    undone: list[str] = field(default_factory=list)

    def differences(self, other: EndState) -> list[str]:
        """What is otherwise there, in words."""
        lines: list[str] = []
        for name in ("runs", "tasks", "jobs", "effects", "reused", "undone"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                lines.append(f"{name}: {_apart(mine, theirs)}")
        return lines


@dataclass(slots=True)
class Trial:
    """Runs that have ended, and what was carried out for them."""

    runs: Mapping[str, str]
    """Their ids, by their places in the trial."""
    effects: Sequence[Effect]
    results: Mapping[str, str]
    undoing: Sequence[str] = ()
    """The compensations as they must have run."""
    ends: Mapping[str, int] = field(default_factory=dict)
    """How many ends count of the jobs of these names: one, unless something answers a failure."""


def both(well: str, undone: str) -> dict[str, str]:
    """The runs of both flows, with those of their sub-flows."""
    runs = {"well": well, "undone": undone}
    for work, count in SUB_RUNS:
        parent = "well" if work == "each@1" else "undone"
        runs |= {f"{parent}/{work}/{at}": run_of(runs[parent], work, at) for at in range(count)}
    return runs


async def look(person: httpx.AsyncClient, client: Client, trial: Trial) -> tuple[EndState, list[str]]:
    """The end state, and what is wrong in itself."""
    state = EndState()
    wrong: list[str] = []
    documents: dict[str, dict[str, Any]] = {}
    for place, run in trial.runs.items():
        shown = await persist(person, "GET", f"/v1/runs/{run}")
        state.runs[place] = {name: shown[name] for name in RUN}
        state.runs[place]["reason"] = JOB_ID.sub("…", shown["reason"])
        state.tasks[place] = {task["id"]: {name: task[name] for name in TASK} for task in shown["tasks"]}
        jobs = await _jobs(person, run)
        state.jobs[place] = Counter((job["name"], job.get("index"), job["state"]) for job in jobs)
        documents |= {job["id"]: job for job in jobs}
        wrong += await _broken_steps(client, place, run)
    by_job: dict[str, list[Effect]] = defaultdict(list)
    for effect in trial.effects:
        if effect.job in documents:
            by_job[effect.job].append(effect)
    for job, effects in by_job.items():
        state.effects[effects[0].name, effects[0].element] += 1
        wrong += await _unrecorded(person, documents[job], effects, trial)
    for job in sorted(documents.keys() - by_job.keys()):
        document = documents[job]
        if (await persist(person, "GET", f"/v1/jobs/{job}/why-run"))["reused"] is None:
            wrong.append(f"job {job} has ended and never ran")
        state.reused[document["name"], document.get("index")] += 1
    seen: set[str] = set()
    for effect in trial.effects:
        if effect.command[0] == "undo" and effect.job in documents and effect.job not in seen:
            seen.add(effect.job)
            state.undone.append(effect.command[1])
    if state.undone != list(trial.undoing):
        wrong.append(f"compensations ran as {state.undone}, not as {list(trial.undoing)}")
    return state, wrong


async def _jobs(person: httpx.AsyncClient, run: str) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = []
    query: dict[str, Any] = {"run": run, "limit": 1000}
    while True:
        page = await persist(person, "GET", "/v1/jobs", params=query)
        jobs += page["jobs"]
        if not page.get("cursor"):
            return jobs
        query["cursor"] = page["cursor"]


async def _unrecorded(
    person: httpx.AsyncClient, document: dict[str, Any], effects: Sequence[Effect], trial: Trial
) -> list[str]:
    """Every run has an attempt of its own, in the job's story; as many of them count as should."""
    wrong: list[str] = []
    job, attempts = document["id"], [effect.attempt for effect in effects]
    if len(set(attempts)) != len(attempts):
        wrong.append(f"job {job} ran twice in one attempt: {attempts}")
    if max(attempts) > document["attempt"]:
        wrong.append(f"job {job} ran in attempt {max(attempts)} and knows of {document['attempt']}")
    committed = [effect for effect in effects if trial.results.get(effect.claim) == "committed"]
    if len(committed) != trial.ends.get(document["name"], 1):
        wrong.append(f"job {job} has {len(committed)} ends that count")
    if len(effects) > 1:
        story = (await persist(person, "GET", f"/v1/jobs/{job}/story"))["story"]
        reported = {line["attempt"] for line in story}
        if not set(attempts) <= reported:
            wrong.append(f"job {job} ran in attempts {attempts}, its story has {sorted(reported)}")
    return wrong


async def _broken_steps(client: Client, place: str, run: str) -> list[str]:
    """Steps of a run that its orchestrator could not take; that an orchestrator died in one is no such."""
    history = await client.get_workflow_handle(run).fetch_history()
    wrong: list[str] = []
    for event in history.events:
        if event.HasField("workflow_task_failed_event_attributes"):
            why = event.workflow_task_failed_event_attributes
            cause = WorkflowTaskFailedCause.Name(why.cause)
            if "FORCE_CLOSE" not in cause and "UNHANDLED_COMMAND" not in cause and "RESET" not in cause:
                wrong.append(f"a step of {place} broke: {cause}: {why.failure.message[:200]}")
    return wrong


def _apart(mine: Any, theirs: Any) -> str:
    if isinstance(mine, dict) and isinstance(theirs, dict):
        keys = [key for key in {**mine, **theirs} if mine.get(key) != theirs.get(key)]
        return "; ".join(f"{key}: {_apart(mine.get(key), theirs.get(key))}" for key in keys[:5])
    return f"{mine!r} instead of {theirs!r}"[:600]
