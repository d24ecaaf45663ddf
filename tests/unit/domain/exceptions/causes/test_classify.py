"""How readings are weighed, and that nothing in a record can stop it."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some
from tests.sizes import examples
from tests.speed import cpu_limit
from tests.unit.packs.shipped import classifier

from forestay.domain.exceptions.causes.cause import Cause, CauseFinding, RetryNeed
from forestay.domain.exceptions.causes.classify import Classifier
from forestay.domain.exceptions.evidence.evidence import MOST_CHARACTERS, MOST_LINES, PreparedEvidence, bounded_lines
from forestay.formats.rules.evidence_json import evidence_to_json, finding_to_json, read_evidence
from forestay.formats.rules.pack_folder import shipped_packs
from forestay.formats.rules.pack_yaml import read_pack_text
from forestay.formats.rules.wording_file import shipped_wording

DEFAULT_POLICY = """
pack: house
version: 1
patterns:
  - {name: no-space, cause: disk, retry: changed, confidence: 0.9, weight: 60, when: {lines: ['No space left']}, words: w, matches: [{log_tail: No space left}], passes: [{}]}
  - {name: key-error, cause: code, retry: no, confidence: 0.9, weight: 60, when: {lines: ['KeyError']}, words: w, matches: [{log_tail: KeyError}], passes: [{}]}
  - {name: out-of-memory, cause: memory, retry: changed, confidence: 0.8, weight: 60, when: {lines: ['out of memory']}, words: w, matches: [{log_tail: out of memory}], passes: [{}]}
  - {name: state-oom, cause: memory, retry: changed, confidence: 0.9, weight: 60, when: {scheduler_state: [OUT_OF_MEMORY]}, words: w, matches: [{scheduler_state: OUT_OF_MEMORY}], passes: [{}]}
  - {name: no-column, cause: data-missing, retry: no, confidence: 0.9, weight: 64, when: {lines: ['no such column']}, words: w, matches: [{log_tail: no such column}], passes: [{}]}
  - {name: perhaps-host, cause: node, retry: elsewhere, confidence: 0.45, weight: 40, when: {lines: ['perhaps the host']}, words: w, matches: [{log_tail: perhaps the host}], passes: [{}]}
  - {name: perhaps-link, cause: network, retry: same, confidence: 0.45, weight: 40, when: {lines: ['perhaps the link']}, words: w, matches: [{log_tail: perhaps the link}], passes: [{}]}
  - {name: exited, cause: code, retry: no, confidence: 0.5, weight: 10, when: {lines: ['exited with']}, words: w, matches: [{log_tail: exited with 1}], passes: [{}]}
