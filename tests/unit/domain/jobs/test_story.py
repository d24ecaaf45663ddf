"""Stories: no line is lost or told twice, however often a story is folded and however many folds come to nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.domain.jobs.job_document import JobDocument, State, Transition
from forestay.domain.jobs.lifecycle import KEEP, Chapter, Event, fold, step, whole_story, words
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission, new_job


def _job() -> JobDocument:
    asked = Submission(Specification("s1", "lab", "fit", ("true",)), owner="ann")
    return new_job(asked, job="j1", now=1, by="ann")


@given(st.lists(st.booleans(), max_size=150))
def test_the_whole_story_has_every_line_once_whatever_writes_failed(fates: list[bool]) -> None:
    """Each fate is one try to write: True is acknowledged, False leaves its chapter behind but not its document."""
    document, chapters, transitions = _job(), list[Chapter](), list(_job().history)
    for now, written in enumerate(fates, start=2):
        wished, chapter = fold(step(document, Event.HOLD, now=now, by="ann"))
        if chapter is not None:
            chapters.append(chapter)
        if written:
            transitions.append(wished.history[-1])
            document = wished
        assert len(document.history) <= KEEP
        assert list(whole_story(document, chapters)) == transitions


def test_a_short_story_stays_on_the_document() -> None:
    document = _job()
    for now in range(2, KEEP + 1):
        document = step(document, Event.HOLD, now=now, by="ann")
    assert len(document.history) == KEEP
    assert fold(document) == (document, None)


def test_a_fold_moves_the_older_lines_and_changes_nothing_else() -> None:
    document = _job()
    for now in range(2, KEEP + 2):
        document = step(document, Event.HOLD, now=now, by="ann")
    folded, chapter = fold(document)
    assert chapter is not None
    assert chapter.lines + folded.history == document.history
    assert chapter.first == 1
    assert replace(folded, history=document.history) == document


@pytest.mark.parametrize("event", list(Event))
def test_every_event_can_be_told(event: Event) -> None:
    line = Transition(3, 1000, event.value, State.RUNNING.value, 2, "p1", "the reason")
    assert not words(line).startswith(event.value + " by")
    assert words(line).endswith((".", "the reason"))
    assert "{" not in words(line)


def test_an_event_of_a_newer_release_is_told_as_it_stands() -> None:
    assert words(Transition(3, 1000, "shelved", "running", 2, "bob", "for now")) == "shelved by bob: for now"
