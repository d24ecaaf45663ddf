"""Calls of functions in runners that stay, against the fake server: which process ran what, and what a death costs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.pilot.conftest import RunningPilot
from tests.unit.pilot.fake_server import FakeServer, until
from tests.unit.pilot.link.test_contact import StartPilot

from forestay_pilot.calls import runner

ROOT = Path(__file__).resolve().parents[4]


def call(server: FakeServer, function: str, *args: object, **changes: Any) -> dict[str, Any]:
    """Queue a call of a function."""
    with server.work:  # nobody claims it before it is whole
        claim = server.submit(
            changes.pop("python", sys.executable),
            parameters={"call": {"function": function, "args": list(args)}},
            environment={"PYTHONPATH": str(ROOT)},
            **changes,
        )
        claim["specification"]["runner"] = "warm"
    return claim


def calls(server: FakeServer, *wanted: tuple[Any, ...], **changes: Any) -> list[dict[str, Any]]:
    """Queue several before any is claimed."""
    with server.work:
        return [call(server, *results, **changes) for results in wanted]


def value(server: FakeServer, claim: dict[str, Any]) -> Any:
    end = server.end_of(claim)
    assert end["outcome"] == "ok", end
    return json.loads(end["result"])["value"]


def test_calls_of_a_slot_share_one_interpreter(server: FakeServer, pilot: StartPilot) -> None:
    pilot()
    claims = calls(server, *[("os:getpid",)] * 20)
    assert len({value(server, claim) for claim in claims}) == 1


def test_owners_do_not_share_one(server: FakeServer, pilot: StartPilot) -> None:
    pilot()
    ada, bob = (call(server, "os:getpid", owner=owner) for owner in ("ada", "bob"))
    assert value(server, ada) != value(server, bob)


def test_short_calls_are_claimed_many_at_once(server: FakeServer, pilot: StartPilot) -> None:
    pilot()
    for claim in calls(server, *[("operator:add", n, 1) for n in range(200)]):
        server.end_of(claim)
    # In requests of their own, or along with completions.
    asked = [*server.seen.claim_requests, *server.seen.asked_along]
    assert max(request["max"] for request in asked) >= 16
    assert server.seen.claim_requests[0]["max"] == 1, "until it is known that they are short"


def test_the_call_that_kills_the_runner_is_the_one_that_fails(server: FakeServer, pilot: StartPilot) -> None:
    pilot()
    for claim in calls(server, *[("operator:add", n, 1) for n in range(40)]):
        server.end_of(claim)
    before = [("operator:add", n, 1) for n in range(10)]
    claims = calls(server, *before, ("tests.unit.client.executor.functions:dies",), *before)
    completions = [server.end_of(claim) for claim in claims]
    assert [(end["reason"], end["signal"]) for end in completions if end["outcome"] == "failure"] == [("signal", 9)]
    assert completions[10]["signal"] == 9


def test_what_waits_behind_a_long_call_is_given_back(server: FakeServer, pilot: StartPilot, tmp_path: Path) -> None:
    pilot()
    for claim in calls(server, *[("operator:add", n, 1) for n in range(40)]):
        server.end_of(claim)
    gate = tmp_path / "gate"
    long, *behind = calls(
        server,
        ("tests.unit.client.executor.functions:waits_for", str(gate)),
        *[("operator:add", n, 1) for n in range(10)],
    )
    names = {claim["claim"] for claim in behind}
    until(lambda: any(end["claim"] in names for end in server.seen.completions), "what is behind it to be given back")
    assert {end["reason"] for end in server.seen.completions if end["claim"] in names} == {"not-started"}
    gate.touch()
    assert value(server, long) == "done"
    (after,) = calls(server, ("operator:add", 1, 1))
    assert value(server, after) == 2


def test_a_cancelled_call_is_stopped_and_the_others_go_on(
    server: FakeServer, pilot: StartPilot, tmp_path: Path
) -> None:
    pilot()
    gate = tmp_path / "gate"
    doomed = call(server, "tests.unit.client.executor.functions:waits_for", str(gate))
    until(Path(f"{gate}.begun").exists, "the call to begin")
    server.order("cancel", {"claim": doomed["claim"]})
    assert server.end_of(doomed)["reason"] == "cancelled"
    assert value(server, call(server, "operator:add", 1, 1)) == 2


def test_an_end_of_a_pilot_leaves_no_runner(server: FakeServer, pilot: StartPilot) -> None:
    running: RunningPilot = pilot()
    process = value(server, call(server, "os:getpid"))
    assert running.end() == 0
    until(lambda: not Path(f"/proc/{process}").exists(), "the runner's end")


def test_a_command_that_is_no_interpreter_fails_its_call(server: FakeServer, pilot: StartPilot) -> None:
    pilot()
    end = server.end_of(call(server, "os:getpid", python="false"))
    assert (end["outcome"], end["reason"]) == ("failure", "start-failed")


def test_a_call_whose_runner_is_killed_from_outside_before_it_began_has_not_started(
    server: FakeServer, pilot: StartPilot, tmp_path: Path
) -> None:
    """Nothing of the call ran, and it did nothing wrong: it may begin elsewhere without counting as a failure."""
    killed = tmp_path / "python"
    killed.write_text("#!/bin/sh\nkill -TERM $$\n")
    killed.chmod(0o755)
    pilot()
    end = server.end_of(call(server, "os:getpid", python=str(killed)))
    assert (end["reason"], end["signal"]) == ("not-started", 15)


@pytest.mark.finding("F-D15")
def test_the_memory_of_one_call_is_not_in_the_evidence_of_the_next(server: FakeServer, pilot: StartPilot) -> None:
    """A ValueError was said to have used the 300 MB of the call before it, of 100."""
    pilot()
    fills = "tests.unit.client.executor.functions:fills"
    small, large, after = calls(server, ("operator:add", 1, 1), (fills, 200 << 20), ("builtins:int", "no number"))
    assert server.end_of(large)["peak_memory"] >= 200 << 20
    assert server.end_of(after)["outcome"] == "failure"
    for claim in (small, after):
        assert server.end_of(claim)["peak_memory"] < 100 << 20


@pytest.mark.finding("F-D15")
def test_without_a_reset_of_the_peak_no_earlier_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_highest", lambda: 900 << 40)
    memory = runner._CallMemory()
    memory.begin()
    memory._reset = False
    assert memory.peak() < 500 << 40
