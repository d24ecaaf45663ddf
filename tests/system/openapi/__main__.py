"""`python -m tests.system.openapi`: cases by our own description against real processes, and what their answers broke."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts import openapi
from tests.system.openapi.campaign import Outcome, campaign
from tests.system.openapi.ground import ground


async def _run(asked: argparse.Namespace) -> int:
    api = json.loads(openapi.described())
    with TemporaryDirectory(prefix="forestay-openapi-") as folder:
        async with ground(asked.store, Path(folder)) as made:
            outcome = await asyncio.to_thread(
                campaign, made, api, cases=asked.cases, first=asked.seed, most_seconds=asked.seconds, only=asked.only
            )
            torn = made.log.count("Traceback")
    _tell(outcome, torn, asked.refused)
    if asked.keep:
        asked.keep.write_text(json.dumps([asdict(broken) for broken in outcome.broken.values()], indent=1))
    return 1 if outcome.broken or outcome.server_errors or torn else 0


def _tell(outcome: Outcome, torn: int, number: int) -> None:
    lines = [
        f"\n{broken.operation}: {broken.check}, {broken.status}\n{broken.words}\n{broken.curl}\n{broken.answer}"
        for broken in outcome.broken.values()
    ]
    lines += [
        f"allowed and refused {many} times: {label}: {place}"
        for (label, place), many in outcome.refused.most_common(number)
    ]
    silent = sorted(set(outcome.asked) - set(outcome.reached))
    slowest = sorted(outcome.slowest.items(), key=lambda pair: -pair[1])[:5]
    lines += [
        "\nslowest answers: " + ", ".join(f"{label} {seconds:.1f} s" for label, seconds in slowest),
        f"never answered well: {', '.join(silent) or 'none'}",
        f"cases {outcome.cases} in {outcome.seconds:.0f} s, operations {len(outcome.asked)}",
        f"answers {dict(sorted(outcome.statuses.items()))}",
        f"answers 5xx {outcome.server_errors}, broken promises {len(outcome.broken)}, tracebacks in the logs {torn}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m tests.system.openapi", description=__doc__)
    words.add_argument("--cases", type=int, default=10_000)
    words.add_argument("--store", choices=("sqlite", "postgresql", "opensearch"), default="postgresql")
    words.add_argument("--seconds", type=float, default=3600.0, help="stop after so long")
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--only", default="", help="operations with this in their name")
    words.add_argument("--refused", type=int, default=0, help="tell so many refusals of what the description allows")
    words.add_argument("--keep", type=Path, help="write what broke to this file")
    return asyncio.run(_run(words.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
