"""Classification of long logs: how often the cause is right when a failure stands in 400 lines of ordinary output, with errors that the program survived and with consequences.

    just bench long_logs
    just bench long_logs --fold tune --wrong

The failures are those of tests/unit/packs, in two folds by repository; `tests/unit/packs/long_logs.py` says how the logs are made. Constants are chosen on the fold `tune`, and figures of the
fold `report` are published. The patterns are asked alone and beside the second classifier, which has not learnt from the failures that it is asked about (`scripts/train_second.py` says how); once all patterns, and once
without those that decide in one fifth of the repositories alone, as they may have been written for these failures. Also prints how many logs of 400 lines a second one core classifies.
"""

from __future__ import annotations

import argparse
import sys
import time

from scripts.train_second import CrossValidation, cross_validated
from tests.unit.packs.long_logs import Fold, Surroundings, long_logs

from bench.harness import keep
from forestay.formats.rules.pack_folder import shipped_packs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--fold", type=Fold, choices=list(Fold), default=Fold.REPORT)
    parser.add_argument("--seed", type=int, default=24)
    parser.add_argument("--wrong", action="store_true", help="list the wrong answers")
    asked = parser.parse_args()
    validation = CrossValidation(shipped_packs())
    arms = {
        "patterns": validation.classifiers(second=False, held_out=False),
        "patterns and wording": validation.classifiers(held_out=False),
        "held-out patterns": validation.classifiers(second=False),
        "held-out patterns and wording": validation.classifiers(),
    }
    facts: dict[str, object] = {"fold": asked.fold, "seed": asked.seed}
    print(f"fold {asked.fold}, seed {asked.seed}; share and its 95 % interval")
    print(
        f"{'':38} {'cause accepted':24} {'sure and wrong':24} {'harmful retry':24} {'may act':24} {'wrong among these':24}"
    )
    counts, seconds = dict.fromkeys(arms, 0), dict.fromkeys(arms, 0.0)
    for surroundings in Surroundings:
        logs = long_logs(asked.fold, surroundings, asked.seed)
        print(surroundings)
        for name, classifiers in arms.items():
            begun = time.process_time()
            score = cross_validated(logs, classifiers)
            if surroundings is not Surroundings.EXCERPT:
                counts[name] += len(logs)
                seconds[name] += time.process_time() - begun
            shares = (score.accepted, score.sure_and_wrong, score.harmful, score.acts, score.acts_wrongly)
            print(f"    {name:34} {' '.join(f'{share!s:24}' for share in shares)}")
            facts[f"{surroundings}, {name}"] = [*(share.value for share in shares), len(logs)]
            if asked.wrong:
                print(*(f"        {line}" for line in score.wrong), sep="\n")
    for name in ("patterns", "patterns and wording"):
        facts[f"logs_a_second, {name}"] = round(counts[name] / seconds[name])
        print(f"{name}: {counts[name] / seconds[name]:.0f} logs of 400 lines a second of CPU")
    if asked.fold is Fold.REPORT:
        print(f"raw figures in {keep('long_logs', [], facts)}", file=sys.stderr)


if __name__ == "__main__":
    main()
