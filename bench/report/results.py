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
    document: dict[str, Any] = json.loads(text)
    return document


def when(fields: dict[str, Any]) -> str:
    """Day, commit and load of a run, as far as it says."""
    figures = fields.get("figures", {})
    load = figures.get("load") or fields.get("load")
    loads = load if isinstance(load, list) else [load] if load else [run["load"] for run in fields.get("runs", [])]
    parts = [str(fields["at"])[:10]]
    if fields.get("commit"):
        parts.append(f"commit {fields['commit']}")
    if loads:
        low, high = min(loads), max(loads)
        parts.append(f"load {low:.0f}" if round(low) == round(high) else f"load {low:.0f} to {high:.0f}")
    else:
        parts.append("load not noted")
    return ", ".join(parts)


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def ratio(fields: dict[str, Any]) -> str:
    """A ratio of pairs with its 95 % interval."""
    return f"{fields['median']:.2f} ({fields['low']:.2f} to {fields['high']:.2f}, {fields['pairs']} pairs)"
