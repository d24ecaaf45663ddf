"""What scenarios of the matrix are made of, and the list of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tests.system.matrix.room import WORK, Plan, Room, nothing
from tests.system.matrix.site import until

from forestay.client.api.schemas import NewJob

MIB = 1 << 20
SAME = {"action": "resubmit", "how": "same"}
LATER = {"action": "resubmit", "how": "same", "wait": 1}
RESTAGE = {"action": "restage", "how": "same"}
AVOID = {"action": "avoid-host"}
FAIL = {"action": "force-fail", "target": "job"}
GOOD = b"good"
DIGEST = hashlib.sha256(GOOD).hexdigest()


@dataclass(frozen=True)
class Scenario:
    """One failure at one stage."""

    failure: str
    stage: str
    injected: str
    recovered: str
    """The pattern that answers it."""
    prepare: Callable[[Room], Plan]
    skips: tuple[str, ...] = ()
    """Submission patterns for which there is another scenario, or none."""


SCENARIOS: list[Scenario] = []


def scenario(
    failure: str, stage: str, injected: str, recovered: str, *, skips: tuple[str, ...] = ()
) -> Callable[[Callable[[Room], Plan]], Callable[[Room], Plan]]:
    def keep(prepare: Callable[[Room], Plan]) -> Callable[[Room], Plan]:
        SCENARIOS.append(Scenario(failure, stage, injected, recovered, prepare, skips))
        return prepare

    return keep


def needing(**resources: int) -> NewJob:
    return cast(NewJob, {"resources": resources})


def changed(need: str, **how: int) -> dict[str, object]:
    return {"action": "resubmit", "how": "changed", "needs": {need: how}}


def gated(gate: Path) -> str:
    """It says that it has begun, and goes on when the gate is open."""
    return f"touch {_begun(gate)}; while ! test -e {gate}; do sleep 0.02; done; {WORK}"


def has_begun(gate: Path) -> None:
    """Wait for what is gated to run on its host. A job is running for the servers before its host knows of it: whoever cuts the way then cuts off the claim, not the end."""
    until(_begun(gate).exists, "the job to begin on its host")


def _begun(gate: Path) -> Path:
    return gate.with_name(f"{gate.name}-begun")


def while_it_runs(room: Room, lose: Callable[[], None], recover: Callable[[], None]) -> Plan:
    gate = room.folder / "gate"
    room.host()
    if not room.failing:
        gate.touch()

    def meanwhile() -> None:
        has_begun(gate)
        if room.failing:
            lose()
            recover()
            gate.touch()

    return Plan(room.spec(gated(gate)), meanwhile=meanwhile, attempts=1, twice=True)


def at_the_end(room: Room, lose: Callable[[], None], recover: Callable[[], None]) -> Plan:
    gate = room.folder / "gate"
    host = room.host()
    if not room.failing:
        gate.touch()

    def meanwhile() -> None:
        has_begun(gate)
        if room.failing:
            lose()
            gate.touch()
            room.spooled(host)
            recover()

    return Plan(room.spec(gated(gate)), meanwhile=meanwhile, attempts=1, twice=True)


def too_small(room: Room, place: str, command: str, **more: object) -> Plan:
    """A small host is free and a large one busy; with more disk than the small one says it has, only the large one will do."""
    room.rule("disk", changed("disk", to=8 * MIB))
    free = room.busy_host("large")
    if room.failing:
        room.host("small", prepare=f"mount -t tmpfs -o size=512k tmpfs ${place}", disk=str(4 * MIB))

        def meanwhile() -> None:
            room.incident()
            free()
    else:
        meanwhile = free
    return Plan(room.spec(command, **more), needing(disk=MIB), meanwhile=meanwhile, cause="disk")


def one_host_broken(room: Room, **more: Any) -> Callable[[], None]:
    """A broken host is free and a sound one busy; a rule keeps the job away from where it failed. Gives what goes on meanwhile."""
    room.rule("node", AVOID, SAME)
    free = room.busy_host()
    if not room.failing:
        return free
    room.host("broken", disk=str(MIB), **more)

    def meanwhile() -> None:
        room.incident()
        free()

    return meanwhile


def person(room: Room, recovers: Callable[[], object] = nothing) -> None:
    """A person finds the job in the inbox, fixes what is wrong, and releases it."""
    if room.failing:
        room.incident("held")
        recovers()
        room.operator.retry(room.measured(), reason="recovered")
