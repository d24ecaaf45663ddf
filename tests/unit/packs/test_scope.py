"""Words count where they mean something: a scheduler's from that scheduler, an alarming one unless its line says that nothing is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.packs.shipped import classifier

from forestay.domain.exceptions.causes.cause import CauseFinding
from forestay.formats.rules.evidence_json import read_evidence


def asked(**record: Any) -> CauseFinding:
    return classifier().classify(read_evidence(record))


@pytest.mark.parametrize(
    ("scheduler", "state", "cause"),
    [
        ("slurm", "TIMEOUT", "time"),
        ("kubernetes", "TIMEOUT", "unknown"),
        ("htcondor", "TIMEOUT", "unknown"),
        ("lsf", "TERM_MEMLIMIT", "memory"),
        ("slurm", "TERM_MEMLIMIT", "unknown"),
        ("kubernetes", "OOMKilled", "memory"),
        ("pbs", "OOMKilled", "unknown"),
    ],
)
def test_the_word_of_a_scheduler_counts_from_that_scheduler(scheduler: str, state: str, cause: str) -> None:
    assert asked(scheduler=scheduler, scheduler_state=state).cause == cause


@pytest.mark.parametrize("scheduler", ["kubernetes", "slurm", None])
def test_a_word_in_a_sentence_is_nobodys_state(scheduler: str | None) -> None:
    finding = asked(scheduler=scheduler, scheduler_reason="image pull timeout")
    assert finding.cause == "network"
    assert finding.confidence < 0.9
    assert asked(scheduler=scheduler, scheduler_reason="waiting for the deadline of somebody").cause == "unknown"


def test_a_name_in_a_sentence_is_a_state() -> None:
    assert asked(scheduler="slurm", scheduler_reason="the job ended with OUT_OF_MEMORY on cn7").cause == "memory"
    assert asked(scheduler="kubernetes", scheduler_reason="DeadlineExceeded by the Job controller").cause == "time"


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: failed to resolve the reference genome 'hg38x'",
        "Error: unable to find a proxy for the model surface",
        "the database is locked by this process from now on",
        "wrote an empty file list",
    ],
)
def test_words_that_also_mean_something_else_are_no_answer(line: str) -> None:
    finding = asked(exit_code=1, log_tail=line)
    assert finding.cause not in ("network", "policy", "disk", "data-corrupt") or finding.confidence < 0.5
    assert finding.retry == "no"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("Failed to resolve 'api.example.org' ([Errno -3] Temporary failure in name resolution)", "network"),
        ("failed to resolve host: db1", "network"),
        ("ERROR: unable to find a valid proxy", "policy"),
        ("sqlite3.OperationalError: database is locked", "disk"),
        ("ERROR: empty input file: reads.fq", "bad-input"),
    ],
)
def test_what_they_were_written_for_is_still_found(line: str, cause: str) -> None:
    assert asked(exit_code=1, log_tail=line).cause == cause


def test_a_line_of_information_wins_over_its_words_unless_it_ends_the_log() -> None:
    ordinary = "".join(f"10:00:{n:02} INFO block {n} done\n" for n in range(6))
    known = "KeyError: 'x'"
    for line in (
        "10:00:00 INFO connection refused by cache 3, using cache 4",
        "[info] Failed: CUDA out of memory on probe",
    ):
        assert asked(exit_code=1, log_tail=f"{line}\n{ordinary}{known}").cause == "code"
        assert asked(exit_code=1, log_tail=f"{line}\n{ordinary}").confidence < 0.8
    assert asked(exit_code=1, log_tail=f"{ordinary}INFO exec failed: No space left on device").cause == "disk"
