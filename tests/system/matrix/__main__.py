"""The whole matrix: every failure at every stage by every submission pattern, with its cost; written to a JSON file.

`python -m tests.system.matrix [--only FAILURE/STAGE,…] [--to FILE]`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.system.matrix.cells import FAILURES, NOT_YET, SHOWN, STAGES, UNMEASURED, why_not
from tests.system.matrix.measure import measure_cell
from tests.system.matrix.scenarios import SCENARIOS, Scenario
from tests.system.matrix.site import FailureSite, failure_site
from tests.system.matrix.submitters import Submission

RESULT = Path(__file__).parents[3] / "docs" / "reference" / "failure-matrix.json"


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def run_all(site: FailureSite, scenarios: Sequence[Scenario], place: Path) -> tuple[list[dict[str, Any]], int]:
    """Every cell, one after the other; a failure that is not recovered is told, and the next failure is tried."""
    cells, broken = [], 0
    for scenario in scenarios:
        for way in Submission:
            if way.value in scenario.skips:
                continue
            began = time.monotonic()
            name = f"{scenario.failure} × {scenario.stage} × {way.value}"
            try:
                cell = measure_cell(site, scenario, way)
            except Exception:
                broken += 1
                say(f"FAILED {name}\n{traceback.format_exc()}")
                break
            cells.append(asdict(cell))
            say(
                f"{time.monotonic() - began:6.1f} s  {name}: {cell.state}, +{cell.extra_wall} s, +{cell.extra_attempts} attempts",
            )
        place.write_text(_text(_figures(cells, place)))
    return cells, broken


def _text(figures: dict[str, Any]) -> str:
    """As JSON, one cell a line, so that what changed is seen."""
    parts = []
    for name, value in figures.items():
        lines = [json.dumps(entry, ensure_ascii=False) for entry in value] if isinstance(value, list) else []
        inner = "[\n  " + ",\n  ".join(lines) + "\n ]" if lines else json.dumps(value)
        parts.append(f' "{name}": {inner}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _figures(cells: list[dict[str, Any]], place: Path) -> dict[str, Any]:
    """The whole table: what was measured now, and what was measured before and not again."""
    again = {(cell["failure"], cell["stage"]) for cell in cells}
    before = json.loads(place.read_text())["cells"] if place.exists() else []
    kept = [entry for entry in before if (entry["failure"], entry["stage"]) not in again]
    known = {(entry["failure"], entry["stage"], entry["submission"]): entry for entry in [*kept, *cells]}
    every = [(failure, stage, way) for failure in FAILURES for stage in STAGES for way in Submission]
    fields = {(failure, stage, way.value): why_not(failure, stage, way) for failure, stage, way in every}
    fields = {
        name: (NOT_YET, UNMEASURED) if kind == SHOWN and name not in known else (kind, why)
        for name, (kind, why) in fields.items()
    }
    return {
        "cores": os.cpu_count(),
        "failures": list(FAILURES),
        "stages": list(STAGES),
        "submissions": [way.value for way in Submission],
        "cells": [known[name] for name, (kind, _) in fields.items() if kind == SHOWN and name in known],
        "empty": [
            {"failure": failure, "stage": stage, "submission": way, "kind": kind, "why": why}
            for (failure, stage, way), (kind, why) in fields.items()
            if (failure, stage, way) not in known
        ],
    }


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only",
        default="",
        help="such as `disk,host lost/queue`: failures, or FAILURE/STAGE; the others stay as they were measured",
    )
    parser.add_argument("--to", type=Path, default=RESULT)
    args = parser.parse_args()
    wanted = args.only.split(",")
    chosen = [
        scenario for scenario in SCENARIOS if any(word in f"{scenario.failure}/{scenario.stage}" for word in wanted)
    ]
    with tempfile.TemporaryDirectory() as folder:
        async with failure_site(Path(folder), free_tries="0,0") as site:
            cells, broken = await asyncio.to_thread(run_all, site, chosen, args.to)
    say(f"{len(cells)} cells, {broken} failed")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