"""
DEFAULT_CLASSIFIER = Classifier(pack_pattern.pattern for pack_pattern in read_pack_text(DEFAULT_POLICY).patterns)


def asked(**plain: Any) -> CauseFinding:
    return DEFAULT_CLASSIFIER.classify(read_evidence(plain))


def test_the_nearer_to_the_root_wins() -> None:
    finding = asked(exit_code=1, log_tail="task 3 exited with 1\nout of memory")
    assert (finding.cause, finding.pattern, finding.lines) == (Cause.MEMORY, "out-of-memory", ("out of memory",))
    assert [cause_finding.pattern for cause_finding in finding.also] == ["exited"]


def test_of_two_errors_the_first_is_the_root() -> None:
    assert asked(exit_code=1, log_tail="No space left\nKeyError: 'x'").cause is Cause.DISK
    assert asked(exit_code=1, log_tail="KeyError: 'x'\nno such column").cause is Cause.CODE


def test_a_full_disk_explains_a_later_exception_and_never_the_reverse() -> None:
    frames = "  at step\n" * 20
    explained = asked(exit_code=1, log_tail=f"No space left\n{frames}KeyError: 'x'")
    assert (explained.cause, explained.confidence) == (Cause.DISK, 0.9)
    reverse = asked(exit_code=1, log_tail=f"KeyError: 'x'\n{frames}No space left")
    assert reverse.confidence <= 0.6
    assert {reverse.cause, reverse.also[0].cause} == {Cause.DISK, Cause.CODE}


def test_whatever_broke_its_results_are_missing() -> None:
    assert asked(log_tail="KeyError: 'x'\ncp: no such column, file missing").cause is Cause.CODE
    assert asked(log_tail="cp: no such column, file missing\nKeyError: 'x'").cause is Cause.DATA_MISSING


@pytest.mark.parametrize("between", [3, 20, 80])
@pytest.mark.parametrize("survived", ["No space left", "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    open(x)\nout of memory"])  # fmt: skip
def test_an_error_with_ordinary_output_before_the_errors_that_end_the_log_does_not_win(
    survived: str, between: int
) -> None:
    ordinary = "".join(f"block {n} done\n" for n in range(between))
    finding = asked(log_tail=f"{survived}\n{ordinary}KeyError: 'x'")
    assert (finding.cause, finding.pattern) == (Cause.CODE, "key-error")
    assert finding.confidence >= 0.8


def test_an_error_that_was_survived_is_no_answer_when_the_end_says_something_that_nobody_knows() -> None:
    ordinary = "".join(f"block {n} done\n" for n in range(3))
    finding = asked(log_tail=f"No space left\n{ordinary}fatal: zyx")
    assert (finding.cause, finding.retry) == (Cause.UNKNOWN, RetryNeed.NO)
    assert "went on" in finding.words
    assert finding.also[0].cause is Cause.DISK
    assert finding.lines == ()  # what is shown and grouped by is the end of the log, not what was survived


@pytest.mark.parametrize(
    "behind",
    ["Valid kinds :\n(\nhierarchical\nscotch\n)\n", "see the manual\nof the tool\n", "  at a\n  at b\n  at c\n  at d\n", "----------\n\n==========\n\n"],
)  # fmt: skip
def test_what_belongs_to_an_error_does_not_part_it_from_the_end(behind: str) -> None:
    assert asked(log_tail=f"No space left\n{behind}exited with 1").cause is Cause.DISK


def test_what_the_last_lines_do_not_know_is_looked_for_in_the_whole_log() -> None:
    """The errors that end it fill more than the lines that are read first, and the one that is known is the first."""
    frames = "".join(f"error in step {n}\n" for n in range(120))
    assert asked(log_tail=f"ready\nNo space left\n{frames}").cause is Cause.DISK


def test_a_report_before_the_output_is_about_the_end() -> None:
    ordinary = "".join(f"block {n} done\n" for n in range(9))
    assert (
        asked(log_tail=f"out of memory\n\nThe output (if any) follows:\n\n{ordinary}exited with 1").cause
        is Cause.MEMORY
    )


def test_behind_caused_by_stands_the_root() -> None:
    finding = asked(log_tail="KeyError: outer\n  at a\n  at b\nCaused by: No space left")
    assert finding.cause is Cause.DISK


def test_an_early_warning_does_not_win() -> None:
    assert asked(log_tail="WARNING: No space left, retrying\nall fine\nKeyError: 'x'").cause is Cause.CODE


def test_an_error_after_which_much_was_done_does_not_win() -> None:
    ordinary = "".join(f"block {n} done\n" for n in range(80))
    assert asked(log_tail=f"No space left\n{ordinary}KeyError: 'x'").cause is Cause.CODE


def test_of_two_that_are_equal_the_stronger_is_the_answer_and_not_sure() -> None:
    finding = asked(scheduler_state="OUT_OF_MEMORY", log_tail="KeyError: 'x'")
    assert (finding.cause, finding.confidence) == (Cause.CODE, 0.6)
    assert finding.retry is RetryNeed.NO  # the two need different retries
    assert [cause_finding.cause for cause_finding in finding.also] == [Cause.MEMORY]
    assert "Memory (state-oom) is almost as likely." in finding.words


def test_two_weak_readings_of_one_strength_are_unknown_and_both_named() -> None:
    finding = asked(log_tail="perhaps the host, perhaps the link")
    assert finding.cause is Cause.UNKNOWN
    assert finding.confidence < 0.5
    assert {cause_finding.cause for cause_finding in finding.also} == {Cause.NODE, Cause.NETWORK}
    assert finding.words.startswith("Two readings: ")


def test_tellers_that_agree_are_surer() -> None:
    alone = asked(log_tail="out of memory")
    both = asked(log_tail="out of memory", scheduler_state="OUT_OF_MEMORY")
    assert both.confidence > alone.confidence
    assert both.cause is Cause.MEMORY


def test_nothing_known_is_unknown() -> None:
    for plain in ({}, {"exit_code": 1}, {"exit_code": 1, "log_tail": "zyx"}):
        finding = asked(**plain)
        assert (finding.cause, finding.pattern, finding.retry) == (Cause.UNKNOWN, "", RetryNeed.NO)
        assert finding.confidence <= 0.3


JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=30),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = some.sampled_from(
    ["exit_code", "signal", "scheduler", "scheduler_state", "scheduler_reason", "log_tail", "peak_memory", "memory_limit", "oom_kills", "disk_left",
     "wall_time", "time_limit", "stage", "transfer", "node", "stderr", "hold_code", "hold_subcode", "ExitCode", "State", "anything"]
)  # fmt: skip
TELLING = some.deferred(
    lambda: some.sampled_from([record for entry in shipped_packs().patterns for record in entry.fixtures.matches])
)


@settings(deadline=None, max_examples=examples(100))
@example({"exit_code": 3 * (1 << 31) + 1}, {})
@example({"ExitCode": "0:125"}, {})
@example({"ExitCode": "0:999"}, {})
@given(some.dictionaries(FIELDS, JSON, max_size=8), TELLING)
def test_any_record_has_an_answer(plain: dict[str, Any], telling: dict[str, Any]) -> None:
    for record in (plain, {**telling, **plain}, {**plain, **telling}):
        evidence = read_evidence(record)
        finding = classifier().classify(evidence)
        assert finding.cause in set(Cause)
        assert finding.retry in set(RetryNeed)
        assert 0.0 <= finding.confidence <= 1.0
        assert finding_to_json(finding).keys() == {
            "cause",
            "confidence",
            "retry",
            "tries",
            "wait",
            "pattern",
            "lines",
            "words",
            "advice",
            "also",
        }
        again = read_evidence(json.loads(json.dumps(evidence_to_json(evidence))))
        assert (again.exit_code, again.signal, again.hold_code) == (
            evidence.exit_code,
            evidence.signal,
            evidence.hold_code,
        )


@pytest.mark.long
@settings(deadline=None, max_examples=examples(6))
@given(some.randoms(use_true_random=False), TELLING)
def test_the_order_of_patterns_does_not_matter(dice: random.Random, telling: dict[str, Any]) -> None:
    patterns = [pack_pattern.pattern for pack_pattern in shipped_packs().patterns]
    dice.shuffle(patterns)
    evidence = read_evidence(telling)
    assert Classifier(patterns, shipped_wording()).classify(evidence) == classifier().classify(evidence)


PARTS = 10


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_the_index_leaves_nothing_out(part: int) -> None:
    """What the index passes over does not match, on every fixture there is; the gate tries a tenth of them."""
    entries = shipped_packs().patterns
    records = [record for entry in entries for record in (*entry.fixtures.matches, *entry.fixtures.passes)]
    for record in records[part::PARTS]:
        evidence = read_evidence(record)
        slow = {entry.pattern.name for entry in entries if entry.pattern.match(PreparedEvidence(evidence)) is not None}
        assert {match.pattern.name for match in classifier().matches(PreparedEvidence(evidence))} == slow


def log_tails() -> list[str]:
    return [str(entry.fixtures.matches[0].get("log_tail", "")) for entry in shipped_packs().patterns]


@pytest.mark.parametrize(
    "log",
    [
        "a" * 70_000,
        "error: " * 10_000,
        "\n".join("error: failed: " * 120 for _ in range(40)),
        lambda: "\n".join(tail[:160] for tail in log_tails()),
        lambda: " ".join(tail.replace("\n", " ") for tail in log_tails()),
        "\x1b[31m" * 20_000,
        "/" * 66_000,
        "No such file or directory: " + " " * 60_000,
    ],
    ids=["letters", "errors", "long-lines", "all-at-once", "all-in-a-line", "colours", "slashes", "spaces"],
)
def test_a_hostile_log_takes_no_long_time(log: str | Callable[[], str]) -> None:
    shipped, evidence = classifier(), read_evidence({"exit_code": 1, "log_tail": log() if callable(log) else log})
    began = time.process_time()
    shipped.classify(evidence)
    assert time.process_time() - began < cpu_limit(5.0)


def test_a_log_is_bounded() -> None:
    lines = bounded_lines("\n".join(f"line {n} " + "x" * 300 for n in range(5_000)))
    assert len(lines) <= MOST_LINES
    assert sum(map(len, lines)) <= MOST_CHARACTERS
    assert lines[-1].startswith("line 4999 ")
    assert bounded_lines(["\x1b[31mred\x1b[0m", " 10%\r 20%", "", ""]) == ("red", " 10%", " 20%")
