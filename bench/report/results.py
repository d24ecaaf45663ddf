"""What benchmarks left behind, whether it counts, and how it is told when and where it was measured."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from bench.harness import EARLIER, RESULTS, Ratio, digest, paired

Fields = dict[str, Any]

COMMANDS = {
    "chaos_release": "just chaos release",
    "claim_efficiency": "just bench claim_efficiency",
    "conditions": "just bench conditions",
    "contention": "just bench contention --rounds 2",
    "control_plane": "just bench control_plane --many 100000",
    "durable": "just bench durable --rounds 8",
    "executor": "just bench executor --peers parsl,dask,celery,dbos --honest --rounds 7",
    "executor_100000": "just bench executor --peers parsl,dask,celery,dbos --calls 100000 --rounds 1 --within 900 --name executor_100000",
    "executor_naps_100ms": "just bench executor --peers parsl,dask,celery,dbos --seconds 0.1 --calls 100 --rounds 3 --name executor_naps_100ms",
    "executor_naps_1s": "just bench executor --peers parsl,dask,celery,dbos --seconds 1 --calls 20 --rounds 2 --name executor_naps_1s",
    "fault_table": "just faults",
    "flow_beside": "just bench flow_beside --peers snakemake,dask",
    "flow_scale_1000000": "just bench flow_scale --jobs 1000000 --beside 10000",
    "lost_pilots": "just bench lost_pilots --peers dask,parsl --no-defaults",
    "lost_pilots_60": "just bench lost_pilots --peers dask,parsl --silence 60 --rounds 2 --no-defaults --name lost_pilots_60",
    "lost_pilots_defaults": "just bench lost_pilots --peers dask,parsl --rounds 0 --name lost_pilots_defaults",
    "metadata_value": "just metadata-value",
    "pattern_cost": "just pattern-costs",
    "pilots_real": "just bench pilots real",
    "pilots_scale_arrays": "just bench pilots arrays",
    "prune-opensearch": "just bench prune --store opensearch",
    "prune-postgresql": "just bench prune --store postgresql",
    "prune-sqlite": "just bench prune --store sqlite",
    "rules": "just bench rules",
    "scale_depth": "just bench scale depth",
    "scale_servers": "just bench scale servers",
    "staging": "just bench staging --rounds 5 --memory",
    "start_latency": "just bench start_latency --rounds 40",
    "start_latency_parsl": "just bench start_latency --rounds 15 --peers parsl --name start_latency_parsl",
}
"""The command of each result on the page. A result of any other command does not count."""

SHARE = re.compile(r"\bhit ratio\b")
COMPUTED = re.compile(r"\bover\b|\bratio|ratios?$|^less$")
"""Names of figures that say how much one is of another: the report computes these."""


class SpoiltResultError(Exception):
    """A kept result is not as its benchmark left it."""


def executions(name: str) -> list[Fields]:
    """Every kept execution of a benchmark, the newest first. Arms measured under an earlier name of the product are read under its present one."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return []
    document = json.loads(path.read_text())
    kept = [{key: value for key, value in document.items() if key != EARLIER}, *document.get(EARLIER, [])]
    for each in kept:
        if "digest" in each and each["digest"] != digest(each):
            raise SpoiltResultError(f"{path.name}: changed by hand after it was measured on {each['at']}")
        if stored := next(_computed(each["figures"]), ""):
            raise SpoiltResultError(f"{path.name}: keeps “{stored}”, which the report computes from the runs")
    text = json.dumps(kept)
    names = RESULTS / "names.json"
    for earlier, present in json.loads(names.read_text()).items() if names.exists() else ():
        text = text.replace(earlier, present)
    renamed: list[Fields] = json.loads(text)
    return renamed


