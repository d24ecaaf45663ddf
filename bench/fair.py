"""Classification of failures that nobody tuned on: how often cause and retry are acceptable, and what would do harm.

    just bench fair
    just bench fair --wrong

The failures are those of `tests/unit/packs/fair_2026.jsonl`; the card beside it says where they come from and how they were labelled. Figures of them are reported. Nothing is ever changed to raise them.
"""

from __future__ import annotations

import argparse
import sys

from tests.unit.packs.long_logs import fair, scored

from bench.harness import keep
from forestay.formats.rules.pack_folder import shipped_packs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--wrong", action="store_true", help="list the wrong answers")
    asked = parser.parse_args()
    score = scored(fair(), shipped_packs().classifier().classify)
    rows = {
        "cause accepted": (score.accepted, "≥ 90 %"),
        "the best cause": (score.best, ""),
        "sure and wrong": (score.sure_and_wrong, "≤ 1 %"),
        "retry acceptable": (score.retry, "≥ 93 %"),
        "retry harmful": (score.harmful, "≤ 1 %"),
        "may act": (score.acts, "≥ 70 %"),
        "wrong when it may act": (score.acts_wrongly, "≤ 2 %"),
    }
    print(f"{score.accepted.all} failures; share, its 95 % interval and its goal")
    for name, (share, goal) in rows.items():
        print(f"{name:24} {share!s:24} {goal}")
    if asked.wrong:
        print("causes:", *(f"    {line}" for line in score.wrong), sep="\n")
        print("retries:", *(f"    {line}" for line in score.wrong_retries), sep="\n")
    figures = {name: [share.of, share.all, *share.interval] for name, (share, _) in rows.items()}
    raw = {"wrong": score.wrong, "wrong_retries": score.wrong_retries}
    print(f"raw figures in {keep('fair', [], {**figures, **raw})}", file=sys.stderr)


if __name__ == "__main__":
    main()
