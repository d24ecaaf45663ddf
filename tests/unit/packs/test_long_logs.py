"""Failures in long logs: how they are made, and the floors that the classifier holds on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from tests.unit.packs.long_logs import (
    CONSEQUENCES,
    ORDINARY,
    RECOVERED,
    Fold,
    Share,
    Surroundings,
    collected,
    fold_of,
    is_harmful,
    long_logs,
    scored,
)
from tests.unit.packs.shipped import classifier

from forestay.domain.exceptions.causes.cause import Cause, CauseFinding, RetryNeed
from forestay.domain.exceptions.causes.classify import weigh
from forestay.domain.exceptions.evidence.evidence import MOST_LINES, Evidence, PreparedEvidence


@pytest.mark.parametrize("surroundings", list(Surroundings))
def test_a_seed_makes_the_same_logs_again(surroundings: Surroundings) -> None:
    once = [log.evidence.log_tail for log in long_logs(Fold.REPORT, surroundings, 3, every=9)]
    assert once == [log.evidence.log_tail for log in long_logs(Fold.REPORT, surroundings, 3, every=9)]
    if surroundings is Surroundings.EXCERPT:
        return
    assert {len(tail) for tail in once} == {MOST_LINES}
    assert once != [log.evidence.log_tail for log in long_logs(Fold.REPORT, surroundings, 4, every=9)]


@pytest.mark.parametrize(("surroundings", "between"), [(Surroundings.RECOVERED_3, 3), (Surroundings.RECOVERED_20, 20)])
def test_the_survived_error_stands_so_many_ordinary_lines_before_the_failure(
    surroundings: Surroundings, between: int
) -> None:
    excerpts = [log.evidence.log_tail for log in long_logs(Fold.REPORT, Surroundings.EXCERPT, 3, every=3)]
    logs = long_logs(Fold.REPORT, surroundings, 3, every=3)
    assert {log.kind for log in logs} == set(RECOVERED[Fold.REPORT])
    for log, excerpt in zip(logs, excerpts, strict=True):
        begins = MOST_LINES - between - len(excerpt)
        survived = RECOVERED[Fold.REPORT][log.kind].split("\n")
        assert list(log.evidence.log_tail[begins - len(survived) : begins]) == survived


def test_folds_share_neither_a_repository_nor_a_word_around_the_failures() -> None:
    repositories = {fold: {record["source"].split("#")[0] for record in collected() if fold_of(record) is fold} for fold in Fold}  # fmt: skip
    assert not repositories[Fold.TUNE] & repositories[Fold.REPORT]
    assert min(len(names) for names in repositories.values()) > 200
    assert not set(ORDINARY[Fold.TUNE]) & set(ORDINARY[Fold.REPORT])
    for kinds in (RECOVERED, CONSEQUENCES):
        assert not set(kinds[Fold.TUNE].values()) & set(kinds[Fold.REPORT].values())
        assert min(len(fold) for fold in kinds.values()) >= 10


def test_answers_are_scored() -> None:
    logs = long_logs(Fold.REPORT, Surroundings.EXCERPT, 3)
    score = scored(logs, lambda _evidence: CauseFinding(Cause.NODE, 0.9, RetryNeed.ELSEWHERE))
    nodes = sum("node" in log.causes for log in logs)
    assert score.accepted.of == nodes
    assert score.sure_and_wrong.of == len(score.wrong) == len(logs) - nodes
    assert 0 < score.harmful.of < score.sure_and_wrong.of


@pytest.mark.parametrize(
    ("expected", "verdict", "harmful"),
    [("no", "same", True), ("no", "no", False), ("changed", "elsewhere", True), ("changed", "changed", False), ("same", "no", False)],
)  # fmt: skip
def test_a_retry_that_fails_for_sure_is_harmful(expected: str, verdict: str, *, harmful: bool) -> None:
    assert is_harmful(expected, verdict) is harmful


def test_an_interval_holds_its_share() -> None:
    low, high = Share(90, 100).interval
    assert (round(low, 3), round(high, 3)) == (0.826, 0.945)
    assert Share(0, 50).interval[0] == 0.0


@dataclass(frozen=True, slots=True)
class Floor:
    """What must hold; each is reached with room."""

    accepted: float
    sure_and_wrong: float
    harmful: float


FLOORS = {
    Surroundings.EXCERPT: Floor(accepted=0.90, sure_and_wrong=0.01, harmful=0.01),
    Surroundings.ORDINARY: Floor(accepted=0.90, sure_and_wrong=0.01, harmful=0.01),
    Surroundings.RECOVERED_20: Floor(accepted=0.87, sure_and_wrong=0.02, harmful=0.03),
    Surroundings.RECOVERED_3: Floor(accepted=0.86, sure_and_wrong=0.03, harmful=0.04),
    Surroundings.CONSEQUENCES: Floor(accepted=0.82, sure_and_wrong=0.05, harmful=0.02),
}
"""Of excerpts 90 % and 1 % are the goal; behind a survived error 82 % and 3 % (20 lines), 80 %, 3 % and 4 % (3 lines)."""


@pytest.mark.parametrize("surroundings", list(Surroundings))
def test_failures_in_long_logs_hold_their_floor(surroundings: Surroundings) -> None:
    floor = FLOORS[surroundings]
    score = scored(long_logs(Fold.REPORT, surroundings, 24, every=2), classifier().classify)
    assert score.accepted.value >= floor.accepted, score.wrong
    assert score.sure_and_wrong.value <= floor.sure_and_wrong, score.wrong
    assert score.harmful.value <= floor.harmful, score.wrong


def test_the_end_of_a_long_log_says_what_the_whole_log_says() -> None:
    """The last lines are read first, and the others only where those do not suffice."""
    for surroundings in (Surroundings.ORDINARY, Surroundings.RECOVERED_3, Surroundings.CONSEQUENCES):
        for log in long_logs(Fold.REPORT, surroundings, 7, every=9):
            finding = classifier().classify(log.evidence)
            whole = PreparedEvidence(log.evidence)
            expected = weigh(whole, classifier().matches(whole))
            assert (finding.cause, finding.retry, finding.pattern) == (
                expected.cause,
                expected.retry,
                expected.pattern,
            ), log.source


def test_a_long_log_that_its_end_does_not_explain_is_read_as_a_whole() -> None:
    """What was found in the last lines is not looked for again, and nothing of it is lost."""
    survived = "cp: error writing '/scratch/idx': No space left on device"
    ending = [*(f"tile {number}: wrote 512 rows" for number in range(60)), "error: the frobnicator gave up"]
    log = ["reading", survived, *(f"block {number} done" for number in range(200)), *ending]
    evidence = Evidence(exit_code=3, log_tail=tuple(log), scheduler_reason="see http://wiki/ended")
    last = PreparedEvidence(replace(evidence, log_tail=evidence.log_tail[-40:]))
    classifier().matches(last)
    whole, by_parts = PreparedEvidence(evidence), PreparedEvidence(evidence, last)
    matches = {match.pattern.name: match for match in classifier().matches(whole)}
    assert {match.pattern.name: match for match in classifier().matches(by_parts)} == matches
    assert by_parts.matched == whole.matched
    assert any(survived == evidence.log_tail[place] for match in matches.values() for place in match.places)
    finding, expected = classifier().classify(evidence), weigh(whole, list(matches.values()))
    assert (finding.cause, finding.pattern, finding.also) == (expected.cause, expected.pattern, expected.also)
