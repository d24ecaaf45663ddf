"""What the metadata buys: `just metadata-value` measures at full size and writes bench/results/metadata_value.json.

`python -m tests.system.metadata [--each N] [--jobs N] [--rounds N] [--no-keep]`
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from bench.harness import keep
from tests.system.matrix.site import failure_site
from tests.system.metadata.diagnosis import diagnose, records, summary
from tests.system.metadata.mixed_load import Done, in_turns


def told(loads: list[Done]) -> dict[str, Any]:
    """Means of each arm."""
    names = ("completed", "wide_completed", "urgent_in_time", "urgent_seconds", "extra_attempts", "seconds")
    return {
        word: {name: mean(getattr(load, name) for load in loads if load.metadata is metadata) for name in names}
        for word, metadata in (("with", True), ("without", False))
    }


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=1, help="every so-manieth record")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--no-keep", action="store_true", help="write no results")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        async with failure_site(Path(folder), free_tries="0,0") as site:
            diagnosed, seconds = await asyncio.to_thread(diagnose, site, records(args.each))
            loads = await asyncio.to_thread(in_turns, site, args.jobs, args.rounds)
    figures = {
        "diagnosis": summary(diagnosed, seconds),
        "mixed load": told(loads) | {"jobs": args.jobs, "rounds": args.rounds},
        "load": [load, os.getloadavg()[0]],
        "loads": [asdict(other_load) for other_load in loads],
    }
    sys.stderr.write(f"{figures['diagnosis']}\n{figures['mixed load']}\n")
    if not args.no_keep:
        sys.stderr.write(f"raw figures in {keep('metadata_value', [], figures)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
