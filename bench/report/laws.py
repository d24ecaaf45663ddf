"""Laws of scale: what must not grow with the number of jobs, and what was measured of it."""

from __future__ import annotations

from collections.abc import Iterator

from bench.report.results import result

STORES = {"postgresql": "PostgreSQL", "sqlite": "SQLite", "opensearch": "OpenSearch"}


def section() -> Iterator[str]:
    yield from (
        "## Laws of scale",
        "",
        "What must not grow with the number of jobs. The same commands run at a small size with every change (`just bench-smoke`, `tests/unit/bench`) and fail the build on a violation.",
        "",
        "| what | law | measured | by |",
        "| --- | --- | --- | --- |",
    )
    flow = result("flow_scale_1000000")
    if flow is not None:
        large, small = flow["figures"]["large"], flow["figures"]["small"]
        if small:
            cost = sum(large["cpu"].values()) / sum(small[0]["cpu"].values())
            yield f"| processor time per job, 10⁶ over 10⁴ | ≤ 1.10 | {cost:.2f} | `just bench flow_scale` |"
        yield f"| events in Temporal's history per job | ≤ 0.02 | {large['events_a_job']:.4f} at 10⁶ | `just bench flow_scale` |"
        yield f"| events of one workflow execution | ≤ 8,000 | {large['largest_run']:,} at 10⁶ | `just bench flow_scale` |"
        yield f"| a flow of 10⁶ jobs continues after a kill of everything | ≤ 5 s | {large['recovery']:.1f} s to the next completion, {large['case_answers']:.1f} s until the run answers | `just bench flow_scale` |"
    depth = result("scale_depth")
    if depth is not None:
        waits = depth["figures"]["claim p99, seconds"]
        yield f"| p99 of a claim, 10⁶ queued over 10⁴ | ≤ 1.5 | {waits['1000000 queued'] / waits['10000 queued']:.2f} | `just bench scale depth` |"
        yield f"| processor time per job, 10⁶ queued over 10⁴ | ≤ 1.10 | {depth['figures']['cost at many over cost at few']:.2f} | `just bench scale depth` |"
    servers = result("scale_servers")
    if servers is not None:
        yield f"| processor time per job, four servers over one | 0.85 to 1.15 | {servers['figures']['cost with several servers over cost with one']:.2f} | `just bench scale servers` |"
    pruned = {
        store: found_result["figures"] for store in STORES if (found_result := result(f"prune-{store}")) is not None
    }
    if pruned:
        text = ", ".join(
            f"{figures['removed_to_written']['median']:.1f} in {name} ({figures['removed_each_second']:,} per second)"
            for name, figures in ((STORES[store], figures) for store, figures in pruned.items())
        )
        yield f"| old jobs removed for each job written | ≥ 1 | {text} | `just bench prune --store …` |"
    yield ""


def pictures() -> Iterator[tuple[str, str]]:
    yield from ()
