"""Fingerprints: the same error is one, whatever varies in its words; other errors are others; and an id that was once given stays."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.speed import cpu_limit
from tests.unit.domain.exceptions.causes.generated_errors import TEMPLATES, generated_errors, pairs

from forestay.domain.exceptions.causes import fingerprint as module
from forestay.domain.exceptions.causes.fingerprint import (
    LONGEST_TITLE,
    VERSION,
    Fingerprint,
    deciding_line,
    fingerprint,
    normalised_task,
)
from forestay.formats.rules.evidence_json import evidence_to_json, finding_to_json, read_evidence
from forestay.formats.rules.pack_folder import shipped_packs

PRECISION, RECALL = 0.98, 0.80
A_SECOND = 1_000
"""Failures a second on one core."""
LABELLED = [
    json.loads(line)
    for line in Path(__file__).with_name("labelled_pairs.jsonl").read_text(encoding="utf-8").splitlines()
]

# What varies, and what stays: the title that people see, and the id that stores keep. An id that changes here splits the history of every error that had it:
# a better way gets another VERSION, and these lines stay as those of the version before.
KNOWN = [
    ("FileNotFoundError: [Errno 2] No such file or directory: '/scratch/ada/NA12878/r1.fastq.gz'", "align[17]", "data-missing",
     "FileNotFoundError: [Errno 2] No such file or directory: <path>"),
    ("2026-11-18 01:02:03,456 ERROR - slurmstepd: error: Detected 3 oom-kill event(s) in StepId=881231.batch.", "align_17", "memory",
     "slurmstepd: error: Detected <n> oom-kill event(s) in StepId=<n>.batch."),
    ("slurmstepd: error: *** JOB 867816 ON c0700a-s1 CANCELLED AT 2026-05-11T12:06:17 DUE TO TIME LIMIT ***", "sort", "time",
     "slurmstepd: error: *** JOB <n> ON <id> CANCELLED AT <time> DUE TO TIME LIMIT ***"),
    ("MemoryError: Unable to allocate 17.5 GiB for an array with shape (48000, 48000) and data type float64", "fit", "memory",
     "MemoryError: Unable to allocate <size> for an array with shape (<n>) and data type float64"),
    ("ModuleNotFoundError: No module named 'pysam'", "count", "code", "ModuleNotFoundError: No module named 'pysam'"),
    ("requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://data.example.org/a/1", "fetch", "network",
     "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: <url>"),
    ("java.net.ConnectException: Connection refused: node17/10.1.2.3:8020", "merge", "network",
     "java.net.ConnectException: Connection refused: <path>"),
    ("RuntimeError: NCCL error in: /opt/torch/lib/c10d/ProcessGroupNCCL.cpp:784, unhandled system error, NCCL version 2.14.3+cuda11.7", "train", "network",
     "RuntimeError: NCCL error in: <path>/ProcessGroupNCCL.cpp, unhandled system error, NCCL version <n>"),
    ("cp: cannot stat '/data/8f14e45f/out.bam': No such file or directory", "publish (NA12878)", "data-missing",
     "cp: cannot stat <path>: No such file or directory"),
    ("Killed process 4411 after 3h12m by 0x7ffd0c, request 6f1c1f6e-8a1b-4c3d-9e2f-0123456789ab", "call", "memory",
     "Killed process <n> after <time> by <hex>, request <id>"),
]  # fmt: skip
IDS = [
    "1-d9fb2099cf15", "1-a46f5f4f79f6", "1-01e87ca2e9e2", "1-e2a87caa2478", "1-b0b15121c13e", "1-df74ea40538d", "1-a9ccede7ddc5", "1-ca11014e1e1a",
    "1-53c9fb07b23d", "1-b54340ea7793",
]  # fmt: skip


@pytest.mark.parametrize(("line", "task", "cause", "title"), KNOWN)
def test_what_varies_is_masked_and_the_rest_stays(line: str, task: str, cause: str, title: str) -> None:
    assert fingerprint(line, task, cause).title == title


def test_an_id_that_was_given_stays() -> None:
    assert [fingerprint(*entry[:3]).id for entry in KNOWN] == IDS


def test_another_version_is_another_id_and_leaves_the_first_as_it_is() -> None:
    first = fingerprint("boom", "align", "code")
    assert first.id.startswith(f"{VERSION}-")
    later = Fingerprint(first.line, first.task, first.cause, VERSION + 1)
    assert later.id.startswith(f"{VERSION + 1}-")
    assert later.id.partition("-")[2] == first.id.partition("-")[2]


def test_line_task_and_cause_tell_errors_apart_and_case_does_not() -> None:
    ids = {
        fingerprint(*parts).id
        for parts in [("boom", "align", "code"), ("bang", "align", "code"), ("boom", "sort", "code"), ("boom", "align", "node")]
    }  # fmt: skip
    assert len(ids) == 4
    assert fingerprint("Boom", "Align", "code").id == fingerprint("boom", "align", "code").id


@pytest.mark.parametrize(
    "names",
    [
        ("align[3]", "align[17]", "align_4", "align-21", "align (NA12878)", "align"),
        ("bowtie2", "bowtie2 (S1)"),
        ("merge_3_sort", "merge_12_sort"),
        ("call.9b2fa01c", "call"),
    ],
)
def test_the_index_of_a_task_does_not_count(names: tuple[str, ...]) -> None:
    assert len({normalised_task(name) for name in names}) == 1


def test_a_name_that_is_all_index_stays() -> None:
    assert normalised_task("17") == "17"
    assert normalised_task("bowtie2") != normalised_task("bowtie")


def test_generated_errors_are_told_apart_and_found_again() -> None:
    assert len(TEMPLATES) >= 200
    for seed in (7, 11):
        made = generated_errors(seed)
        found = pairs((failure.error, fingerprint(failure.line, failure.task, "").id) for failure in made)
        assert found.precision >= PRECISION
        assert found.recall >= RECALL


def test_the_same_from_the_log_by_way_of_the_classifier() -> None:
    """With what ordinary output and harmless warnings before the error do to the deciding line and the cause."""
    classifier = shipped_packs().classifier()
    grouped = []
    for failure in generated_errors(7, each=4):
        evidence = read_evidence({"exit_code": 1, "log_tail": failure.log})
        finding = classifier.classify(evidence)
        line = deciding_line(finding_to_json(finding), evidence_to_json(evidence))
        grouped.append((failure.error, fingerprint(line, failure.task, finding.cause).id))
    found = pairs(grouped)
    assert found.precision >= PRECISION
    assert found.recall >= RECALL


def test_pairs_of_real_records_are_judged_as_people_judged_them() -> None:
    """Lines from public trackers, each pair labelled by hand; half of them are those that look most alike."""
    assert len(LABELLED) >= 300
    judged = [(pair["same"], fingerprint(*pair["a"]).id == fingerprint(*pair["b"]).id) for pair in LABELLED]
    together = [same for same, found in judged if found]
    belonging = [found for same, found in judged if same]
    assert len(belonging) >= 40
    assert sum(together) / len(together) >= PRECISION
    # Less than of generated errors: these come from programs of different versions, which say the same in other words.
    assert sum(belonging) / len(belonging) >= 0.70


def test_a_thousand_a_second_on_one_core() -> None:
    made = generated_errors(3, each=5)
    module._masked.cache_clear()
    module.normalised_task.cache_clear()
    begun = time.thread_time()
    for failure in made:
        _ = fingerprint(failure.line, failure.task, "").id
    assert time.thread_time() - begun <= cpu_limit(len(made) / A_SECOND)


@pytest.mark.parametrize("part", ["a", "/", "1", "a1-", "x.", "'", "0x1 ", "1.", "a@", ":1", "/a.", "<n>, ", "ab:", "%1.@", "+1.e", "/1.", "a.b+", "é\u2028"])  # fmt: skip
def test_a_line_made_to_be_slow_is_not(part: str) -> None:
    begun = time.thread_time()
    title = fingerprint(part * 2_000, part * 500, "").title
    assert time.thread_time() - begun <= cpu_limit(0.1)
    assert 0 < len(title) <= LONGEST_TITLE


class TestDecidingLine:
    def test_the_line_that_decided(self) -> None:
        lines = ["Process `x (1)` terminated with an error exit status (127)", "x.sh: line 3: sed: command not found"]
        assert deciding_line({"pattern": "command-not-found", "lines": lines}, {}) == lines[1]
        assert deciding_line({"pattern": "wrapped", "lines": lines[:1]}, {}) == lines[0]

    def test_a_warning_gives_way_to_the_last_words_of_the_log(self) -> None:
        finding = {"pattern": "network", "lines": ["Connection reset by peer, retrying (1/3)"]}
        log = "starting\nValueError: bad shape\n    at frame\nfinished with warnings: retrying"
        assert deciding_line(finding, {"log_tail": log}) == "ValueError: bad shape"
        assert deciding_line(finding, {}) == "Connection reset by peer, retrying (1/3)"

    def test_what_a_measure_decided_speaks_for_itself(self) -> None:
        finding = {"pattern": "oom-kills", "lines": [], "confidence": 0.9, "words": "The kernel killed the job."}
        assert deciding_line(finding, {"log_tail": "progress 3\nfailed to open cache"}) == "The kernel killed the job."
        unsure = {**finding, "confidence": 0.3}
        assert deciding_line(unsure, {"log_tail": "progress 3\nfailed to open cache"}) == "failed to open cache"

    def test_a_line_without_words_says_nothing(self) -> None:
        finding = {"pattern": None, "lines": ["?"], "words": "No pattern matches."}
        assert deciding_line(finding, {"log_tail": "?", "exit_code": 1}) == "exit code 1"
        assert deciding_line({**finding, "lines": ["---- 17", "段错误"]}, {"exit_code": 1}) == "段错误"

    def test_without_a_log(self) -> None:
        nothing: dict[str, object] = {
            "pattern": None,
            "lines": [],
            "words": "It failed without output: there is no log.",
        }
        batch_words = {"scheduler_state": "NODE_FAIL", "scheduler_reason": "NodeDown"}
        assert deciding_line(nothing, batch_words) == "NODE_FAIL: NodeDown"
        assert deciding_line(nothing, {"signal": 9, "exit_code": 137}) == "killed by signal 9"
        assert deciding_line(nothing, {"exit_code": 3}) == "exit code 3"
        assert deciding_line(nothing, {}) == "It failed without output: there is no log."
        assert deciding_line({}, {}) == ""
