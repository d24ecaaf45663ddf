"""Fingerprints: how well they group errors whose truth is known, and how many failures a second one core takes.

    just bench fingerprints
    just bench fingerprints --seed 3 --each 20

The truth is a generator of errors with other paths, ids, hosts, versions, sizes and times each time (tests/unit/domain/exceptions/causes), and pairs of lines from public trackers that were labelled by
hand. *From the log* means that the classifier finds the deciding line and the cause in a log with other output before the error. The CPU time of the process counts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from tests.unit.domain.exceptions.causes import generated_errors as generator

from bench.harness import keep, leave
from forestay.domain.exceptions.causes.fingerprint import deciding_line, fingerprint
from forestay.formats.rules.evidence_json import evidence_to_json, finding_to_json, read_evidence
from forestay.formats.rules.pack_folder import shipped_packs

PRECISION, RECALL, A_SECOND = 0.98, 0.80, 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--each", type=int, default=12)
    asked = parser.parse_args()
    made = generator.generated_errors(asked.seed, asked.each)
    begun = time.process_time()
    ids = [fingerprint(failure.line, failure.task, "").id for failure in made]
    rate = len(made) / (time.process_time() - begun)
    errors = [failure.error for failure in made]
    by_line = generator.pairs(zip(errors, ids, strict=True))
    classifier = shipped_packs().classifier()
    grouped = []
    for failure in made:
        evidence = read_evidence({"exit_code": 1, "log_tail": failure.log})
        finding = classifier.classify(evidence)
        line = deciding_line(finding_to_json(finding), evidence_to_json(evidence))
        grouped.append(fingerprint(line, failure.task, finding.cause).id)
    by_log = generator.pairs(zip(errors, grouped, strict=True))
    labelled = [
        json.loads(line)
        for line in Path(generator.__file__).with_name("labelled_pairs.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    judged = [(pair["same"], fingerprint(*pair["a"]).id == fingerprint(*pair["b"]).id) for pair in labelled]
    right = sum(same and found for same, found in judged)
    by_hand = generator.Pairs(right / sum(found for _, found in judged), right / sum(same for same, _ in judged))
    print(f"{len(generator.TEMPLATES)} errors, {len(made)} failures, seed {asked.seed}: {rate:.0f} a second of CPU")
    named = {"from the line": by_line, "from the log": by_log, f"{len(labelled)} labelled pairs": by_hand}
    for name, found in named.items():
        print(f"{name}: precision {found.precision:.3f}, recall {found.recall:.3f}")
    reached = rate >= A_SECOND and all(
        found.precision >= PRECISION and found.recall >= RECALL for found in (by_line, by_log)
    )
    print(
        f"≥ {PRECISION}, ≥ {RECALL} of generated errors, ≥ {A_SECOND} a second: {'reached' if reached else 'not reached'}"
    )
    facts = {"rate": rate, **{name: list(found) for name, found in named.items()}}
    print(f"raw figures in {keep('fingerprints', [], facts)}", file=sys.stderr)
    leave(reached=reached)


if __name__ == "__main__":
    main()
