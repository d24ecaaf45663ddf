"""Laws of scale: what must not grow with the number of jobs, and what was measured of it."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from bench.harness import paired
from bench.report.results import COMMANDS, Fields, compare, compare_costs, facts, rates, ratio, result, when

STORES = {"postgresql": "PostgreSQL", "sqlite": "SQLite", "opensearch": "OpenSearch"}


def by(fields: Fields) -> str:
    """The command, and when it ran."""
    return f"`{COMMANDS[fields['benchmark']]}`, {when(fields)}"


def section() -> Iterator[str]:
    yield from (
        "## Laws of scale",
        "",
        "What must not grow with the number of jobs. The same commands run at a small size with every change (`just bench-smoke`, `tests/unit/bench`) and fail the build on a violation.",
        "",
        "| what | law | measured | by, and when |",
        "| --- | --- | --- | --- |",
    )
    flow = result("flow_scale_1000000")
    if flow is not None:
        large, small = flow["figures"]["large"], flow["figures"]["small"]
        if small:
            cost = sum(large["cpu"].values()) / sum(small[0]["cpu"].values())
            yield f"| processor time per job, 10⁶ over 10⁴ | ≤ 1.10 | {cost:.2f} | {by(flow)} |"
        yield f"| events in Temporal's history per job | ≤ 0.02 | {large['events'] / large['jobs']:.4f} at 10⁶ | {by(flow)} |"
        yield f"| events of one workflow execution | ≤ 8,000 | {large['largest_run']:,} at 10⁶ | {by(flow)} |"
        yield f"| a flow of 10⁶ jobs continues after a kill of everything | ≤ 5 s | {large['recovery']:.1f} s to the next completion, {large['case_answers']:.1f} s until the run answers | {by(flow)} |"
    depth = result("scale_depth")
    if depth is not None:
        many, few = "1000000 queued", "10000 queued"
        waits = paired(facts(depth, many, "claim p99"), facts(depth, few, "claim p99"))
        yield f"| p99 of a claim, 10⁶ queued over 10⁴ | ≤ 1.5 | {ratio(waits)} | {by(depth)} |"
        yield f"| processor time per job, 10⁶ queued over 10⁴ | ≤ 1.10 | {ratio(compare_costs([depth], many, few))} | {by(depth)} |"
    servers = result("scale_servers")
    if servers is not None:
        cost_ratio = compare_costs([servers], "4 servers", "1 server")
        yield f"| processor time per job, four servers over one | 0.85 to 1.15 | {ratio(cost_ratio)} | {by(servers)} |"
    for store, name in STORES.items():
        pruned = result(f"prune-{store}")
        if pruned is not None:
            text = f"{ratio(compare([pruned], 'prune', 'write'))} in {name} ({median(rates(pruned, 'prune')):,.0f} per second)"
            yield f"| old jobs removed for each job written | ≥ 1 | {text} | {by(pruned)} |"
    yield ""


def pictures() -> Iterator[tuple[str, str]]:
    yield from ()
