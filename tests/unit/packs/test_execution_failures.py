"""The classes of execution failures are told apart: a resource, data, input, the job itself, staging out, clearing up."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.packs.shipped import classifier

from forestay.formats.rules.evidence_json import read_evidence


@pytest.mark.parametrize(
    ("cause", "record"),
    [
        ("scheduler", {"exit_code": 1, "log_tail": "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"}),
        ("node", {"scheduler": "slurm", "scheduler_state": "NODE_FAIL"}),
        ("memory", {"exit_code": 137, "scheduler_state": "OUT_OF_MEMORY"}),
        ("data-missing", {"exit_code": 1, "log_tail": "FileNotFoundError: [Errno 2] No such file or directory: '/data/in/a.csv'"}),
        ("data-missing", {"stage": "staging-in", "transfer": "404 Not Found: s3://b/a.csv"}),
        ("transfer", {"stage": "staging-in", "transfer": "connection reset by peer while reading a.csv"}),
        ("bad-input", {"exit_code": 2, "log_tail": "solve: error: the following arguments are required: --mesh"}),
        ("code", {"exit_code": 1, "log_tail": "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    x.y\nAttributeError: 'NoneType' object has no attribute 'y'"}),
        ("output-missing", {"exit_code": 0, "stage": "staging-out", "log_tail": "expected output result.tar was not found"}),
        ("transfer", {"exit_code": 0, "stage": "staging-out", "transfer": "upload of result.tar failed: connection timed out"}),
        ("cleanup", {"exit_code": 0, "stage": "cleanup", "log_tail": "rm: cannot remove 'work': Directory not empty"}),
    ],
)  # fmt: skip
def test_each_class_has_a_cause_of_its_own(cause: str, record: dict[str, Any]) -> None:
    finding = classifier().classify(read_evidence(record))
    assert str(finding.cause) == cause, finding.pattern
