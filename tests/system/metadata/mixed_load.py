"""How much of a mixed load is done, and in time, with and without priorities and resource requirements (paper P4, section 4.4).

The same jobs on the same two hosts, in turns: ordinary ones, some that want more scratch than one of the hosts has, and last of all urgent ones. *With*, each says so (`priority`, `resources`);
*without*, nobody knows. A job has two tries. In time is what ends in the first half of all ends, so that the figure does not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from tests.system.matrix.room import room
from tests.system.matrix.scenario import MIB
from tests.system.matrix.site import FailureSite

from forestay.client import wait
from forestay.client.api.schemas import NewJob, SpecificationJson

LONGEST = 300.0
URGENT, ORDINARY, WIDE = "urgent", "ordinary", "wide"
SHARES = {ORDINARY: 0.6, WIDE: 0.15, URGENT: 0.25}
COMMANDS = {
    URGENT: "sleep 0.1; echo done > made",
    ORDINARY: "sleep 0.3; echo done > made",
    WIDE: "dd if=/dev/zero of=scratch bs=64k count=32 && rm scratch && sleep 0.1 && echo done > made",
}
METADATA: dict[str, Mapping[str, Any]] = {
    URGENT: {"priority": 10},
    ORDINARY: {},
    WIDE: {"resources": {"disk": 8 * MIB}},
}


@dataclass(frozen=True)
class Done:
    """What came of one load."""

    metadata: bool
    jobs: int
    completed: float
    """Of all jobs."""
    wide_completed: float
    """Of those that want scratch."""
    urgent_in_time: float
    """Of the urgent ones: ended among the first half of all."""
    urgent_seconds: float
    """Mean, from submission to the end."""
    extra_attempts: int
    seconds: float
    """From the submission to the last end."""


def load(site: FailureSite, jobs: int, *, metadata: bool) -> Done:
    """Submit a load at once and wait for its end."""
    with room(site, failing=False) as where:
        kinds: dict[str, str] = {}
        began = None
        for kind, share in SHARES.items():
            spec: SpecificationJson = {
                "name": kind,
                "command": ["sh", "-c", COMMANDS[kind]],
                "outputs": ["made"],
                "max_attempts": 2,
            }
            fields = METADATA[kind] if metadata else {}
            many = [cast(NewJob, dict(fields)) for _ in range(round(jobs * share))]
            for accepted_json in where.operator.submit(many, spec):
                kinds[accepted_json["id"]] = kind
        # Only now: on a slow machine half of the load would have ended before the last of it is submitted.
        where.host("roomy", cpus="2", disk=str(64 * MIB))
        where.host("cramped", prepare="mount -t tmpfs -o size=512k tmpfs $WORK", cpus="2", disk=str(4 * MIB))
        known: Mapping[str, Any] = wait(where.operator, list(kinds), timeout=LONGEST).known
        ended = {name: _at(known[name]["changed"]) for name in kinds}
        began = min(_at(known[name]["created"]) for name in kinds)
        well = {name for name in kinds if known[name]["state"] == "completed"}
        in_order = sorted(kinds, key=lambda name: ended[name])
        early = set(in_order[: (len(in_order) + 1) // 2])
        urgent = [name for name, kind in kinds.items() if kind == URGENT]
        wide = [name for name, kind in kinds.items() if kind == WIDE]
        return Done(
            metadata,
            len(kinds),
            len(well) / len(kinds),
            sum(name in well for name in wide) / len(wide),
            sum(name in well and name in early for name in urgent) / len(urgent),
            sum(ended[name] - _at(known[name]["created"]) for name in urgent) / len(urgent),
            sum(int(known[name]["attempt"]) - 1 for name in kinds),
            max(ended.values()) - began,
        )


def _at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def in_turns(site: FailureSite, jobs: int, rounds: int) -> list[Done]:
    """With and without in turns, the first of the two changing from round to round."""
    return [
        load(site, jobs, metadata=metadata)
        for number in range(rounds)
        for metadata in ((True, False) if number % 2 == 0 else (False, True))
    ]
