"""The index leaves out only what cannot match: asked pattern by pattern on every line, the same ones match."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.packs.shipped import classifier

from forestay.domain.exceptions.evidence.evidence import PreparedEvidence
from forestay.formats.rules.evidence_json import read_evidence

EVERY = 20
RECORDS = [
    json.loads(line)
    for file in sorted(Path(__file__).parent.glob("unseen_*.jsonl"))
    for line in file.read_text(encoding="utf-8").splitlines()[::EVERY]
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record["source"])
def test_the_index_loses_no_match(record: dict[str, Any]) -> None:
    evidence = read_evidence({name: value for name, value in record.items() if name not in ("expect", "source")})
    one_by_one = {
        pattern.name: match
        for pattern in classifier().patterns
        if (match := pattern.match(PreparedEvidence(evidence))) is not None
    }
    assert {match.pattern.name: match for match in classifier().matches(PreparedEvidence(evidence))} == one_by_one


def test_a_reason_of_several_lines_is_one_line() -> None:
    evidence = read_evidence({"scheduler_reason": "the job was\nkilled: no space left on device", "log_tail": "a\nb"})
    assert len(PreparedEvidence(evidence).lines) == 3
    assert str(classifier().classify(evidence).cause) == "disk"
