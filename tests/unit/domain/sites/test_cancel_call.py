"""Which failures a call of scancel leaves final."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forestay.domain.sites.batch import BatchOutcome, BatchState
from forestay.domain.sites.cancel_call import SIGNAL_TAKES, CancelCall
from forestay.domain.sites.watched_job import JobDetails, WatchedJob
from forestay.formats.text.cancel_options import read_cancel_call

ANN, BOB, ROOT = 1000, 1001, 0
NOW = 500.0
JOB = WatchedJob("12", "", ANN, "/home/ann", "", 50)
ELEMENT = JOB._replace(id="12_3")
FAILED = BatchOutcome(BatchState.ENDED, "FAILED", exit_code=3, started=100, ended=499)
DETAILS = JobDetails("12", "align reads", "ann", held=False, mark="", needs={}, number="12")


def call(words: str, by: int = ANN) -> CancelCall | None:
    return read_cancel_call(words.split(";"), by, NOW)


@pytest.mark.parametrize(
    "words",
    [
        "12", "11;12", "11,12", "-Q;12", "--me", "-u;ann", "--user=1000", "-uann", "--user=bob,ann", "-n;align reads", "--jobname=align reads", "--na=align reads",
        "-t;running;12", "--state=PENDING,R;--me", "-p;main", "-s;TERM;12", "-sSIGKILL;12", "--signal=2;12", "-b;-s;15;12", "--clusters=all;12", "-i;12", "-f;12",
        "12;--quiet", "-w;n1", "--account=lab",
    ],
)  # fmt: skip
def test_a_user_who_cancels_a_failed_job_in_any_form_means_it(words: str) -> None:
    made = call(words)
    assert made is not None
    assert made.covers(JOB, FAILED, DETAILS)


@pytest.mark.parametrize(
    "words",
    ["13", "112", "12_3", "12.0", "12.batch", "-u;bob", "-n;other", "-t;PENDING;--me", "-t;PD;12", "-s;USR1;12", "--signal=CONT;12", "-s;STOP;--me"],
)  # fmt: skip
def test_other_jobs_and_other_signals_leave_it_to_be_recovered(words: str) -> None:
    made = call(words)
    assert made is None or not made.covers(JOB, FAILED, DETAILS)


@pytest.mark.parametrize(
    "words", ["", "--help", "--version", "-V", "--no-such-option;12", "-s", "nonsense", "-Q", "-s;TERM"]
)
def test_what_slurm_refuses_or_does_not_take_for_a_cancellation_is_none(words: str) -> None:
    assert read_cancel_call([word for word in words.split(";") if word], ANN, NOW) is None


@pytest.mark.parametrize(
    ("words", "covered"),
    [
        ("12", True), ("12_3", True), ("12_[3]", True), ("12_[1-4]", True), ("12_[0,3-5%2]", True), ("7,12_[0,3],9", True), ("12_[1-9:2]", True), ("15", True),
        ("12_4", False), ("12_[0-2,4]", False), ("12_33", False), ("13_3", False), ("3", False),
    ],
)  # fmt: skip
def test_an_element_is_cancelled_by_itself_with_others_or_with_its_array(words: str, covered: bool) -> None:
    """15 is the number that Slurm gave it."""
    made = call(words)
    assert made is not None
    assert made.covers(ELEMENT, FAILED, replace(DETAILS, id="12_3", number="15")) is covered


def test_only_its_user_and_root_may_have_cancelled_it() -> None:
    for by, covered in ((ANN, True), (ROOT, True), (BOB, False)):
        made = call("12", by)
        assert made is not None
        assert made.covers(JOB, FAILED, DETAILS) is covered
    own = call("--me", ROOT)
    assert own is not None
    assert not own.covers(JOB, FAILED, DETAILS), "root's own jobs"


@pytest.mark.parametrize(
    ("words", "started", "ended", "covered"),
    [
        ("12", 100, NOW - 100, True),
        ("12", 100, NOW + 3, True),  # another host's clock
        ("12", 100, NOW + 30, False),  # Slurm itself cancelled what ran then, or refused
        ("-s;TERM;12", 100, NOW + 30, True),
        ("-s;TERM;12", 100, NOW + SIGNAL_TAKES + 1, False),
        ("-s;TERM;12", NOW + 10, NOW + 30, False),  # the user had it run again
        ("12", None, None, True),
    ],
)
def test_it_is_about_the_start_that_had_failed(
    words: str, started: int | None, ended: float | None, covered: bool
) -> None:
    made = call(words)
    assert made is not None
    outcome = replace(FAILED, started=started, ended=None if ended is None else int(ended))
    assert made.covers(JOB, outcome, DETAILS) is covered


def test_of_a_job_that_slurm_has_forgotten_only_its_id_is_known() -> None:
    for words, covered in (("12", True), ("--me", True), ("-n;align reads", False)):
        made = call(words)
        assert made is not None
        assert made.covers(JOB, FAILED, None) is covered
