"""The twelve benchmarks, each with its goal, what was reached, and what was not compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench.harness import paired
from bench.report import beside
from bench.report.results import ratio, result, when

Figures = dict[str, Any]
Read = Callable[[Figures], tuple[str, bool]]
"""The figure in words, and whether the goal is reached, by its bound and not by its median where there is one."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One of the twelve."""

    number: int
    name: str
    command: str
    kept: str
    """The file of its results; empty: it is not kept as one."""
    goal: str
    read: Read | None
    missing: str = ""


def _durable(figures: Figures) -> tuple[str, bool]:
    value = figures["forestay over bare"]
    return f"{ratio(value)} × bare Temporal activities", value["low"] >= 30


def _claims(figures: Figures) -> tuple[str, bool]:
    bulk, single = figures["of bare bulk"], figures["times bare single"]
    return (
        f"{ratio(bulk)} of bare bulk writes; {ratio(single)} × bare single ones",
        bulk["low"] >= 0.8 and single["low"] >= 12,
    )


def _contention(figures: Figures) -> tuple[str, bool]:
    ours, naive = figures["forestay"], figures["naive"]
    wasted = "wasted writes a claim, worst round"
    return (
        f"{ours[wasted]:.4f} wasted writes per claim, naive {naive[wasted]:.0f}; {ours['claimed twice']} claimed twice",
        ours[wasted] <= 0.02 and not ours["claimed twice"],
    )


def _latency(figures: Figures) -> tuple[str, bool]:
    pairs = paired(figures["seconds"]["claim"], figures["seconds"]["bare, beside claim"])
    return (
        f"{pairs.median:.3f} ({pairs.low:.3f} to {pairs.high:.3f}, {pairs.pairs} pairs) of a bare Temporal activity, submission to claim{beside.latency(figures)}",
        pairs.high <= 0.15,
    )


def _makespan(figures: Figures) -> tuple[str, bool]:
    worst = figures["worst over bound, look-ahead"]
    return (
        f"{figures['over bound, look-ahead']:.3f} × the clairvoyant bound with real pilots, {worst:.3f} at worst",
        worst <= 1.03,
    )


def _staging(figures: Figures) -> tuple[str, bool]:
    disk, wire, hit = figures["of dd"], figures["of raw loopback"], figures["hit by hard link"]
    good = disk["low"] >= 0.92 and wire["low"] >= 0.9 and figures["amplification"] <= 1 and hit["high"] <= 10
    return (
        f"{ratio(disk)} of `dd`, {ratio(wire)} of a bare socket, {figures['amplification']:.2f} × the least bytes, a hit {hit['median']:.1f} × a hard link",
        good,
    )


def _rules(figures: Figures) -> tuple[str, bool]:
    some, many = figures["10000"], figures["100000"]
    return (
        f"{some['decision']['indexed']['cpu']:.0f} µs per decision with 10⁴ rules, {many['decision']['indexed']['cpu']:.0f} µs with 10⁵ (without the index {some['decision']['evaluated']['cpu'] / 1e3:.0f} ms with 10⁴){beside.conditions()}",
        many["decision"]["indexed"]["cpu"] <= 5,
    )


def _breadth(figures: Figures) -> tuple[str, bool]:
    large = figures["large"]
    most = max(large["peak_bytes"].values()) / (1 << 20)
    return (
        f"10⁶ jobs accepted in {large['accepted_in']:.0f} s, {most:.0f} MiB at most in a process, {large['events_a_job']:.4f} events per job",
        large["accepted_in"] <= 60 and most <= 1024,
    )


def _control(figures: Figures) -> tuple[str, bool]:
    return (
        f"10⁵ pilots: heartbeats cost {figures['beat cost, cores']:.2f} core, {figures['claims a second']:.0f} concurrent claims per second, p99 {figures['p99 ratio']:.2f} × that of 10³",
        figures["beat cost, cores"] <= 0.25 and figures["claims a second"] >= 2000 and figures["p99 ratio"] <= 2,
    )


