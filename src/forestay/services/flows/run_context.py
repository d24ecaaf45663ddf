"""The data of a run that rules can use: its parameters and the state of each of its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from forestay.ports.clock import Clock
from forestay.ports.errors import NotFound, Permanent, Transient
from forestay.ports.flows.flow_engine import FlowEngine
from forestay.services.shared.recent import Recent

MOST_INSTANCES = 400
"""The most tasks whose status is included: those that have not ended come first."""
MOST_RESULTS = 100
_ENDED = frozenset({"completed", "forced_complete", "skipped", "failed", "cancelled"})


RUN_FIELDS = ("run.data", "run.age", "task.status", "task.data", "task.age", "tasks")
"""The fields that only the engine of a run knows."""
FRESH = 2.0
"""The greatest age in seconds of a run's cached state: many jobs of a wide run may fail at once."""
PATIENCE = 1.0
"""Seconds within which an engine must answer: a completion waits for it."""
AWAY = 5.0
"""Seconds for which an engine that did not answer is not queried again."""
MOST_ASKED = 32
"""Runs that are queried at once; the states of further runs in one batch of failures are left out."""
MOST_KEPT = 200
"""The most runs whose state is cached."""


@dataclass(slots=True)
class RunStates:
    """The states of the runs of failed jobs, as their engine reports them; bounded in time, so that no failure waits for it."""

    engine: FlowEngine | None
    clock: Clock
    _known: Recent[str, tuple[float, Mapping[str, Any]]] = field(default_factory=lambda: Recent(MOST_KEPT))
    _away_until: float = 0.0

    async def ask(self, runs: Iterable[str]) -> Mapping[str, Mapping[str, Any]]:
        """The state of each run for which the engine answered in time."""
        at = self.clock.monotonic()
        wanted = list(runs)
        known = {run: kept[1] for run in wanted if (kept := self._known.get(run)) is not None and at - kept[0] < FRESH}
        missing = [run for run in wanted if run not in known][:MOST_ASKED]
        if self.engine is None or not missing or at < self._away_until:
            return known
        try:
            async with asyncio.timeout(PATIENCE):
                states = await asyncio.gather(*(self._state(self.engine, run) for run in missing))
        except (TimeoutError, Transient):
            self._away_until = at + AWAY
            return known
        new = {run: state for run, state in zip(missing, states, strict=True) if state is not None}
        for run, state in new.items():
            self._known[run] = at, state
        return known | new

    @staticmethod
    async def _state(engine: FlowEngine, run: str) -> Mapping[str, Any] | None:
        try:
            return await engine.state(run)
        except (NotFound, Permanent):
            return None  # it was removed, or its worker cannot tell


def run_context(state: Mapping[str, Any], now: int, *, instance: str = "") -> dict[str, Any]:
    """The groups ``run``, ``instances`` and, of one instance, ``instance``. ``state``: a run as reported by its engine."""
    instances: list[Mapping[str, Any]] = list(state["instances"])
    status = {str(other_instance["id"]): str(other_instance.get("state", "waiting")) for other_instance in instances}
    shown = sorted(status.items(), key=lambda pair: pair[1] in _ENDED)[:MOST_INSTANCES]
    results = {
        str(other_instance["id"]): {
            "state": status[str(other_instance["id"])],
            "result": other_instance.get("result"),
            "outputs": other_instance.get("outputs", {}),
        }
        for other_instance in instances[:MOST_RESULTS]
        if other_instance.get("result") is not None or other_instance.get("outputs")
    }
    data = dict(state["params"])
    if results:
        data["tasks"] = results
    age = max(0.0, (now - int(state["started"])) / 1000)
    context: dict[str, Any] = {"run": {"data": data, "age": age}, "tasks": dict(shown)}
    found_instance = instance_in(state, instance) if instance else None
    if found_instance is not None:
        began = int(found_instance.get("began") or now)
        context["task"] = {
            "name": instance,
            "status": status[instance],
            "round": int(found_instance.get("round", 0)),
            "age": max(0.0, (now - began) / 1000),
            "data": instance_data(found_instance),
        }
    return context


def instance_data(instance: Mapping[str, Any]) -> dict[str, Any]:
    """The results of a task so far."""
    kept = ("result", "outputs", "exit_code", "count", "well", "bad", "reason")
    return {name: instance[name] for name in kept if instance.get(name) is not None}


def instance_in(state: Mapping[str, Any], instance: str) -> Mapping[str, Any] | None:
    return next((other_instance for other_instance in state["instances"] if other_instance["id"] == instance), None)
