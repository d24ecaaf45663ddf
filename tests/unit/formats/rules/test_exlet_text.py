"""Exlets as people write them: read with every error at its line, written back the same, and as the schema says."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import given
from scripts.exlet_schema import PLACE, described
from tests.unit.domain.exlets.made_up import exlets, good_exlets

from forestay.domain.exceptions.incidents.exception_type import ExceptionType
from forestay.domain.exlets.exlet import Exlet, PlaybookStep, WhenRefused
from forestay.domain.exlets.exlet_check import check_exlet
from forestay.domain.exlets.exlet_plain import exlet_as_plain
from forestay.domain.exlets.primitive import (
    Action,
    ActionTarget,
    Amount,
    CompensateAction,
    NeedChange,
    Notify,
    Resubmission,
    Resubmit,
    Steer,
    Worklet,
)
from forestay.formats.rules.exlet_json import read_exlet, read_exlet_text, write_exlet_text
from forestay.formats.rules.exlet_schema import exlet_schema

CHANGE_VENUE = """
forestay: 1
name: change-to-mid-venue
description: Too few tickets are sold for the arena.
steps:
  - suspend case
  - action: compensate
    worklets:
      - flow: 3f2c
        give: {from: "${params.venue}"}
        take: {venue: venue}
      - 77aa
  - continue case
"""
MORE_MEMORY = """
name: more-memory
steps:
  - {action: resubmit, how: changed, wait: 2 min, needs: {memory: {factor: 1.5, at_most: 64 GiB}, wall: {to: 4 h}}}
  - {action: notify, text: more memory, to: [ada], when_refused: stop}
"""
WRONG = """
forestay: 2
name: wrong
steps:
  - suspent case
  - {action: resubmit, wait: soon, place: x}
  - {action: compensate}
  - 17
  - continue
"""


@pytest.fixture(scope="module")
def schema() -> Any:
    return jsonschema_rs.validator_for(exlet_schema())


def test_an_exlet_is_read() -> None:
    read = read_exlet_text(CHANGE_VENUE, ExceptionType.ITEM_PRE, worklets={"3f2c", "77aa"})
    assert read.problems == ()
    worklets = (Worklet("3f2c", {"from": "${params.venue}"}, {"venue": "venue"}), Worklet("77aa"))
    assert read.exlet == Exlet(
        "change-to-mid-venue",
        (
            PlaybookStep(Steer(Action.SUSPEND, ActionTarget.CASE)),
            PlaybookStep(CompensateAction(worklets)),
            PlaybookStep(Steer(Action.CONTINUE, ActionTarget.CASE)),
        ),
        "Too few tickets are sold for the arena.",
    )


def test_amounts_are_written_as_people_write_them() -> None:
    read = read_exlet_text(MORE_MEMORY)
    assert read.problems == ()
    assert read.exlet is not None
    needs = {Amount.MEMORY: NeedChange(1.5, at_most=64 << 30), Amount.WALL: NeedChange(to=4 * 3600)}
    assert read.exlet.steps[0].do == Resubmit(Resubmission.CHANGED, needs, wait=120)
    assert read.exlet.steps[1] == PlaybookStep(Notify("more memory", ("ada",)), WhenRefused.STOP)


def test_everything_wrong_is_said_with_its_line() -> None:
    read = read_exlet_text(WRONG)
    assert read.exlet is None
    said = [(one.line, one.where) for one in read.problems]
    assert said == [
        (2, "forestay"), (5, "steps[0].action"), (6, "steps[1].wait"), (6, "steps[1].place"), (7, "steps[2]"), (8, "steps[3]"), (9, "steps[4]"),
    ]  # fmt: skip
    assert "did you mean 'suspend'?" in read.problems[1].message
    assert [one.where for one in read_exlet_text("name: [").problems] == [""]


@given(good_exlets())
def test_a_good_exlet_is_read_back_as_it_was(made: Exlet) -> None:
    read = read_exlet_text(write_exlet_text(made))
    assert read.problems == ()
    assert read.exlet == made


@given(exlets)
def test_reading_says_what_the_check_says(made: Exlet) -> None:
    exlet, findings = read_exlet(exlet_as_plain(made))
    assert (exlet is None) == bool(findings)
    assert bool(findings) == bool(check_exlet(made))


def test_the_schema_takes_what_is_right(schema: Any) -> None:
    for text in (CHANGE_VENUE, MORE_MEMORY):
        assert [error.message for error in schema.iter_errors(yaml.safe_load(text))] == []
    assert not schema.is_valid(yaml.safe_load(WRONG))


@given(good_exlets())
def test_the_schema_takes_every_good_exlet(made: Exlet) -> None:
    validator = jsonschema_rs.validator_for(exlet_schema())
    assert [error.message for error in validator.iter_errors(exlet_as_plain(made))] == []


def test_the_published_schema_is_current() -> None:
    assert PLACE.read_text(encoding="utf-8") == described()
