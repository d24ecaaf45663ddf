"""Runs as the HTTP interface shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forestay.formats.jobs.job_json import Json
from forestay.formats.jobs.job_public import time_text


def task_public(plain: Mapping[str, Any]) -> Json:
    """A task, from the plain form of a run's state."""
    fan_out = plain.get("fan_out") or {}
    own = fan_out.get("own") or {}
    shards = fan_out.get("shards", ())
    count = plain.get("count", 0) or own.get("count", 0) + sum(shard[1] for shard in shards)
    well = plain.get("well", 0) or _bits(own, "well") + sum(shard[3] for shard in shards if len(shard) > 3)
    bad = plain.get("bad", 0) or _bits(own, "bad") + sum(shard[4] for shard in shards if len(shard) > 4)
    return {
        "id": plain["id"],
        "task": plain["task"],
        "state": plain.get("state", "waiting"),
        "round": plain.get("round", 0),
        "count": count,
        "well": well,
        "bad": bad,
        "exit_code": plain.get("exit_code"),
        "reason": plain.get("reason", ""),
        "holders": list(plain.get("holders", ())),
        "began": time_text(plain.get("began")),
        "finished": time_text(plain.get("finished")),
        "after": list(plain.get("after", ())),
    }


def _bits(own: Mapping[str, Any], name: str) -> int:
    return int(own.get(name, "0"), 16).bit_count()


def run_public(
    *,
    run: str,
    owner: str,
    name: str,
    version: str,
    state: str,
    started: int,
    ended: int | None,
    above: str,
    schedule: str,
) -> Json:
    """A run in a list."""
    return {
        "id": run,
        "owner": owner,
        "name": name,
        "version": version,
        "state": state,
        "started": time_text(started),
        "ended": time_text(ended),
        "above": above or None,
        "schedule": schedule or None,
    }


def compensation_public(plain: Mapping[str, Any]) -> Json:
    """An entry of the compensation stack, from the plain form of a run's state."""
    states = (("pending", "looked-up"), ("fan_out", "running"), ("held", "held"))
    return {
        "number": plain["number"],
        "task": plain["instance"],
        "action": plain.get("action", ""),
        "version": plain.get("version", ""),
        "state": next((state for name, state in states if plain.get(name)), "waiting"),
        "tries": plain.get("tries", 0),
        "reason": plain.get("reason", ""),
        "rebound_by": plain.get("rebound_by", ""),
    }


def state_public(plain: Mapping[str, Any]) -> Json:
    """The state of a run, without the fields shown in lists."""
    return {
        "params": plain["params"],
        "phase": plain["phase"],
        "outcome": plain["outcome"],
        "reason": plain["reason"],
        "outputs": plain["outputs"],
        "holders": list(plain["holders"]),
        "tasks": [task_public(task) for task in plain["instances"]],
        "compensations": len(plain["stack"]),
    }