def _computed(value: object, name: str = "") -> Iterator[str]:
    """Figures that are a comparison of others."""
    if isinstance(value, Mapping):
        if {"median", "low", "high"} <= set(value):
            yield name
        for key, inner in value.items():
            yield from _computed(inner, f"{name} / {key}" if name else str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _computed(inner, name)
    elif isinstance(value, int | float | str) and COMPUTED.search(SHARE.sub("", name.rpartition(" / ")[2])):
        yield name


def counting(name: str) -> list[Fields]:
    """The executions that the page is made of: those that count, or the newest if none does."""
    kept = executions(name)
    return [each for each in kept if not refusal(each)] or kept[:1]


def result(name: str) -> Fields | None:
    """The newest of them; None if there is none."""
    return next(iter(counting(name)), None)


@cache
def commits() -> frozenset[str]:
    """Every commit of this history, by nine digits."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-list", "HEAD"]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return frozenset(name[:9] for name in found)


def refusal(fields: Fields) -> str:
    """Why an execution does not count; empty if it does."""
    name, command, commit = str(fields["benchmark"]), fields.get("command"), str(fields.get("commit") or "")
    why = []
    if not command:
        why.append("command not kept")
    elif command != COMMANDS.get(name):
        why.append(f"command was `{command}`")
    if not commit:
        why.append("commit not kept")
    elif commit.rstrip("+")[:9] not in commits():
        why.append("commit not in this history")
    if commit.endswith("+"):
        why.append("files differed from it")
    if not why and "digest" not in fields:
        why.append("no digest")
    return ", ".join(why)


def when(fields: Fields) -> str:
    """Day, commit and load of an execution, as far as it says, and why it does not count."""
    figures = fields.get("figures", {})
    load = figures.get("load") or fields.get("load")
    own = [run["load"] for run in fields.get("runs", [])]
    loads = own or (load if isinstance(load, list) else [load] if load else [])
    parts = [str(fields["at"])[:10]]
    if commit := fields.get("commit"):
        known = commit.rstrip("+")[:9] in commits()
        parts.append(f"commit {commit}" if known else "an unknown commit")
    if loads:
        low, high = min(loads), max(loads)
        parts.append(f"load {low:.0f}" if round(low) == round(high) else f"load {low:.0f} to {high:.0f}")
    else:
        parts.append("load not noted")
    refused = refusal(fields)
    return ", ".join(parts) + (f"; *measured before*: {refused}" if refused else "")


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def ratio(fields: Ratio) -> str:
    """A ratio of pairs with its 95 % interval."""
    return f"{fields.median:.2f} ({fields.low:.2f} to {fields.high:.2f}, {fields.pairs} pairs)"


def rates(fields: Fields, arm: str) -> list[float]:
    """Operations a second of each run of an arm."""
    return [run["operations"] / run["seconds"] for run in fields["runs"] if run["arm"] == arm]


def costs(fields: Fields, arm: str) -> list[float]:
    """Processor seconds an operation of each run of an arm."""
    return [sum(run["cpu"].values()) / run["operations"] for run in fields["runs"] if run["arm"] == arm]


def facts(fields: Fields, arm: str, name: str) -> list[float]:
    return [run["facts"][name] for run in fields["runs"] if run["arm"] == arm]


def whole(each: Sequence[Ratio]) -> Ratio:
    """Of several executions: the median of their medians, and the worst ends of their intervals."""
    return Ratio(
        median(each_ratio.median for each_ratio in each),
        min(each_ratio.low for each_ratio in each),
        max(each_ratio.high for each_ratio in each),
        sum(each_ratio.pairs for each_ratio in each),
    )


def compare(kept: Sequence[Fields], above: str, below: str) -> Ratio:
    """The rate of one arm by that of another, over all executions."""
    return whole([paired(*_equal(rates(fields, above), rates(fields, below))) for fields in kept])


def compare_costs(kept: Sequence[Fields], above: str, below: str) -> Ratio:
    return whole([paired(*_equal(costs(fields, above), costs(fields, below))) for fields in kept])


def _equal(above: list[float], below: list[float]) -> tuple[list[float], list[float]]:
    """As many of each: an arm that was given up has fewer."""
    pairs = min(len(above), len(below))
    return above[:pairs], below[:pairs]
