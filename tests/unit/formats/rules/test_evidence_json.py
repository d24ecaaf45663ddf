"""Evidence is read however it is told."""

from __future__ import annotations

from typing import Any

import pytest

from forestay.domain.exceptions.evidence.evidence import AttemptStage, Scheduler
from forestay.formats.rules.evidence_json import evidence_to_json, read_evidence


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        ({"exit_code": "137:9"}, {"exit_code": 137, "signal": 9}),
        ({"exit_code": "0:9"}, {"exit_code": 0, "signal": 9}),
        ({"exit_code": "1:0"}, {"exit_code": 1, "signal": None}),
        ({"exit_code": "137"}, {"exit_code": 137}),
        ({"exit_code": -9}, {"exit_code": None, "signal": 9}),
        ({"exit_code": 271}, {"exit_code": 143, "signal": 15}),
        ({"exit_code": 256}, {"exit_code": 1}),
        ({"exit_code": -29, "scheduler": "PBS Pro"}, {"exit_code": -29, "scheduler": Scheduler.PBS}),
        ({"signal": "SIGKILL"}, {"signal": 9}),
        ({"signal": "kill"}, {"signal": 9}),
        ({"signal": "9"}, {"signal": 9}),
        ({"signal": 0}, {"signal": None}),
        ({"scheduler_state": "CANCELLED by 1000"}, {"scheduler_state": "CANCELLED", "scheduler": Scheduler.SLURM}),
        ({"scheduler_state": "OUT_OF_ME+"}, {"scheduler_state": "OUT_OF_MEMORY"}),
        ({"scheduler_state": "TO"}, {"scheduler_state": "TIMEOUT"}),
        ({"scheduler_reason": "OOMKilled"}, {"scheduler": Scheduler.KUBERNETES}),
        ({"HoldReasonCode": 34}, {"hold_code": 34, "scheduler": Scheduler.HTCONDOR}),
        ({"log_tail": ["a", "b\nc", None, 3]}, {"log_tail": ("a", "b", "c", "", "3")}),
        ({"log_tail": None}, {"log_tail": ()}),
        ({"log_tail": "out", "stderr": "err"}, {"log_tail": ("out", "err")}),
        ({"peak_memory": "3.5G", "memory_limit": "4096Mn"}, {"peak_memory": 3758096384, "memory_limit": 4294967296}),
        ({"wall_time": "1-02:03:04", "time_limit": "90 min"}, {"wall_time": 93784.0, "time_limit": 5400.0}),
        ({"oom_kills": True, "stage": "stage_in"}, {"oom_kills": 1, "stage": AttemptStage.STAGING_IN}),
        ({"exit_code": None, "signal": None, "log_tail": None}, {"exit_code": None, "signal": None}),
    ],
)
def test_it_is_read_however_it_is_told(plain: dict[str, Any], expected: dict[str, Any]) -> None:
    evidence = read_evidence(plain)
    assert {name: getattr(evidence, name) for name in expected} == expected


def test_what_is_not_known_is_kept() -> None:
    kept = evidence_to_json(
        read_evidence({"exit_code": 1, "rack": "b7", "API_TOKEN": "s3cret", "log_tail": "password=abc"})
    )
    assert kept == {"exit_code": 1, "rack": "b7", "API_TOKEN": "[redacted]", "log_tail": "password=[redacted]"}
