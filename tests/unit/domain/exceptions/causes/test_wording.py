"""The second classifier: what it reads, and what it may do to a finding of the patterns."""

from __future__ import annotations

import pytest

from forestay.domain.exceptions.causes.cause import SURE, Cause, RetryNeed
from forestay.domain.exceptions.causes.classify import Classifier, terminal_lines
from forestay.domain.exceptions.causes.failure_pattern import FailurePattern, PatternConditions
from forestay.domain.exceptions.causes.wording import (
    BUCKETS,
    REMEMBERED,
    WordingModel,
    fact_bucket,
    pair_bucket,
    word_buckets,
    wording,
)
from forestay.domain.exceptions.evidence.evidence import Evidence, PreparedEvidence, Search

CAUSES = (Cause.MEMORY, Cause.NETWORK)
STEPS = ((0.0, 0.4), (0.7, 0.7), (0.9, 0.93))


def model(**weights: tuple[int, int]) -> WordingModel:
    """A model that knows some words, with a weight for memory and one for the network."""
    table = bytearray(BUCKETS * len(CAUSES))
    for word, row in weights.items():
        place = next(word_buckets(word))
        table[place * 2 : place * 2 + 2] = bytes(weight % 256 for weight in row)
    return WordingModel(CAUSES, bytes(table), (0.5, 0.5), (0.0, 0.0), STEPS)


def seen(*lines: str, **facts: object) -> PreparedEvidence:
    return PreparedEvidence(Evidence(log_tail=lines, **facts))  # type: ignore[arg-type]


def pattern(text: str, cause: Cause, confidence: float, **when: object) -> FailurePattern:
    conditions = PatternConditions(**({"lines": (Search(text),)} | when))  # type: ignore[arg-type]
    return FailurePattern(text, cause, RetryNeed.CHANGED, confidence, 60, conditions, "It says so.")


def test_words_are_masked_and_count_once() -> None:
    text = wording(("Cannot open /data/a/1.txt", "Cannot open /data/b/2.txt"), seen(exit_code=137))
    assert text.words == {"cannot", "open", "<path>"}
    assert text.pairs == {("cannot", "open"), ("open", "<path>")}
    assert text.facts == {"exit 137", "signal 9"}


def test_the_batch_systems_state_is_a_word_of_its_own() -> None:
    assert wording((), seen(scheduler_state="OUT_OF_MEMORY")).facts == {"state OUTOFMEMORY"}


def test_letters_of_a_word_are_features_and_those_of_a_placeholder_are_not() -> None:
    assert len(list(word_buckets("<path>"))) == len(list(word_buckets("is"))) == 1
    # " heap ": 4 of three letters, 3 of four, 2 of five, and the word.
    assert len(list(word_buckets("heap"))) == 10
    assert set(word_buckets("allocated")) & set(word_buckets("allocate"))


def test_likeness_follows_the_weights_and_sums_up_to_one() -> None:
    known = model(heap=(120, -120))
    like = known.likeness(wording(("heap",), seen()))
    assert like[Cause.MEMORY] > 0.99
    assert sum(like.values()) == pytest.approx(1.0)
    assert known.likeness(wording(("nothing known",), seen()))[Cause.MEMORY] == pytest.approx(0.5)
    assert known.likeness(wording((), seen()))[Cause.MEMORY] == pytest.approx(0.5)


def test_pairs_and_facts_have_weights_too() -> None:
    table = bytearray(2 * BUCKETS)
    table[2 * pair_bucket(("java", "heap"))] = 100
    table[2 * fact_bucket("exit 137") + 1] = 100
    known = WordingModel(CAUSES, bytes(table), (0.5, 0.5), (0.0, 0.0), STEPS)
    assert known.likeness(wording(("java heap",), seen()))[Cause.MEMORY] > 0.9
    assert known.likeness(wording(("heap java",), seen()))[Cause.MEMORY] == pytest.approx(0.5)
    assert known.likeness(wording((), seen(exit_code=137)))[Cause.NETWORK] > 0.9


def test_words_are_remembered_within_bounds() -> None:
    known = model(heap=(120, -120))
    first = known.likeness(wording(("heap",), seen()))
    for number in range(REMEMBERED + 10):
        known.likeness(wording((f"word{'abcdefghij'[number % 10] * (number % 97)}",), seen()))
    assert known.likeness(wording(("heap",), seen())) == first


def test_weights_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match="2 causes"):
        WordingModel(CAUSES, b"123", (0.5, 0.5), (0.0, 0.0), STEPS)


def test_confidence_rises_by_steps() -> None:
    known = model()
    assert [known.calibrated(0.6, like) for like in (0.0, 0.32, 0.34, 0.99, 1.0)] == [0.4, 0.4, 0.7, 0.7, 0.93]


HEAP = pattern("heap", Cause.MEMORY, 0.65)


def test_a_weak_reading_is_sure_where_the_wording_agrees() -> None:
    classifier = Classifier([HEAP], model(exhausted=(127, -127)))
    finding = classifier.classify(Evidence(exit_code=1, log_tail=("error: heap exhausted",)))
    assert (finding.cause, finding.confidence, finding.pattern) == (Cause.MEMORY, 0.93, "heap")
    assert finding.retry is RetryNeed.CHANGED
    assert finding.words == "It says so. The wording is like that of other memory failures."


def test_a_weak_reading_stays_weak_where_the_wording_differs() -> None:
    classifier = Classifier([HEAP], model(exhausted=(-127, 127)))
    finding = classifier.classify(Evidence(exit_code=1, log_tail=("error: heap exhausted",)))
    assert (finding.cause, finding.confidence, finding.words) == (Cause.MEMORY, 0.4, "It says so.")


def test_what_a_pattern_is_sure_of_is_not_asked_about() -> None:
    for like in ((127, -127), (-127, 127)):
        classifier = Classifier([pattern("heap", Cause.MEMORY, 0.85)], model(exhausted=like))
        assert classifier.classify(Evidence(exit_code=1, log_tail=("error: heap exhausted",))).confidence == 0.85


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(exit_code=1, log_tail=("error: exhausted",)),
        Evidence(exit_code=137),
        Evidence(exit_code=1, log_tail=("error: lost exhausted",)),
    ],
    ids=["no pattern knows it", "no line decided", "a cause that the model does not know"],
)
def test_the_wording_alone_decides_nothing(evidence: Evidence) -> None:
    patterns = [
        HEAP,
        pattern("killed", Cause.MEMORY, 0.65, lines=(), exit_code=frozenset({137})),
        pattern("lost", Cause.NODE, 0.65),
    ]
    with_model = Classifier(patterns, model(exhausted=(127, -127))).classify(evidence)
    assert with_model == Classifier(patterns).classify(evidence)
    assert with_model.confidence < SURE


def test_only_the_block_that_ends_the_log_is_read() -> None:
    survived = ["error: connection refused", *(f"step {number} done" for number in range(9))]
    evidence = seen(*survived, "Traceback (most recent call last):", '  File "a.py", line 3, in f', "    heap(3)", "error: heap exhausted")  # fmt: skip
    assert not any("refused" in line for line in terminal_lines(evidence, []))
    assert terminal_lines(evidence, [])[-3:] == [
        "Traceback (most recent call last):",
        '  File "a.py", line 3, in f',
        "error: heap exhausted",
    ]


def test_a_long_log_is_compared_by_its_end() -> None:
    log = (*(f"step {number} done" for number in range(300)), "error: heap exhausted")
    finding = Classifier([HEAP], model(exhausted=(127, -127))).classify(Evidence(exit_code=1, log_tail=log))
    assert finding.confidence == 0.93
