"""Classification of long logs: how often the cause is right when a failure stands in 400 lines of ordinary output, with errors that the program survived and with consequences.

    just bench long_logs
    just bench long_logs --fold tune --wrong

The failures are those of tests/unit/packs, in two folds by repository; `tests/unit/packs/long_logs.py` says how the logs are made. Constants are chosen on the fold `tune`, and figures of the
fold `report` are published. Also prints how many logs of 400 lines a second one core classifies.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.unit.packs.long_logs import Fold, Surroundings, long_logs, scored

from bench.harness import keep
from forestay.formats.rules.pack_folder import shipped_packs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--fold", type=Fold, choices=list(Fold), default=Fold.REPORT)
    parser.add_argument("--seed", type=int, default=24)
    parser.add_argument("--wrong", action="store_true", help="list the wrong answers")
    asked = parser.parse_args()
    classifier = shipped_packs().classifier()
    facts: dict[str, object] = {"fold": asked.fold, "seed": asked.seed}
    print(f"fold {asked.fold}, seed {asked.seed}; share and its 95 % interval")
    print(f"{'':36} {'cause accepted':24} {'sure and wrong':24} {'harmful retry':24}")
    count, seconds = 0, 0.0
    for surroundings in Surroundings:
        logs = long_logs(asked.fold, surroundings, asked.seed)
        begun = time.process_time()
        score = scored(logs, classifier.classify)
        if surroundings is not Surroundings.EXCERPT:
            count, seconds = count + len(logs), seconds + time.process_time() - begun
        print(f"{surroundings:36} {score.accepted!s:24} {score.sure_and_wrong!s:24} {score.harmful!s:24}")
        facts[surroundings] = [score.accepted.value, score.sure_and_wrong.value, score.harmful.value, len(logs)]
        if asked.wrong:
            print(*(f"    {line}" for line in score.wrong), sep="\n")
    facts["logs_a_second"] = round(count / seconds)
    print(f"{count / seconds:.0f} logs of 400 lines a second of CPU")
    if asked.fold is Fold.REPORT:
        print(f"raw figures in {keep('long_logs', [], facts)}", file=sys.stderr)


if __name__ == "__main__":
    main()
