"""What rules may see of a run: its data, and where each of its tasks stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_INSTANCES = 400
"""Tasks of which the status is told: those that have not ended come first."""
MOST_RESULTS = 100
_ENDED = frozenset({"completed", "forced_complete", "skipped", "failed", "cancelled"})


def run_context(state: Mapping[str, Any], now: int, *, instance: str = "") -> dict[str, Any]:
    """The groups ``run``, ``instances`` and, of one instance, ``instance``. ``state``: a run as its engine tells it."""
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
    """What a task has come to so far."""
    kept = ("result", "outputs", "exit_code", "count", "well", "bad", "reason")
    return {name: instance[name] for name in kept if instance.get(name) is not None}


def instance_in(state: Mapping[str, Any], instance: str) -> Mapping[str, Any] | None:
    return next((other_instance for other_instance in state["instances"] if other_instance["id"] == instance), None)
