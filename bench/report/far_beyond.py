"""Ten million jobs and a hundred thousand pilots, simulated, and how large an installation must be for one's own numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.pilots.plot import BLUE, GREEN, ORANGE, Bars, bars
from bench.report.results import percent, result, when
from forestay.client.api.sizing import MEASURED, Load, plan

LOADS = ((1e4, 100), (1e5, 1_000), (1e6, 10_000), (1e7, 10_000), (1e7, 100_000), (1e8, 100_000))
POWERS = "⁰¹²³⁴⁵⁶⁷⁸⁹"


def power(number: float) -> str:
    """A size, rounded to the next power of ten."""
    exponent = 0
    while 10 ** (exponent + 0.5) < number:
        exponent += 1
    return f"10{POWERS[exponent]}"


def section() -> Iterator[str]:
    found_result = result("pilots_scale_arrays")
    if found_result is not None:
        yield from _simulated(found_result)
    yield from _sizing()


def _simulated(fields: dict[str, Any]) -> Iterator[str]:
    rows = fields["figures"]["rows"]
    yield from (
        "## Ten million jobs",
        "",
        f"`just bench pilots arrays`; {when(fields)}.",
        "",
        "W1, W2 and W3 of [the experiments](../explanation/experiments.md) with look-ahead and re-staging under d2f2, a hundred jobs per pilot, with arrays (`bench/pilots/kernel.py`). It is valid because it agrees with the simulation that runs the code of servers and pilots",
        "wherever both were run; a test repeats this at 10³ and 10⁴ jobs.",
        "",
        "| flow | jobs | pilots | turnaround ÷ bound | hit ratio | claims per second | events per job | difference in makespan, hit ratio | processor time | jobs per second | memory |",
        "| --- | --: | --: | --: | --: | --: | --: | --- | --: | --: | --: |",
    )
    for row in rows:
        off = row.get("off")
        far = f"{100 * off['makespan']:+.2f} %, {100 * off['hit ratio']:+.2f} points" if off else "–"
        yield (
            f"| {row['workload']} | {row['jobs']:,} | {row['pilots']:,} | {row['makespan'] / row['bound']:.4f} | {row['hit ratio']:.4f} | {row['claims a second']:.1f} | {row['events'] / row['jobs']:.2f} | {far} |"
            f" {row['cpu']:.2f} s | {row['jobs a second']:,} | {row['memory'] / (1 << 20):.0f} MiB |"
        )
    largest = max(rows, key=lambda row: (row["jobs"], row["claims a second"]))
    each = (
        MEASURED.server_job
        + MEASURED.store_job
        + MEASURED.reconciler_job
        + MEASURED.orchestrator_job
        + MEASURED.temporal_job
    )
    share = largest["claims a second"] * each
    yield from (
        "",
        f"The cost: at {1e6 * each:.0f} µs of processor time per job (`just bench flow_scale`), {largest['jobs']:,} jobs are {largest['jobs'] * each / 3600:.1f} core-hours of servers, store, reconcilers, orchestrators and Temporal; with jobs of about {largest['pilots'] / largest['claims a second']:.0f} s on {largest['pilots']:,} pilots that is",
        f"{largest['claims a second']:.0f} claims per second and {percent(share)} of one core, in addition to the heartbeats. This is a simulation; the largest real flow had 10⁶ jobs.",
        "",
        "![Turnaround over the clairvoyant bound](proof-ten-million.svg)",
        "",
    )


def _sizing() -> Iterator[str]:
    yield from (
        "## Sizing an installation",
        "",
        "`forestay plan --jobs-per-day N --pilots N`, from measured costs; leases of ten minutes, a peak of five times the mean, 5 % of attempts fail, completed jobs are kept for 30 days. Measure a tenth of the load first.",
        "",
        "| jobs per day | pilots | profile | servers | reconcilers | orchestrators | store nodes × cores | shards | store, GB | history events per day | cores at the peak, total |",
        "| --: | --: | --- | --: | --: | --: | --: | --: | --: | --: | --: |",
    )
    for jobs, pilots in LOADS:
        made = plan(Load(jobs, pilots))
        cores = (
            made.server_cores + made.reconciler_cores + made.orchestrator_cores + made.store_cores + made.temporal_cores
        )
        yield (
            f"| {power(jobs)} | {power(pilots)} | {made.profile} | {made.servers} | {made.reconcilers} | {made.orchestrators} | {made.store_nodes} × {made.store_cores_each} | {made.shards} |"
            f" {made.store_bytes / 1e9:,.0f} | {made.temporal_events_per_day:,.0f} | {cores:.1f} |"
        )
    yield ""


def pictures() -> Iterator[tuple[str, str]]:
    found_result = result("pilots_scale_arrays")
    if found_result is None:
        return
    rows = found_result["figures"]["rows"]
    flows = list(dict.fromkeys(row["workload"] for row in rows))
    sizes = list(dict.fromkeys(power(row["jobs"]) for row in rows))
    series = [
        Bars(
            flow,
            [
                100
                * (
                    next(
                        row["makespan"] / row["bound"]
                        for row in rows
                        if row["workload"] == flow and power(row["jobs"]) == size
                    )
                    - 1
                )
                for size in sizes
            ],
            [0.0] * len(sizes),
            colour,
        )
        for flow, colour in zip(flows, (BLUE, ORANGE, GREEN), strict=False)
    ]
    yield "proof-ten-million.svg", bars("Turnaround beyond the clairvoyant bound, by jobs", sizes, series, "per cent")
