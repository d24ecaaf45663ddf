"""Training of the second classifier: of equal files the same bytes, and the shipped one is that of the files beside it."""

from __future__ import annotations

import random

import pytest
from scripts.train_second import Example, calibration, digest, examples, fit, part_of, read_wording
from tests.unit.packs.long_logs import collected
from tests.unit.packs.shipped import classifier

from forestay.domain.exceptions.causes.cause import Cause
from forestay.domain.exceptions.causes.wording import SUREST, UNSURE
from forestay.domain.exceptions.evidence.evidence import Evidence
from forestay.formats.rules.pack_folder import shipped_packs
from forestay.formats.rules.wording_file import shipped_wording, write_model


def test_the_shipped_model_is_that_of_the_files_beside_it() -> None:
    assert shipped_wording().trained_on == digest(examples(shipped_packs())), "run `just train-second`"


def test_the_digest_changes_with_what_is_learnt_from() -> None:
    first, other = Example(Evidence(exit_code=1), Cause.CODE, "a/b#1"), Example(Evidence(exit_code=2), Cause.CODE, "a/b#1")  # fmt: skip
    assert digest([first]) == digest([first])
    assert len({digest([first]), digest([other]), digest([first, other])}) == 3


def test_equal_examples_make_equal_bytes_and_a_model_that_has_learnt() -> None:
    learnt = [
        example for example in examples(shipped_packs()) if example.cause in (Cause.MEMORY, Cause.NETWORK, Cause.DISK)
    ][::3]
    texts = [read_wording(example.evidence, classifier()) for example in learnt]
    causes = [example.cause for example in learnt]
    model = fit(texts, causes)
    assert write_model(model) == write_model(fit(texts, causes))
    alike = [max(like := model.likeness(text), key=lambda cause: like[cause]) for text in texts]
    assert sum(answer is cause for answer, cause in zip(alike, causes, strict=True)) / len(causes) > 0.95


def test_all_failures_of_a_repository_are_in_one_fold() -> None:
    assert part_of("a/b#1") == part_of("a/b#22b")
    assert {part_of(str(record["source"])) for record in collected()} == set(range(5))


def test_the_calibration_rises_and_is_held_below_sure_where_it_is_not_safe() -> None:
    chance = random.Random(3)
    readings = [(value / 1000, chance.random() < 0.5 + value / 2500) for value in range(1000)]
    readings += [(1.0 + value / 1000, True) for value in range(100)]
    steps = calibration(readings)
    assert steps[0][0] == 0.0
    assert [step[1] for step in steps] == sorted({step[1] for step in steps})
    assert steps[-1][1] == SUREST
    assert all(confidence <= UNSURE for value, confidence in steps if value < 0.9)


@pytest.mark.parametrize("right", [True, False])
def test_a_few_readings_are_one_step(right: bool) -> None:
    assert calibration([(0.6, right), (0.7, True)]) == [(0.0, SUREST if right else 0.5)]
