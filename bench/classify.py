"""Classification: how many records of evidence a second are answered by one core, with logs of some kilobytes.

    just bench classify
    just bench classify --characters 6600 --times 5

The logs are failures from public trackers (tests/unit/packs) behind ordinary output and harmless warnings, up to the length asked for. What is measured is what `forestay classify` does with a line:
read it, find its cause, make the answer. The CPU time of the process counts, so that others on the machine disturb little.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

from bench.harness import keep, leave
from forestay.formats.rules.classified import answer
from forestay.formats.rules.pack_folder import shipped_packs

GOAL = 1_000
COLLECTED = Path(__file__).parents[1] / "tests" / "unit" / "packs"


def records(characters: int) -> list[bytes]:
    """Every third failure that was collected, each behind other ordinary output."""
    chance = random.Random(5)
    ordinary = (COLLECTED / "ordinary_output.txt").read_text(encoding="utf-8").splitlines()
    records = []
    for file in sorted(COLLECTED.glob("unseen_*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines()[::3]:
            record = {name: value for name, value in json.loads(line).items() if name not in ("expect", "source")}
            log = str(record.get("log_tail", ""))
            ahead: list[str] = []
            while sum(len(name) + 1 for name in ahead) + len(log) < characters:
                ahead.append(f"{chance.choice(ordinary)} {chance.randrange(10**6):x}")
            record["log_tail"] = "\n".join([*ahead, log])
            records.append(json.dumps(record).encode())
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--characters", type=int, default=6_600)
    parser.add_argument("--times", type=int, default=5)
    asked = parser.parse_args()
    classifier = shipped_packs().classifier()
    lines = records(asked.characters)
    for line in lines:
        answer(line, classifier)
    rates = []
    for _ in range(asked.times):
        begun = time.process_time()
        for line in lines:
            answer(line, classifier)
        rates.append(len(lines) / (time.process_time() - begun))
    best = max(rates)
    print(
        f"{len(lines)} records of {sum(map(len, lines)) / len(lines):.0f} bytes: {best:.0f} a second of CPU (from {min(rates):.0f})"
    )
    print(f"≥ {GOAL} a second: {'reached' if best >= GOAL else 'not reached'}")
    print(f"raw figures in {keep('classify', [], {'rates': rates, 'characters': asked.characters})}", file=sys.stderr)
    leave(reached=best >= GOAL)


if __name__ == "__main__":
    main()
