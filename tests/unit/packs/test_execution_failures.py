"""The classes of execution failures are told apart: a resource, data, input, the job itself, staging out, clearing up."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.packs.shipped import classifier

from forestay.domain.sites.batch import BatchOutcome, BatchState
from forestay.domain.sites.watched_job import JobDetails, evidence
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


@pytest.mark.finding("F-A16")
@pytest.mark.parametrize(("peak", "cause"), [(157, "memory"), (57, "node"), (None, "node")])
def test_a_step_that_slurm_killed_for_memory_is_no_failure_of_the_node(peak: int | None, cause: str) -> None:
    """As Slurm tells it where it watches memory itself, of a job whose output cannot be read."""
    outcome = BatchOutcome(
        BatchState.ENDED, "FAILED", reason="JobLaunchFailure", exit_code=0, signal=9, nodes=("n1",), started=1, ended=4
    )
    details = JobDetails("52", "wrap", "ada", held=False, mark="", needs={"memory": 100 << 20})
    told = evidence(outcome, details, "", peak << 20 if peak is not None else None)
    finding = classifier().classify(read_evidence(told))
    assert finding.cause == cause
    assert finding.confidence >= 0.8
