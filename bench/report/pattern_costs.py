"""What each fault-tolerant pattern costs, by each way to submit (`just pattern-costs`)."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from bench.pilots.plot import BLUE, ORANGE, Bars, bars
from bench.report.results import result, when


def section() -> Iterator[str]:
    found_result = result("pattern_cost")
    if found_result is None:
        return
    figures = found_result["figures"]
    yield from (
        "## What a fault-tolerant pattern costs",
        "",
        f"`just pattern-costs`; {when(found_result)}; {figures['rounds']} rounds, alternating with and without the failure, on one real server, reconciler and host with SQLite.",
        "",
        "The same job with and without its failure, submitted in each of the four ways of [paper P0](../explanation/papers.md) (section 3A), and recovered by each of its patterns (section 4). *Requests* are those of the submitter,",
        "*callbacks* the notifications to it, *host* the requests of the host that ran the job. Medians; processor time is the mean, of server and reconciler together. A polling submitter",
        f"polls every {figures['asks_every']:g} s.",
        "",
        "| pattern | failure | submission | requests | callbacks | host | seconds | server and reconciler, ms |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    )
    for row in figures["rows"]:
        clean, hurt = row["clean"], row["hurt"]
        yield (
            f"| {row['pattern']} | {figures['faults'][row['pattern']]} | {row['submission']} | {_change(clean, hurt, 'asked')} | {_change(clean, hurt, 'told')} | {_change(clean, hurt, 'host_asked')} |"
            f" {clean['wall']:.2f} → {hurt['wall']:.2f} | {1e3 * clean['control_cpu']:.0f} → {1e3 * hurt['control_cpu']:.0f} |"
        )
    quiet = [
        row
        for row in figures["rows"]
        if row["submission"] != "polling" and row["clean"]["asked"] == row["hurt"]["asked"]
    ]
    others = [row for row in figures["rows"] if row["submission"] != "polling"]
    yield from (
        "",
        f"In {len(quiet)} of {len(others)} cells without polling, the submitter sends no additional message when the job is recovered: it does not notice the failure. A polling submitter polls for as long as the job takes. In addition,",
        "[the failure matrix](failure-matrix.md) has the extra time and attempts of every failure, at every stage, for these and other patterns (lost hosts and servers, a person who intervenes).",
        "",
        "![Seconds from the request to the result, with and without the failure](proof-patterns.svg)",
        "",
    )


def _change(clean: dict[str, Any], hurt: dict[str, Any], name: str) -> str:
    first, other = clean[name], hurt[name]
    return f"{first:g}" if first == other else f"{first:g} → {other:g}"


def pictures() -> Iterator[tuple[str, str]]:
    found_result = result("pattern_cost")
    if found_result is None:
        return
    rows = found_result["figures"]["rows"]
    names = list(dict.fromkeys(row["pattern"] for row in rows))
    series = [
        Bars(
            word,
            [median(row[arm]["wall"] for row in rows if row["pattern"] == name) for name in names],
            [0.0] * len(names),
            colour,
        )
        for word, arm, colour in (
            ("without the failure", "clean", BLUE),
            ("with the failure, recovered", "hurt", ORANGE),
        )
    ]
    yield (
        "proof-patterns.svg",
        bars("What a pattern costs (median of the four ways to submit)", names, series, "seconds"),
    )
