"""What benchmarks left behind, and how it is told when and where it was measured."""

from __future__ import annotations

import json
from typing import Any

from bench.harness import RESULTS


def result(name: str) -> dict[str, Any] | None:
    """The newest run of a benchmark; None if there is none. Arms measured under an earlier name of the product are read under its present one."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return None
    text = path.read_text()
    names = RESULTS / "names.json"
    for earlier, present in json.loads(names.read_text()).items() if names.exists() else ():
        text = text.replace(earlier, present)
    found: dict[str, Any] = json.loads(text)
    return found


def when(found: dict[str, Any]) -> str:
    """Day, commit and load of a run, as far as it says."""
    figures = found.get("figures", {})
    load = figures.get("load") or found.get("load")
    loads = load if isinstance(load, list) else [load] if load else [one["load"] for one in found.get("runs", [])]
    parts = [str(found["at"])[:10]]
    if found.get("commit"):
        parts.append(f"commit {found['commit']}")
    if loads:
        low, high = min(loads), max(loads)
        parts.append(f"load {low:.0f}" if round(low) == round(high) else f"load {low:.0f} to {high:.0f}")
    else:
        parts.append("load not noted")
    return ", ".join(parts)


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def ratio(one: dict[str, Any]) -> str:
    """A ratio of pairs with its 95 % interval."""
    return f"{one['median']:.2f} ({one['low']:.2f} to {one['high']:.2f}, {one['pairs']} pairs)"
