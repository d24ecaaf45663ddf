"""Texts from outside are tried in a process that can be killed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from forestay.adapters.cel.sandbox import CelSandbox
from forestay.domain.rules.condition import Erred


@pytest.fixture(scope="module")
def sandbox() -> Iterator[CelSandbox]:
    sandbox = CelSandbox()
    yield sandbox
    sandbox.end()


def test_a_text_is_compiled_and_answered_on_each_context(sandbox: CelSandbox) -> None:
    trial = sandbox.try_now('cause == "memory" && evidence.exit_code > 3', [
        {"cause": "memory", "evidence.exit_code": 137}, {"cause": "disk"}, {"cause": "memory"},
    ])  # fmt: skip
    assert trial.problems == ()
    assert trial.answers[:2] == (True, False)
    assert isinstance(trial.answers[2], Erred)


def test_problems_come_with_their_places(sandbox: CelSandbox) -> None:
    assert [str(problem)[:4] for problem in sandbox.try_now("cuase == 'x' &&\n  foo").problems] == ["1:1:", "2:3:"]


LINES = "evidence.log_tail"
MANY = f"[{','.join('1' * 1900)}]"
LONG = "a" * 100


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f"{LINES}.map(x, {LINES}.join('').replace('a', 'bbbbbbbbbbbb')).join('').size() > 0", "250 ms|more than"),  # whichever is first
        (f"[1,2,3].all(a, {MANY}.map(x, '{LONG}' + '{LONG}').size() > 0)", "more than"),
        (f"{LINES}.all(x, {LINES}.all(y, x == y))", "iteration limit"),
    ],
    ids=["time", "memory", "iterations"],
)  # fmt: skip
def test_a_text_that_takes_too_much_is_refused_and_the_next_is_answered(
    sandbox: CelSandbox, text: str, value: str
) -> None:
    assert len(text) < 4096
    refused = sandbox.try_now(text, [{}])
    assert [bool(re.search(value, problem.message)) for problem in refused.problems] == [True]
    assert refused.answers == ()
    assert sandbox.try_now("true", [{}]).answers == (True,)


def test_it_starts_again_after_it_was_lost(sandbox: CelSandbox) -> None:
    sandbox.try_now("true")
    assert sandbox._process is not None
    sandbox._process.kill()
    sandbox._process.wait()
    assert sandbox.try_now("true", [{}]).answers == (True,)
