"""Trains the second classifier and calibrates it: writes ``packs/wording/model.bin`` and its card beside it.

    just train-second

It learns from the labelled failures of ``tests/unit/packs`` and the examples in the packs. Its figures and its calibration are those of failures it has not seen, in five folds by repository: for each fold a model
is trained without the failures of that fold, and asked beside the patterns without those that decide in that fold alone, as they may have been written for it. Of equal files the result is the same.
scikit-learn is needed here only.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, diags
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from tests.unit.packs.long_logs import Fold, LongLog, Score, Share, Surroundings, collected, long_logs, scored

from forestay.domain.exceptions.causes.cause import SURE, Cause
from forestay.domain.exceptions.causes.classify import END, Classifier, terminal_lines
from forestay.domain.exceptions.causes.fingerprint import normalised_line
from forestay.domain.exceptions.causes.wording import (
    BUCKETS,
    FACT,
    LIKENESS,
    SAFE,
    SUREST,
    UNSURE,
    Wording,
    WordingModel,
    fact_bucket,
    pair_bucket,
    strength,
    word_buckets,
    wording,
)
from forestay.domain.exceptions.evidence.evidence import Evidence, PreparedEvidence
from forestay.formats.rules.evidence_json import evidence_to_json, read_evidence
from forestay.formats.rules.pack_folder import Packs, shipped_packs
from forestay.formats.rules.wording_file import FILE, FOLDER, write_model

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "packs" / FOLDER / FILE
CARD = MODEL.with_name("README.md")
FOLDS = 5
SEED = 24
"""Of the surroundings in which the failures are placed for the calibration."""
FITTED = 10.0
"""The inverse of how strongly large weights are avoided; chosen on the fold `tune`."""
ITERATIONS, EXACT = 200, 1e-3
FEWEST = 100
"""Readings that a step of the calibration rests on at least."""


@dataclass(frozen=True, slots=True)
class Example:
    """A labelled failure."""

    evidence: Evidence
    cause: Cause
    source: str = ""
    """The tracker's entry; empty for an example of a pack."""
    pattern: str = ""
    """The pattern whose example it is."""

    @property
    def masked(self) -> frozenset[str]:
        """Its telling lines: an example of a pack that shares one with a failure may have been made of it."""
        return frozenset(normalised_line(line).lower() for line in self.evidence.log_tail if len(line.strip()) > 12)


def examples(packs: Packs) -> list[Example]:
    """Every failure whose cause is known; what is labelled unknown has no wording of its own."""
    records = [
        Example(_evidence(record), Cause(record["expect"]["cause"]), source=str(record["source"]))
        for record in collected()
    ]
    written = [
        Example(read_evidence(plain), entry.pattern.cause, pattern=entry.pattern.name)
        for entry in packs.patterns
        for plain in entry.fixtures.matches
    ]
    return [example for example in (*records, *written) if example.cause is not Cause.UNKNOWN]


def _evidence(record: Mapping[str, Any]) -> Evidence:
    return read_evidence({name: value for name, value in record.items() if name not in ("expect", "source")})


def digest(trained_on: Iterable[Example]) -> str:
    """Of what is learnt from: the model that comes with Forestay must be that of the files beside it."""
    plain = [
        [evidence_to_json(example.evidence), example.cause, example.source, example.pattern] for example in trained_on
    ]
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def read_wording(evidence: Evidence, classifier: Classifier) -> Wording:
    """The wording of a failure, as it is read for classification."""
    seen = PreparedEvidence(replace(evidence, log_tail=evidence.log_tail[-END:]))
    return wording(terminal_lines(seen, classifier.matches(seen)), seen)


def fit(texts: Sequence[Wording], causes: Sequence[Cause], trained_on: str = "") -> WordingModel:
    """A model without calibration. Words that many failures share count less; that goes into the weights."""
    matrix = _matrix(texts)
    having = np.asarray((matrix > 0).sum(axis=0)).ravel()
    rarity = np.log((1 + len(texts)) / (1 + having)) + 1
    fitted = LogisticRegression(C=FITTED, max_iter=ITERATIONS, tol=EXACT).fit(
        matrix @ diags(rarity), [str(cause) for cause in causes]
    )
    weights = fitted.coef_ * rarity
    scales = np.abs(weights).max(axis=1) / 127
    quantised = np.rint(weights / scales[:, None]).astype(np.int8)
    # Rows by bucket, so that one slice holds a feature; a bucket that nothing fell into has no weight.
    return WordingModel(
        [Cause(name) for name in fitted.classes_],
        np.ascontiguousarray(quantised.T).tobytes(),
        [round(float(scale), 9) for scale in scales],
        [round(float(offset), 6) for offset in fitted.intercept_],
        (),
        trained_on,
    )


