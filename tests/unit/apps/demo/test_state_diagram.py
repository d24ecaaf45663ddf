"""The state diagram of the demonstration's report: what was taken, what was possible, and nothing else."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from forestay.apps.demo.state_diagram import state_diagram
from forestay.client.api.schemas import TransitionJson
from forestay.domain.jobs.lifecycle import TRANSITIONS


def story(*steps: tuple[str, str]) -> list[TransitionJson]:
    return [
        TransitionJson(rev=rev, at="", event=event, state=state, attempt=1, by="", note="", words="")
        for rev, (event, state) in enumerate(steps)
    ]


def test_transitions_that_were_taken_are_counted() -> None:
    good = story(("submit", "available"), ("claim", "running"), ("begin", "running"), ("complete", "completed"))
    again = story(
        ("submit", "available"),
        ("claim", "running"),
        ("failure", "faulted"),
        ("retry", "available"),
        ("claim", "running"),
    )
    drawn = state_diagram([good, again])
    ElementTree.fromstring(drawn)  # noqa: S314 - our own
    assert sorted(re.findall(r"(\w+) × (\d+)", drawn)) == [
        ("claim", "3"),
        ("complete", "1"),
        ("failure", "1"),
        ("retry", "1"),
    ]
    assert len(re.findall(r'<g class="taken">', drawn)) == 4
    assert "running to faulted by failure 1 times" in drawn


def test_what_no_job_did_is_drawn_as_possible() -> None:
    drawn = state_diagram([])
    shown = {"available", "running", "completed", "faulted", "failed"}
    possible = {
        (before, after) for (before, _), after in TRANSITIONS.items() if before != after and {before, after} <= shown
    }
    assert len(re.findall(r'<g class="idle"><path', drawn)) == len(possible)
    assert "taken" not in drawn
    assert set(re.findall(r">(\w+)</text>", drawn)) == shown
