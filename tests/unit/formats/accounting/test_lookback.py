"""Looking back at a campaign with known truth: causes, core-hours, rules, and the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.unit.formats.accounting.campaign import FAILURES, Truth, lines

from forestay.adapters.cel.conditions import CelConditions
from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.evidence.past_attempt import PastAttempt, PastState
from forestay.domain.rules.context import read_context
from forestay.domain.rules.lost_hours import FIELDS, LostHours, holds, wilson
from forestay.domain.rules.plain_condition import whole_condition
from forestay.formats.accounting.lookback import Lookback, PastCauses, SourceKind, kind_of, past_rules, read_file
from forestay.formats.accounting.loss_page import loss_page
from forestay.formats.accounting.sacct import NotSacct, log_files, options_of, read_sacct
from forestay.formats.rules.pack_folder import shipped_packs
from forestay.formats.rules.rule_file import read_rule_file, starter_rules


@cache
def classifier() -> Classifier:
    return shipped_packs().classifier()


@pytest.fixture(scope="module")
def causes() -> PastCauses:
    return PastCauses(classifier())


def looked_back(text: Iterator[str]) -> Lookback:
    lookback = Lookback(classifier())
    for _ in lookback.add(read_sacct(text)):
        pass
    return lookback


@pytest.mark.parametrize("seed", [1, 2])
def test_causes_and_hours_of_a_known_campaign(seed: int, causes: PastCauses) -> None:
    truth = Truth()
    text = list(lines(3000, seed, truth))
    judged = right = 0
    for attempt in read_sacct(iter(text)):
        if attempt.state is not PastState.FAILED:
            assert attempt.id not in truth.kinds
            continue
        assert attempt.evidence is not None
        judged += 1
        right += str(causes.of(attempt.evidence).cause) in FAILURES[truth.kinds[attempt.id]].causes
    assert judged == sum(truth.failures.values()) > 300
    assert right / judged >= 0.85

    report = looked_back(iter(text)).report()
    assert report["attempts"] == truth.attempts
    assert report["cancelled"]["attempts"] == truth.cancelled > 0
    assert report["core_hours"] == pytest.approx(truth.core_hours, rel=1e-6)
    assert report["failed"]["core_hours"] == pytest.approx(sum(truth.hours.values()), rel=1e-6)
    for row in report["owners"]:
        assert row["core_hours"] == pytest.approx(truth.by_owner[row["name"]], rel=1e-4)
    for row in report["hosts"]:
        assert row["core_hours"] == pytest.approx(truth.by_host[row["name"]], rel=1e-4)
    by_cause = {row["cause"]: row["core_hours"] for row in report["causes"]}
    memory = truth.hours["memory"] + truth.hours["memory-by-accounting"]
    assert by_cause["memory"] == pytest.approx(memory, rel=0.05)
    assert by_cause["node"] == pytest.approx(truth.hours["node"], rel=0.05)


def test_what_is_alike_has_one_cause_as_if_each_was_classified(causes: PastCauses) -> None:
    truth = Truth()
    for attempt in read_sacct(lines(800, 7, truth)):
        if attempt.evidence is not None:
            assert causes.of(attempt.evidence).cause == classifier().classify(attempt.evidence).cause


def row(job: str, state: str, *, name: str = "a", submit: int = 0, end: int = 60, cpus: str = "2") -> str:
    def clock(minute: int) -> str:
        return f"2026-11-01T{minute // 60:02d}:{minute % 60:02d}:00"

    return f"{job}|ann|{state}|1:0|{cpus}|3600|{clock(submit)}|{clock(end)}|{name}"


HEADING = "JobID|User|State|ExitCode|NCPUS|ElapsedRaw|Submit|End|JobName"


def test_a_kept_file_may_have_other_columns_and_lines_that_cannot_be_read() -> None:
    text = [
        HEADING,
        row("1", "FAILED"),
        "nonsense",
        row("2", "COMPLETED"),
        row("3", "RUNNING"),
        row("4", "CANCELLED by 7"),
    ]
    attempts = list(read_sacct(text))
    assert [(attempt.id, attempt.state) for attempt in attempts] == [
        ("1", PastState.FAILED), ("2", PastState.SUCCEEDED), ("4", PastState.CANCELLED),
    ]  # fmt: skip
    assert attempts[0].core_hours == 2.0
    with pytest.raises(NotSacct):
        list(read_sacct(["JobName|User", "a|b"]))


def test_a_rule_is_judged_by_how_the_same_work_ended_when_it_was_run_again() -> None:
    text = [HEADING, row("1", "NODE_FAIL", end=60), row("1", "COMPLETED", end=120)]  # restarted under its id
    text += [
        row("2", "NODE_FAIL", name="b", end=60),
        row("3", "COMPLETED", name="b", submit=61, end=120),
    ]  # submitted again
    text += [row("4", "NODE_FAIL", name="c", end=60), row("5", "COMPLETED", name="c", submit=30, end=120)]  # beside it
    text += [row("6", "NODE_FAIL", name="d", end=60), row("7", "FAILED", name="d", submit=61, end=120)]
    (node,) = [rule for rule in looked_back(iter(text)).report()["rules"] if rule["rule"] == "starter-node"]
    assert (node["failures"], node["run_again"], node["succeeded"]) == (4, 3, 2)
    low, high = node["recovered"]
    assert 0 < low < 4 * 2 / 3 < high < 4


def test_without_evidence_everything_is_possible() -> None:
    assert wilson(0, 0) == (0, 1)
    low, high = wilson(0.5, 10)
    assert (round(low, 3), round(high, 3)) == (0.237, 0.763)


def test_every_starter_rule_is_judged_as_cel_judges_it() -> None:
    rules = read_rule_file(starter_rules()).rules
    assert len(past_rules()) == len(rules)
    for rule in rules:
        comparisons = whole_condition(rule["condition"])
        assert comparisons is not None
        assert {comparison.field for comparison in comparisons} <= FIELDS
        conditions = CelConditions()
        for cause in ("memory", "time", "node", "preempted", "network", "code"):
            for confidence in (0.5, 0.8, 0.95):
                for attempt in range(1, 11):
                    for retry in ("same", "no"):
                        plain = {"cause": cause, "confidence": confidence, "retry": retry, "job": {"attempt": attempt}}
                        context, wrong = read_context(plain)
                        assert not wrong
                        known = {"cause": cause, "confidence": confidence, "retry": retry, "job.attempt": attempt}
                        assert holds(comparisons, known) == conditions.over(context)(rule["condition"])


@pytest.mark.parametrize("text", ["cause == 'a' || true", "true ? a : b", "size(cause) > 3 && cause == 'a'"])
def test_a_condition_with_anything_else_in_it_is_not_judged(text: str) -> None:
    assert whole_condition(text) is None


def test_the_page_stands_alone_and_escapes_what_people_wrote() -> None:
    text = [HEADING, row("1", "TIMEOUT", name="<script>alert(1)</script>").replace("ann", "<b>ann</b>")]
    page = loss_page(looked_back(iter(text)).report(), "made <now>")
    assert "<script" not in page
    assert "<b>ann" not in page
    assert "&lt;b&gt;ann" in page
    assert "made &lt;now&gt;" in page
    assert "default-src 'none'" in page
    for outside in ("http://", "https://", "src=", "url(", "@import", "<link"):
        assert outside not in page


def test_names_are_left_out_on_request() -> None:
    truth = Truth()
    report = looked_back(lines(500, 3, truth)).report(redact_names=True)
    text = json.dumps(report) + loss_page(report, "")
    for name in (*truth.by_owner, *truth.by_host, *truth.kinds):
        assert name not in text
    assert "user 1" in text


def test_where_a_job_wrote_to() -> None:
    assert options_of("sbatch -o out-%j.txt --error=/logs/%x.%A_%a.err run.sh") == ["/logs/%x.%A_%a.err", "out-%j.txt"]
    assert options_of('sbatch --wrap="a | b" -ofile') == ["file"]
    assert options_of("sbatch 'unfinished") == []
    files = log_files(["/logs/%x.%A_%a.err", "o-%5j", "n-%N"], "/work", "12_3", "15", "fit", "ann")
    assert files == ["/logs/fit.12_3.err", "/work/o-00015"]
    assert log_files([], "/work", "12_3", "15", "fit", "ann") == ["/work/slurm-12_3.out"]
    assert log_files([], "/work", "12", "12", "fit", "ann") == ["/work/slurm-12.out"]


def test_a_file_is_known_by_its_first_lines(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    for text, kind in (
        (HEADING, SourceKind.SACCT),
        ("task_id\thash\tname\tstatus\texit\n", SourceKind.TRACE),
        ('[\n{\n  "ClusterId": 1\n}\n]', SourceKind.CONDOR),
        ("Nov-18 10:00:00.000 [main] DEBUG nextflow.cli.Launcher - x", SourceKind.NEXTFLOW_LOG),
        ("Building DAG of jobs...\n", SourceKind.SNAKEMAKE),
    ):
        kept.write_text(text)
        assert kind_of(kept) is kind
    assert list(read_file(kept)) == []


def test_sums_need_no_room_for_each_attempt() -> None:
    losses = LostHours(past_rules())
    for number in range(1000):
        losses.add(PastAttempt("slurm", str(number), "a", "ann", ("n1",), PastState.SUCCEEDED, 1, 3600), None)
    assert (losses.attempts, losses.core_hours, losses._open) == (1000, 1000.0, {})
