"""What happens to pilots while a flow runs on them, and how it is seen that each of its jobs took effect once."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.system.matrix.room import Room
from tests.system.matrix.site import until

from forestay.services.exceptions.decide.decider import FRESH

LEASE = 5
OUTAGE = 60.0
STEADY = """#!/bin/sh
sleep 4
echo "$1"
"""
FETCHING = """#!/bin/sh
curl --silent --show-error --fail --max-time 10 "$(cat {nearest})/part$1"
"""


def jobs(here: Room, name: str = "") -> dict[str, Any]:
    return {job["id"]: job for job in here.operator.all_jobs({"name": name} if name else {})}


def running(here: Room, many: int, name: str = "part") -> dict[str, Any]:
    """So many jobs that run their payloads."""

    def there() -> dict[str, Any]:
        fields = {key: job for key, job in jobs(here, name).items() if job["state"] == "running"}
        return fields if len(fields) >= many else {}

    result: dict[str, Any] = until(there, f"{many} jobs to run")
    return result


def family(pid: int) -> list[int]:
    """A process and all that come from it."""
    children = [pid]
    for child in children:
        for thread in Path(f"/proc/{child}/task").glob("*/children"):
            children += [int(child) for child in thread.read_text().split()]
    return children


def cut_power(pid: int) -> None:
    """Kill a pilot, its guard and its payloads at once, as a power cut does."""
    for member in family(pid):
        with suppress(ProcessLookupError):  # it died with the one before
            os.kill(member, signal.SIGKILL)


def took_effect_once(here: Room) -> None:
    """Every job has one end that counts, and none was charged to the user."""
    for name, job in jobs(here).items():
        assert job["state"] == "completed"
        events = [line["event"] for line in here.operator.story(name)["story"]]
        assert sum(event in ("complete", "adopt") for event in events) == 1, events


def rule(here: Room, cause: str, *steps: dict[str, object]) -> None:
    draft = {
        "type": "abort",
        "condition": f'cause == "{cause}"',
        "conclusion": {"steps": list(steps)},
        "reference_incident": f"of-{cause}",
        "context": {"cause": cause},
    }
    made = here.operator.add_rule("domain/site", draft)
    here.operator.set_rule_state("domain/site", str(made["rule"]), "active")
    known = time.monotonic() + FRESH
    until(lambda: time.monotonic() > known, "everyone to know of the rule")