TWELVE = (
    Benchmark(1, "durable dispatch", "just bench durable --rounds 8", "durable", "≥ 30 ×", _durable),
    Benchmark(
        2,
        "against executors",
        "just bench executor --peers parsl,dask,celery,dbos --honest --rounds 7",
        "executor",
        "≥ 3 × each",
        beside.executors,
        beside.calls_missing(),
    ),
    Benchmark(
        3, "claim efficiency", "just bench claim_efficiency", "claim_efficiency", "≥ 0.80 of bulk, ≥ 12 × single", _claims
    ),
    Benchmark(
        4,
        "contention",
        "just bench contention --rounds 2",
        "contention",
        "≤ 0.02, none twice",
        _contention,
        "10⁷ commits; a second run had 0.022",
    ),
    Benchmark(
        5, "latency", "just bench start_latency --rounds 40", "start_latency", "≤ 0.15", _latency
    ),
    Benchmark(
        6,
        "lost pilots",
        "just bench lost_pilots --peers dask,parsl --silence 60 --rounds 2 --no-defaults --name lost_pilots_60",
        "lost_pilots_60",
        "a kill ≤ 1 s, silence ≤ 1.25 leases",
        beside.lost_pilots,
        "Temporal's heartbeat",
    ),
    Benchmark(
        7,
        "commits under chaos",
        "just chaos release",
        "chaos_release",
        "0, 0, 0 in 10⁶ jobs",
        beside.commits,
        "10⁶ jobs and 10⁴ kills; Celery and Dask under the same",
    ),
    Benchmark(
        8,
        "makespan with caches",
        "just bench pilots real",
        "pilots_real",
        "≤ 1.03 × the bound",
        _makespan,
        "the simulation meets the goal; real jobs of 4 s cost 0.3 s more each",
    ),
    Benchmark(9, "staging", "just bench staging --rounds 5 --memory", "staging", "≥ 0.92, ≥ 0.90, ≤ 1.00, ≤ 10 ×", _staging),
    Benchmark(
        10, "rules", "just bench rules", "rules", "≤ 5 µs with 10⁵ rules", _rules
    ),
    Benchmark(
        11,
        "breadth of flows",
        "just bench flow_scale --jobs 1000000 --beside 10000",
        "flow_scale_1000000",
        "≤ 60 s, ≤ 1 GiB",
        _breadth,
        beside.breadth_missing(),
    ),
    Benchmark(
        12,
        "control plane",
        "python -m bench.control_plane --many 100000",
        "control_plane",
        "≤ 0.25 core, ≥ 2,000 a second, ≤ 2 ×",
        _control,
    ),
)  # fmt: skip


def section() -> Iterator[str]:
    yield from (
        "## The twelve benchmarks",
        "",
        "A goal is met if the worse end of the 95 % interval of the pairs meets it. *Not compared* is what the benchmark should have been compared with and was not.",
        "",
        "| # | what | command | figure | goal | met | measured | not compared |",
        "| --: | --- | --- | --- | --- | --- | --- | --- |",
    )
    for benchmark in TWELVE:
        found_result = result(benchmark.kept) if benchmark.kept else None
        if found_result is None or benchmark.read is None:
            yield f"| {benchmark.number} | {benchmark.name} | `{benchmark.command}` | not completed yet, see [benchmarks](benchmarks.md) | {benchmark.goal} | – | – | {benchmark.missing or '–'} |"
            continue
        text, reached = benchmark.read(found_result["figures"])
        yield f"| {benchmark.number} | {benchmark.name} | `{benchmark.command}` | {text} | {benchmark.goal} | {'yes' if reached else 'no'} | {when(found_result)} | {benchmark.missing or '–'} |"
    yield ""
    yield from beside.section()


def pictures() -> Iterator[tuple[str, str]]:
    yield from beside.pictures()
