"""What rules may see of a case: its data, and where each of its items stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_ITEMS = 400
"""Items of which the status is told: those that have not ended come first."""
MOST_RESULTS = 100
_ENDED = frozenset({"completed", "forced_complete", "skipped", "failed", "cancelled"})


def case_context(state: Mapping[str, Any], now: int, *, item: str = "") -> dict[str, Any]:
    """The groups ``case``, ``items`` and, of one item, ``item``. ``state``: a case as its engine tells it."""
    items: list[Mapping[str, Any]] = list(state["items"])
    status = {str(one["id"]): str(one.get("state", "waiting")) for one in items}
    shown = sorted(status.items(), key=lambda one: one[1] in _ENDED)[:MOST_ITEMS]
    results = {
        str(one["id"]): {
            "state": status[str(one["id"])],
            "result": one.get("result"),
            "outputs": one.get("outputs", {}),
        }
        for one in items[:MOST_RESULTS]
        if one.get("result") is not None or one.get("outputs")
    }
    data = dict(state["params"])
    if results:
        data["tasks"] = results
    age = max(0.0, (now - int(state["started"])) / 1000)
    context: dict[str, Any] = {"case": {"data": data, "age": age}, "items": dict(shown)}
    found = item_in(state, item) if item else None
    if found is not None:
        began = int(found.get("began") or now)
        context["item"] = {
            "name": item,
            "status": status[item],
            "round": int(found.get("round", 0)),
            "age": max(0.0, (now - began) / 1000),
            "data": item_data(found),
        }
    return context


def item_data(item: Mapping[str, Any]) -> dict[str, Any]:
    """What an item has come to so far."""
    kept = ("result", "outputs", "exit_code", "count", "well", "bad", "reason")
    return {name: item[name] for name in kept if item.get(name) is not None}


def item_in(state: Mapping[str, Any], item: str) -> Mapping[str, Any] | None:
    return next((one for one in state["items"] if one["id"] == item), None)
