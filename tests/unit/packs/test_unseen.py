"""Failures that were collected from public issue trackers, each with the cause that a person read from it before the patterns were asked.

Names, paths and numbers are changed; the shape of what the machines printed is kept. Where two causes can be defended, the second stands under ``also`` and counts as right. What was wrong at first was answered by more general patterns, so these
figures are no longer those of unseen failures; they hold a floor, so that a pattern which helps one log and hurts ten others is seen.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.unit.packs.shipped import classifier

from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.formats.rules.evidence_json import read_evidence

FOLDER = Path(__file__).parent
SURE = 0.8
"""From this confidence on, a wrong answer counts as wrong and sure of itself."""


@dataclass(frozen=True, slots=True)
class Floor:
    """What a collection held when it was last looked at."""

    right: float
    sure_and_wrong: float
    retry: float


FLOORS = {
    "unseen_code": Floor(right=0.88, sure_and_wrong=0.01, retry=0.85),
    "unseen_infra": Floor(right=0.92, sure_and_wrong=0.011, retry=0.92),
    "unseen_infra_b": Floor(right=0.92, sure_and_wrong=0.0, retry=0.75),
    "unseen_infra_d": Floor(right=0.97, sure_and_wrong=0.0, retry=0.85),
    "unseen_mixed_f": Floor(right=0.96, sure_and_wrong=0.0, retry=0.68),
    "unseen_mixed_g": Floor(right=0.96, sure_and_wrong=0.0, retry=0.70),
    "unseen_programs_a": Floor(right=0.92, sure_and_wrong=0.0, retry=0.90),
    "unseen_programs_c": Floor(right=0.95, sure_and_wrong=0.0, retry=0.85),
    "unseen_programs_e": Floor(right=0.97, sure_and_wrong=0.0, retry=0.90),
}
USUAL = Floor(right=0.85, sure_and_wrong=0.02, retry=0.80)
"""For a collection that has no floor of its own."""

COLLECTIONS = sorted(FOLDER.glob("unseen_*.jsonl"))


def _records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


def _answer(record: dict[str, Any]) -> CauseFinding:
    return classifier().classify(
        read_evidence({name: value for name, value in record.items() if name not in ("expect", "source")})
    )


def _accepted(record: dict[str, Any]) -> set[str]:
    return {record["expect"]["cause"], *record["expect"].get("also", [])}


def test_there_are_collections() -> None:
    assert COLLECTIONS


@pytest.mark.parametrize("file", COLLECTIONS, ids=lambda file: file.stem)
def test_a_collection_holds_its_floor(file: Path) -> None:
    floor = FLOORS.get(file.stem, USUAL)
    records = _records(file)
    answers = [(record, _answer(record)) for record in records]
    wrong = [(record, finding) for record, finding in answers if finding.cause not in _accepted(record)]
    sure = [(record, finding) for record, finding in wrong if finding.confidence >= SURE]
    retries = sum(finding.retry == record["expect"]["retry"] for record, finding in answers)
    lines = [
        f"{record['source']}: {record['expect']['cause']}, not {finding.cause} ({finding.confidence}, {finding.pattern})"
        for record, finding in wrong
    ]
    assert 1 - len(wrong) / len(records) >= floor.right, lines
    assert len(sure) / len(records) <= floor.sure_and_wrong, lines
    assert retries / len(records) >= floor.retry, lines


NOISE = (FOLDER / "ordinary_output.txt").read_text(encoding="utf-8").splitlines()


def test_ordinary_output_and_warnings_ahead_of_a_failure_change_little() -> None:
    """Logs are long and full of warnings that stopped nothing."""
    chance = random.Random(3)
    records = [
        record for file in COLLECTIONS for record in _records(file)[::2] if isinstance(record.get("log_tail"), str)
    ]
    right, sure = 0, []
    for record in records:
        ahead = "\n".join(chance.choice(NOISE) for _ in range(60))
        finding = _answer({**record, "log_tail": f"{ahead}\n{record['log_tail']}"})
        good = finding.cause in _accepted(record)
        right += good
        if not good and finding.confidence >= SURE:
            sure.append(f"{record['source']}: {finding.cause} ({finding.confidence}, {finding.pattern})")
    assert right / len(records) >= 0.86
    assert len(sure) / len(records) <= 0.01, sure
