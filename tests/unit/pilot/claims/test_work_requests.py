"""Work that comes with the answers to completions, and what a pilot holds ready behind short jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.pilot.conftest import RunningPilot
from tests.unit.pilot.fake_server import FakeServer, until

from forestay_pilot.link import held_claims
from forestay_pilot.link.held_claims import ClaimInHand, HeldClaims
from forestay_pilot.process.payload import read_claim

StartPilot = Callable[..., RunningPilot]


def test_the_answer_to_a_completion_brings_the_next_job(server: FakeServer, pilot: StartPilot) -> None:
    claims = [server.submit("sleep", "0.3") for _ in range(4)]
    assert pilot(max_jobs=4).wait() == 0
    assert [server.end_of(claim)["outcome"] for claim in claims] == ["ok"] * 4
    assert server.seen.brought_along >= 2, (
        "what was asked for by itself came first, or in the place of one that was late"
    )
    assert len(server.seen.claim_requests) + server.seen.brought_along <= 4 + 2


def test_a_server_of_the_previous_release_is_asked_apart(server: FakeServer, pilot: StartPilot) -> None:
    server.failures.unknown_fields = frozenset({"claim"})
    claims = [server.submit("true") for _ in range(4)]
    running = pilot(max_jobs=4)
    assert running.wait() == 0
    assert {end["claim"] for end in server.seen.completions} == {claim["claim"] for claim in claims}
    assert len(server.seen.asked_along) == 1


def test_a_draining_pilot_asks_for_nothing(server: FakeServer, pilot: StartPilot, tmp_path: Path) -> None:
    began, end = tmp_path / "began", tmp_path / "end"
    first = server.submit("sh", "-c", f"touch {began}; until [ -e {end} ]; do sleep 0.1; done")
    running = pilot()
    until(began.exists, "the first job")
    running.pilot.on_signal()
    end.touch()
    server.submit("true")
    assert running.wait() == 0
    assert server.end_of(first)["outcome"] == "ok"
    assert (server.seen.asked_along, len(server.jobs)) == ([], 1)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(held_claims, "steady", clock)
    return clock


def add(held: HeldClaims, *names: str, **resources: int) -> None:
    documents = [{"job": name, "generation": 0, "attempt": 1, "claim": name, "resources": resources} for name in names]
    held.add([read_claim(document) for document in documents], held.request())


def run(held: HeldClaims, clock: Clock, seconds: float, *, ok: bool = True) -> None:
    """Run a job that takes so long."""
    add(held, f"job-{clock.now:.2f}")
    taken = held.take()
    assert taken is not None
    clock.now += seconds
    held.note_job(taken, ok=ok)
    held.release(taken)
    held.settle(taken.claim)


@pytest.mark.parametrize(("seconds", "ahead"), [(0.01, 8), (0.05, 4), (0.09, 2), (0.15, 1), (3.0, 1)])
def test_as_many_are_held_ready_as_run_in_a_moment(clock: Clock, seconds: float, ahead: int) -> None:
    held = HeldClaims(slots=2, batch=1, resources={})
    for _ in range(5):
        run(held, clock, seconds)
    assert held.ahead == ahead
    assert held.room() == 2 * ahead


def test_none_is_held_ready_behind_a_failure_or_a_long_job(clock: Clock) -> None:
    """A broken host must not take more of the queue than it has slots."""
    held = HeldClaims(slots=1, batch=1, resources={})
    for ending in ({"ok": False, "seconds": 0.01}, {"ok": True, "seconds": 1.0}):
        for _ in range(5):
            run(held, clock, 0.01)
        assert held.ahead > 1
        run(held, clock, **ending)  # type: ignore[arg-type]
        assert held.ahead == 1


def test_more_is_asked_for_when_half_of_what_is_held_ready_has_run(clock: Clock) -> None:
    held = HeldClaims(slots=2, batch=1, resources={})
    assert not held.enough_ahead(), "nothing is held ready"
    for _ in range(5):
        run(held, clock, 0.01)
    names = [f"next-{number}" for number in range(16)]
    add(held, *names)
    running = [started(held), started(held)]
    enough = []
    for _ in range(8):
        enough.append(held.enough_ahead())
        held.release(running.pop(0))
        running.append(started(held))
    assert (enough, held.enough_ahead()) == ([True] * 8, False)


def started(held: HeldClaims) -> ClaimInHand:
    taken = held.take()
    assert taken is not None
    return taken


def test_what_waits_behind_long_jobs_is_given_back(clock: Clock) -> None:
    held = HeldClaims(slots=1, batch=1, resources={})
    for _ in range(3):
        run(held, clock, 0.05)
    add(held, "long", "second", "third")
    started(held)
    clock.now += 0.4
    assert held.stuck() == []
    clock.now += 0.2
    assert [entry.claim for entry in held.stuck()] == ["second", "third"]
    assert held.room() == 0


def test_what_waits_for_the_resources_of_a_long_job_is_given_back(clock: Clock) -> None:
    """A slot is free, and still it cannot start: another pilot may have the room."""
    held = HeldClaims(slots=2, batch=1, resources={"cpus": 2})
    for _ in range(3):
        run(held, clock, 0.05)
    add(held, "long", cpus=1)
    started(held)
    add(held, "large", cpus=2)
    clock.now += 0.6
    assert [entry.claim for entry in held.stuck()] == ["large"]
