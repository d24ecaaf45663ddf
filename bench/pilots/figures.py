"""Figures 6 to 12 of the paper, drawn anew from our own runs, and one more for what goes beyond it.

    just bench pilots figures

Reads bench/results/pilots_simulation.json, writes docs/explanation/figures/*.svg. ``--check`` writes nothing and says whether they are up to date.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.harness import RESULTS
from bench.pilots.arms import ALONE, C1, C2, C3, FLOWING, LOOK_AHEAD, NO_CACHE, RESTAGE, SITE, WRITE_BEHIND
from bench.pilots.draws import CONDITIONS
from bench.pilots.plot import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, YELLOW, Bars, Line, bars, lines
from bench.pilots.workloads import WORKLOADS

FOLDER = Path(__file__).parents[2] / "docs" / "explanation" / "figures"
SHOWN = {
    NO_CACHE.name: "no cache",
    C1.name: "C1: per host",
    C2.name: "C2: per pilot",
    C3.name: "C3: per host, waitForData",
    SITE.name: "site cache, re-stage",
    LOOK_AHEAD.name: "look-ahead, re-stage",
}
"""The arms of the figures, and how they are called there."""
COLOURS = {
    NO_CACHE.name: GREY, ALONE.name: YELLOW, C1.name: ORANGE, C2.name: SKY, C3.name: BLUE,
    FLOWING.name: SKY, RESTAGE.name: ORANGE, SITE.name: GREEN, LOOK_AHEAD.name: PURPLE, WRITE_BEHIND.name: RED,
}  # fmt: skip
WAYS = {
    "direct": ("direct submission", GREY),
    "running": ("running pilots", BLUE),
    "on demand": ("pilots on demand", ORANGE),
}


def found() -> dict[str, Any]:
    """The figures of the last simulation."""
    read: dict[str, Any] = json.loads((RESULTS / "pilots_simulation.json").read_text())["figures"]
    return read


def _series(
    rows: Sequence[dict[str, Any]],
    figure: str,
    groups: Sequence[dict[str, str]],
    names: dict[str, str],
    over: float = 1.0,
) -> list[Bars]:
    series = []
    for arm, shown in names.items():
        values = [
            next(
                row[figure]
                for row in rows
                if row["arm"] == arm and row["submission"] == "running" and all(row[key] == group[key] for key in group)
            )
            for group in groups
        ]
        series.append(
            Bars(
                shown,
                [value["mean"] / over for value in values],
                [value["deviation"] / over for value in values],
                COLOURS[arm],
            )
        )
    return series


def drawn() -> Iterator[tuple[str, str]]:
    """Each figure's file name and text."""
    known = found()
    rows, seeds = known["rows"], known["seeds"]
    by_condition = [{"workload": "W1", "condition": condition} for condition in CONDITIONS]
    by_workload = [{"workload": workload, "condition": "d3f3"} for workload in WORKLOADS]
    conditions, workloads = list(CONDITIONS), ["W1 (chain)", "W2 (splitting)", "W3 (merging)"]
    many = f"{seeds} seeds, mean and standard deviation"

    tier0 = [
        Bars(shown, [entry["makespan"]["mean"] / 60], [entry["makespan"]["deviation"] / 60], colour)
        for (shown, colour), entry in zip(
            (
                ("direct submission, no cache", YELLOW),
                ("pilots, no cache", GREY),
                ("pilots, C3", BLUE),
                ("pilots, site cache and re-stage", GREEN),
            ),
            known["tier0"],
            strict=True,
        )
    ]
    yield (
        "figure-06",
        bars(f"Figure 6: turnaround of the Tier0 flow ({many})", ["172 jobs on 10 hosts × 4"], tier0, "minutes"),
    )
    timelines = [
        Line(shown, [(at / 60, count) for at, count in known["running"][way]], colour)
        for way, (shown, colour) in WAYS.items()
    ]
    yield "figure-07", lines("Figure 7: running jobs of W3, three ways to submit", timelines, "minutes", "running jobs")
    yield (
        "figure-08",
        bars(
            f"Figure 8: stage-in of a job of W1 ({many})",
            conditions,
            _series(rows, "stage_in", by_condition, SHOWN),
            "seconds",
        ),
    )
    yield (
        "figure-09",
        bars(
            f"Figure 9: turnaround of W1 ({many})",
            conditions,
            _series(rows, "makespan", by_condition, SHOWN, 60),
            "minutes",
        ),
    )
    yield (
        "figure-10",
        bars(
            f"Figure 10: stage-in of a job under d3f3 ({many})",
            workloads,
            _series(rows, "stage_in", by_workload, SHOWN),
            "seconds",
        ),
    )
    yield (
        "figure-11",
        bars(
            f"Figure 11: turnaround under d3f3 ({many})",
            workloads,
            _series(rows, "makespan", by_workload, SHOWN, 60),
            "minutes",
        ),
    )
    hits = {ALONE.name: "per pilot, no waitForData"} | {name: SHOWN[name] for name in (C1.name, C2.name, C3.name)}
    hits |= {LOOK_AHEAD.name: SHOWN[LOOK_AHEAD.name]}
    normal = [{"workload": workload, "condition": "d1f1"} for workload in WORKLOADS]
    yield (
        "figure-12",
        bars(
            f"Figure 12: cache hit ratio ({many})",
            workloads,
            _series(rows, "hit_ratio", normal, hits),
            "share of reads",
            high=1.0,
        ),
    )
    retry_policy = {
        C3.name: "C3, as in the paper",
        FLOWING.name: "+ no barrier",
        RESTAGE.name: "+ re-stage",
        SITE.name: "+ site cache",
        LOOK_AHEAD.name: "re-stage + look-ahead",
        WRITE_BEHIND.name: "+ write-behind",
    }
    yield "beyond", bars(
        f"Turnaround over the clairvoyant bound under d3f3 ({many})",
        workloads, _series(rows, "over_bound", by_workload, retry_policy), "turnaround ÷ bound",
    )  # fmt: skip


def write(say: Callable[[str], None], *, check: bool = False) -> bool:
    """Write all figures, or look whether they are what the results say."""
    fresh = True
    FOLDER.mkdir(exist_ok=True)
    for name, text in drawn():
        path = FOLDER / f"{name}.svg"
        if not path.exists() or path.read_text() != text:
            fresh = False
            if not check:
                path.write_text(text)
            say(f"{path.name} {'is not up to date' if check else 'written'}")
    return fresh or not check
