"""What two cases have come to, in a form that can be compared with another run's; and what must hold in every run."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.client import Client
from tests.system.chaos.cases.flows import UNDOING
from tests.system.chaos.cases.pilot import Effect, persist

from forestay.domain.flows.execution.case_names import case_of

JOB_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CASE = ("state", "outcome", "outputs", "holders", "compensations")
ITEM = ("task", "state", "round", "count", "well", "bad", "exit_code", "holders")
SUB_CASES = (("each@1", 2), ("sub@1", 1))


@dataclass(slots=True)
class EndState:
    """Of all cases of one trial, by their places in it."""

    cases: dict[str, dict[str, Any]] = field(default_factory=dict)
    """State, outcome, outputs, reason, and what is left of the stack."""
    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    jobs: dict[str, Counter[tuple[str, int | None, str]]] = field(default_factory=dict)
    """How many jobs of a name and index are in which state."""
    effects: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    """Jobs that had at least one effect, by name and index."""
    undone: list[str] = field(default_factory=list)

    def differences(self, other: EndState) -> list[str]:
        """What is otherwise there, in words."""
        told: list[str] = []
        for name in ("cases", "items", "jobs", "effects", "undone"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                told.append(f"{name}: {_apart(mine, theirs)}")
        return told


@dataclass(slots=True)
class Trial:
    """One run of both flows."""

    well: str
    undone: str
    effects: Sequence[Effect]
    results: dict[str, str]

    def cases(self) -> dict[str, str]:
        """The ids of all its cases, by their places."""
        found = {"well": self.well, "undone": self.undone}
        for work, count in SUB_CASES:
            parent = "well" if work == "each@1" else "undone"
            found |= {f"{parent}/{work}/{at}": case_of(found[parent], work, at) for at in range(count)}
        return found


async def look(person: httpx.AsyncClient, client: Client, trial: Trial) -> tuple[EndState, list[str]]:
    """The end state, and what is wrong in itself."""
    state = EndState()
    wrong: list[str] = []
    documents: dict[str, dict[str, Any]] = {}
    for place, case in trial.cases().items():
        shown = await persist(person, "GET", f"/v1/cases/{case}")
        state.cases[place] = {name: shown[name] for name in CASE}
        state.cases[place]["reason"] = JOB_ID.sub("…", shown["reason"])
        state.items[place] = {item["id"]: {name: item[name] for name in ITEM} for item in shown["items"]}
        jobs = await _jobs(person, case)
        state.jobs[place] = Counter((job["name"], job.get("index"), job["state"]) for job in jobs)
        documents |= {job["id"]: job for job in jobs}
        wrong += await _broken_steps(client, place, case)
    by_job: dict[str, list[Effect]] = defaultdict(list)
    for effect in trial.effects:
        if effect.job in documents:
            by_job[effect.job].append(effect)
    for job, effects in by_job.items():
        state.effects[effects[0].name, effects[0].element] += 1
        wrong += await _unrecorded(person, documents[job], effects, trial.results)
    wrong += [f"job {job} has ended and never ran" for job in documents.keys() - by_job.keys()]
    seen: set[str] = set()
    for effect in trial.effects:
        if effect.command[0] == "undo" and effect.job in documents and effect.job not in seen:
            seen.add(effect.job)
            state.undone.append(effect.command[1])
    if state.undone != UNDOING:
        wrong.append(f"compensations ran as {state.undone}, not as {UNDOING}")
    return state, wrong


async def _jobs(person: httpx.AsyncClient, case: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    query: dict[str, Any] = {"case": case, "limit": 1000}
    while True:
        page = await persist(person, "GET", "/v1/jobs", params=query)
        found += page["jobs"]
        if not page.get("cursor"):
            return found
        query["cursor"] = page["cursor"]


async def _unrecorded(
    person: httpx.AsyncClient, document: dict[str, Any], effects: Sequence[Effect], results: dict[str, str]
) -> list[str]:
    """Every run has an attempt of its own, in the job's story; one of them counts."""
    wrong: list[str] = []
    job, attempts = document["id"], [effect.attempt for effect in effects]
    if len(set(attempts)) != len(attempts):
        wrong.append(f"job {job} ran twice in one attempt: {attempts}")
    if max(attempts) > document["attempt"]:
        wrong.append(f"job {job} ran in attempt {max(attempts)} and knows of {document['attempt']}")
    committed = [effect for effect in effects if results.get(effect.claim) == "committed"]
    if len(committed) != 1:
        wrong.append(f"job {job} has {len(committed)} ends that count")
    if len(effects) > 1:
        story = (await persist(person, "GET", f"/v1/jobs/{job}/story"))["story"]
        told = {line["attempt"] for line in story}
        if not set(attempts) <= told:
            wrong.append(f"job {job} ran in attempts {attempts}, its story has {sorted(told)}")
    return wrong


async def _broken_steps(client: Client, place: str, case: str) -> list[str]:
    """Steps of a case that its worker could not take; that a worker died in one is no such."""
    history = await client.get_workflow_handle(case).fetch_history()
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
