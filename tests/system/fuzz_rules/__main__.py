"""Fuzz the conditions of rules: `just fuzz-rules --count 1000000`."""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor

from tests.system.fuzz_rules.campaign import Report, campaign

BATCH = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description="Tries fuzzed rules and looks for an act on an error.")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    batches = [
        (min(BATCH, asked.count - done), asked.seed + place) for place, done in enumerate(range(0, asked.count, BATCH))
    ]
    whole = Report()
    with ProcessPoolExecutor(asked.jobs) as pool:
        for part in pool.map(campaign, *zip(*batches, strict=True)):
            whole.add(part)
            sys.stderr.write(f"\r{whole.counts['texts']} texts, {len(whole.violations)} violations")
    sys.stderr.write("\n")
    sys.stdout.write(
        json.dumps(
            {**whole.counts, "violations": len(whole.violations), "slowest_ms": round(whole.slowest, 1)}, indent=2
        )
        + "\n"
    )
    for violation in whole.violations[:20]:
        sys.stderr.write(violation + "\n")
    sys.exit(1 if whole.violations else 0)


if __name__ == "__main__":
    main()