def _matrix(texts: Sequence[Wording]) -> csr_matrix:
    places: list[int] = []
    values: list[float] = []
    ends = [0]
    for text in texts:
        row: dict[int, float] = {}
        buckets = [place for word in sorted(text.words) for place in word_buckets(word)]
        buckets += [pair_bucket(pair) for pair in sorted(text.pairs)]
        for place in buckets:
            row[place] = row.get(place, 0.0) + 1 / len(buckets) ** 0.5
        for fact in sorted(text.facts):
            place = fact_bucket(fact)
            row[place] = row.get(place, 0.0) + FACT
        places += row.keys()
        values += row.values()
        ends.append(len(places))
    return csr_matrix((values, places, ends), shape=(len(texts), BUCKETS))


def part_of(source: str) -> int:
    """The fold of a failure: all of one repository are in the same. It does not depend on `fold_of`."""
    return zlib.crc32(source.split("#")[0].encode()) // 2 % FOLDS


@dataclass(frozen=True)
class HeldOut:
    """The classifiers for the failures of one fold, made without them."""

    part: int
    patterns: Classifier
    model: WordingModel


class CrossValidation:
    """Every failure, classified by a model and patterns in which it had no part."""

    def __init__(self, packs: Packs) -> None:
        self.packs, self.classifier = packs, Classifier(entry.pattern for entry in packs.patterns)
        self.examples = examples(packs)
        self.texts = [read_wording(example.evidence, self.classifier) for example in self.examples]

    @cached_property
    def parts(self) -> list[HeldOut]:
        deciding: dict[str, set[int]] = {}
        for record in collected():
            pattern = self.classifier.classify(_evidence(record)).pattern
            deciding.setdefault(pattern, set()).add(part_of(str(record["source"])))
        return [self._held_out(part, {name for name, parts in deciding.items() if parts == {part}}) for part in range(FOLDS)]  # fmt: skip

    def _held_out(self, part: int, written_for_it: set[str]) -> HeldOut:
        held = frozenset[str]().union(
            *(example.masked for example in self.examples if example.source and part_of(example.source) == part)
        )
        kept = [
            place
            for place, example in enumerate(self.examples)
            if (part_of(example.source) != part if example.source else example.pattern not in written_for_it and not example.masked & held)
        ]  # fmt: skip
        model = fit([self.texts[place] for place in kept], [self.examples[place].cause for place in kept])
        patterns = [entry.pattern for entry in self.packs.patterns if entry.pattern.name not in written_for_it]
        return HeldOut(part, Classifier(patterns), model)

    @cached_property
    def readings(self) -> list[tuple[int, float, bool]]:
        """Of each weak reading its fold, its strength and whether it was right, in all surroundings."""
        return [reading for surroundings in Surroundings for reading in self._weak_readings(surroundings)]

    def _weak_readings(self, surroundings: Surroundings) -> Iterator[tuple[int, float, bool]]:
        for log in every_log(surroundings):
            held = self.parts[part_of(log.source)]
            finding = held.patterns.classify(log.evidence)
            if not finding.lines or not finding.pattern or finding.confidence >= SURE:
                continue
            likeness = held.model.likeness(read_wording(log.evidence, held.patterns)).get(finding.cause)
            if likeness is not None:
                yield held.part, strength(finding.confidence, likeness), finding.cause in log.causes

    def classifiers(self, *, second: bool = True, held_out: bool = True) -> list[Classifier]:
        """One a fold: with or without the second classifier, whose calibration, too, is that of the other folds; without the patterns that may have been written for it, or with all."""
        return [
            Classifier((held.patterns if held_out else self.classifier).patterns, self._calibrated(held) if second else None)
            for held in self.parts
        ]  # fmt: skip

    def _calibrated(self, held: HeldOut) -> WordingModel:
        return with_steps(held.model, [(value, right) for part, value, right in self.readings if part != held.part])

    def trained(self) -> WordingModel:
        """The model of all failures, calibrated by those of all folds."""
        model = fit(self.texts, [example.cause for example in self.examples], digest(self.examples))
        return with_steps(model, [(value, right) for _, value, right in self.readings])


def with_steps(model: WordingModel, readings: Sequence[tuple[float, bool]]) -> WordingModel:
    """The model, calibrated by these readings."""
    return WordingModel(
        model.causes, model.weights, model.scales, model.offsets, calibration(readings), model.trained_on
    )


def calibration(readings: Sequence[tuple[float, bool]]) -> list[tuple[float, float]]:
    """From which strength on a weak reading has which confidence: a rising share of right ones. It acts only if it is safe, so what is right less often than that stays below."""
    ordered = sorted(readings)
    values = np.array([value for value, _ in ordered])
    shares = IsotonicRegression().fit_transform(values, np.array([float(right) for _, right in ordered]))
    steps: list[tuple[float, float]] = []
    place = 0
    while place < len(ordered):
        # A step continues as long as the share is the same or its readings are too few to decide.
        end = place
        while end < len(ordered) and (end - place < FEWEST or shares[end] == shares[end - 1]):
            end += 1
        if len(ordered) - end < FEWEST:
            end = len(ordered)
        share = sum(right for _, right in ordered[place:end]) / (end - place)
        confidence = round(min(SUREST, share) if share >= SAFE else min(UNSURE, share), 2)
        if not steps or confidence > steps[-1][1]:
            steps.append((float(values[place]) if steps else 0.0, confidence))
        place = end
    return steps


