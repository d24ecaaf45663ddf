"""What keeps a run from going on: each with who can let it, and the command."""

from __future__ import annotations

from typing import Any

import pytest

from forestay.formats.flows.run_wait_public import waits_public

RUN = "4f1c9d2a-0000-5000-8000-000000000000"
INCIDENT = "3f9a1c7e-0000-5000-8000-000000000000"
STATE: dict[str, Any] = {"outcome": None, "holders": [], "instances": [], "stack": []}


def waits(*flow_holders: str, **state: Any) -> list[tuple[str, str, str]]:
    return [
        (wait["words"], wait["who"], wait["command"]) for wait in waits_public(RUN, "ada", STATE | state, flow_holders)
    ]


def test_a_run_that_goes_on_waits_for_nobody() -> None:
    assert waits(instances=[{"id": "align", "state": "running"}]) == []


def test_a_task_that_asks_a_person_waits_for_who_may_answer() -> None:
    task = {"id": "check", "state": "asking"}
    (wait,) = waits_public(RUN, "ada", STATE | {"instances": [task]}, [], {"check": ("3f9a", ["owner", "user:ben"])})
    assert (wait["words"], wait["who"]) == ("waits for an answer", "owner, user:ben")
    assert wait["command"] == "forestay inbox answer 3f9a"


def test_a_run_or_task_that_a_person_suspended() -> None:
    task = {"id": "align", "state": "running", "holders": ["bob"]}
    assert waits(holders=["ada"], instances=[task]) == [
        ("suspended by ada", "ada or an operator", "forestay runs resume 4f1c9d2a"),
        ("suspended by bob", "bob or an operator", "forestay runs resume 4f1c9d2a --task align"),
    ]


@pytest.mark.finding("F-D1")
@pytest.mark.parametrize("holder", [f"incident:{INCIDENT}", f"{INCIDENT}:1:0"])
def test_what_an_incident_or_its_playbook_holds_goes_on_when_it_is_answered(holder: str) -> None:
    held = ("suspended until incident 3f9a1c7e is answered", "an operator", "forestay explain 3f9a1c7e")
    assert waits(holders=[holder]) == [held]
    assert waits_public(RUN, "ada", STATE | {"holders": [holder]}, [])[0]["incident"] == INCIDENT
    assert waits(holder) == [(f"all runs of the flow are {held[0]}", *held[1:])]


def test_a_failed_task_and_a_failed_compensation() -> None:
    task = {"id": "align", "state": "faulted", "reason": "exit code 1"}
    stack = [{"task": "book", "number": 3, "held": True}]
    assert waits(instances=[task], stack=stack) == [
        ("failed: exit code 1", "ada or an operator", "forestay runs retry 4f1c9d2a align"),
        ("its compensation failed", "ada or an operator", "forestay runs retry 4f1c9d2a '!3'"),
    ]


def test_a_run_that_has_ended_waits_for_nobody() -> None:
    assert waits(holders=["ada"], outcome="failed") == []
