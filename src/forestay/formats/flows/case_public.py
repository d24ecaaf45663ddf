"""Cases as the HTTP interface shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forestay.formats.jobs.job_json import Json
from forestay.formats.jobs.job_public import time_text


def item_public(plain: Mapping[str, Any]) -> Json:
    """An item, from the plain form of a case's state."""
    fan = plain.get("fan") or {}
    own = fan.get("own") or {}
    shards = fan.get("shards", ())
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


def case_public(
    *, case: str, owner: str, name: str, version: str, state: str, started: int, ended: int | None, above: str
) -> Json:
    """A case in a list."""
    return {
        "id": case,
        "owner": owner,
        "name": name,
        "version": version,
        "state": state,
        "started": time_text(started),
        "ended": time_text(ended),
        "above": above or None,
    }


def state_public(plain: Mapping[str, Any]) -> Json:
    """What a case is at, beside what a list shows of it."""
    return {
        "params": plain["params"],
        "phase": plain["phase"],
        "outcome": plain["outcome"],
        "reason": plain["reason"],
        "outputs": plain["outputs"],
        "holders": list(plain["holders"]),
        "items": [item_public(item) for item in plain["items"]],
        "compensations": len(plain["stack"]),
    }