def every_log(surroundings: Surroundings, *folds: Fold) -> list[LongLog]:
    """The failures in these surroundings, of these folds or of both."""
    return [log for fold in folds or Fold for log in long_logs(fold, surroundings, SEED)]


def cross_validated(logs: Sequence[LongLog], classifiers: Sequence[Classifier]) -> Score:
    """The score of all failures, each classified by the classifier of its fold."""
    answers = iter([classifiers[part_of(log.source)].classify(log.evidence) for log in logs])
    return scored(logs, lambda _evidence: next(answers))


def card(validation: CrossValidation, model: WordingModel) -> str:
    """The model's card: what it learnt from, how good it is on what it has not seen, and what it is not for."""
    before, after = validation.classifiers(second=False), validation.classifiers()
    rows = []
    for surroundings in Surroundings:
        logs = every_log(surroundings)
        for words, classifiers in (("patterns", before), ("both", after)):
            score = cross_validated(logs, classifiers)
            shares = (score.accepted, score.sure_and_wrong, score.harmful, score.acts, score.acts_wrongly)
            rows.append(f"| {surroundings}, {words} | {' | '.join(str(share).strip() for share in shares)} |")
    records = sum(bool(example.source) for example in validation.examples)
    steps = [f"| {value:.2f} | {confidence:.2f} |" for value, confidence in model.steps]
    return CARD_TEXT.format(
        records=records,
        fixtures=len(validation.examples) - records,
        causes=len(model.causes),
        alone=str(alone(validation)).strip(),
        rows="\n".join(rows),
        steps="\n".join(steps),
        size=len(write_model(model)),
        digest=model.trained_on,
        fitted=FITTED,
        safe=100 * SAFE,
        likeness=LIKENESS,
    )


def alone(validation: CrossValidation) -> Share:
    """How often the most alike cause is right, of failures with a known cause, without any pattern."""
    right = count = 0
    for log in every_log(Surroundings.EXCERPT):
        if log.expected["cause"] == Cause.UNKNOWN:
            continue
        held = validation.parts[part_of(log.source)]
        likeness = held.model.likeness(read_wording(log.evidence, held.patterns))
        count += 1
        right += max(likeness, key=lambda cause: likeness[cause]) in log.causes
    return Share(right, count)


CARD_TEXT = """# Card of the second classifier

Written by `just train-second`; do not edit.

`model.bin` says of which cause the failures are whose wording is like that of a log's last errors. Forestay asks it about weak readings of its patterns: [decision 118](../../docs/decisions/0118-compare-weak-readings-with-a-second-classifier.md).

## Data

{records} labelled failures from public trackers (`tests/unit/packs/unseen_*.jsonl`; those labelled unknown are left out) and {fixtures} examples of the shipped patterns (`packs/base`), {causes} causes. SHA-256 of what was learnt from: `{digest}`.

## Model

Multinomial logistic regression (C = {fitted:g}, lbfgs) over masked words, pairs of words and sequences of 3 to 5 letters inside words, of the block that ends the log; exit code, signal, state and stage are words of their own. Features are hashed, weights
are one byte each, the file has {size} bytes. It is evaluated in plain Python; scikit-learn is needed to train it only.

## Figures

On failures that it has not seen: five folds by repository. In each fold the failures of other folds train and calibrate, and patterns that decide in that fold alone are left out, with their examples, since they may have been written for it. Shares with
their 95 % intervals. *May act*: a known cause with a confidence of 0.8 or more.

Alone, the most alike cause of an excerpt is accepted in {alone} of failures with a known cause.

| | cause accepted | sure and wrong | harmful retry | may act | wrong among these |
| --- | --- | --- | --- | --- | --- |
{rows}

## Calibration

A weak reading of the patterns (below 0.8) has the strength of its confidence + {likeness:g} × the likeness to its cause. By how often readings of such a strength were right, in all surroundings, it gets its confidence. What was right less often than in {safe:.0f} %
stays below 0.8, at which rules act.

| strength from | confidence |
| --- | --- |
{steps}

## Limits

- It reads English words, and only the last errors of a log. It does not know systems that no example names.
- It never answers alone and never changes a cause: a failure that no pattern knows stays unknown. On the folds, its answers to such failures were wrong more often than not.
- Failures from public trackers are not those of your site. Some causes have few examples (preempted, cleanup, output-missing).
- Another processor or another version of scikit-learn may round a few weights differently.
"""


def main() -> None:
    validation = CrossValidation(shipped_packs())
    model = validation.trained()
    MODEL.parent.mkdir(exist_ok=True)
    MODEL.write_bytes(write_model(model))
    CARD.write_text(card(validation, model), encoding="utf-8")
    print(f"wrote {MODEL.relative_to(ROOT)} and {CARD.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
