"""Verdicts that were wrong on a site, and which kind of unknown an answer is."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.packs.shipped import classifier

from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.formats.rules.evidence_json import read_evidence


def asked(**record: Any) -> CauseFinding:
    return classifier().classify(read_evidence(record))


@pytest.mark.parametrize(
    "log",
    [
        "License checkout failed.\nLicense server machine is down or not responding. (-96,7)\nlicense is not valid",
        "lic: license server lx7 is down, license not valid",
        "ERROR: No valid license: could not reach license server",
    ],
)
def test_a_licence_server_that_is_down_is_no_policy(log: str) -> None:
    finding = asked(exit_code=1, log_tail=log)
    assert (finding.cause, finding.retry) == ("network", "same")


def test_a_licence_that_is_not_valid_is_policy() -> None:
    assert asked(exit_code=1, log_tail="Your license for Simulink has expired.").cause == "policy"


def test_storage_that_is_down_is_no_missing_file() -> None:
    error = "[ERROR] Server responded with an error: [3011]"
    away = asked(exit_code=54, log_tail=f"{error} No servers are available to read the file.")
    assert (away.cause, away.retry) == ("transfer", "same")
    assert asked(exit_code=54, log_tail=f"{error} No such file or directory: /store/x.root").cause == "data-missing"


def test_an_exit_code_does_not_decide_over_a_line_that_tells_more() -> None:
    finding = asked(exit_code=65, log_tail="error: the frobnicator is misaligned")
    assert (finding.cause, finding.lines) == ("unknown", ("error: the frobnicator is misaligned",))
    assert asked(exit_code=65).cause == "bad-input"
    assert asked(exit_code=65, log_tail="OSError: [Errno 28] No space left on device").cause == "disk"


def test_a_failed_state_with_exit_code_0_is_a_failure() -> None:
    assert asked(exit_code=0, scheduler_state="FAILED").words.startswith(
        "Its exit code is 0, and the batch system calls"
    )
    for state in (None, "COMPLETED"):
        assert asked(exit_code=0, scheduler_state=state).words == "The evidence shows no failure."


def test_unknown_says_which() -> None:
    assert asked(exit_code=1).words.startswith("No words: ")
    assert asked(exit_code=1, log_tail="begin\nzyx aborted: qq").words.startswith("Words that nobody knows: ")
