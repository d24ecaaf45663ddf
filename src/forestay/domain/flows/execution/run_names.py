"""Ids derived from what they identify, so that a repeated action finds what the first one created."""

from __future__ import annotations

from hashlib import sha1
from uuid import UUID

_SPACE = sha1(UUID("6b1f7c52-2b56-5d0e-9a3e-0f6c1c8c1a77").bytes, usedforsecurity=False)


def job_of(run: str, work: str, index: int) -> str:
    """The id of a job of a round."""
    return _named(f"job:{run}:{work}:{index}")


def run_of(run: str, work: str, index: int) -> str:
    """The id of the run that runs a sub-flow for an element of a round."""
    return _named(f"run:{run}:{work}:{index}")


def run_keyed(tenant: str, owner: str, key: str) -> str:
    """The id of a run that its owner asked for with an idempotency key."""
    return _named(f"key:{tenant}:{owner}:{key}")


def shard_of(run: str, work: str, shard: int) -> str:
    """The name of a shard, unique over all runs; -1: the elements that a run manages itself."""
    return f"{run}:{work}:{shard}"


def _named(text: str) -> str:
    """The version 5 UUID of a text in our namespace. A million are made for one flow, and the standard library's function takes ten times as long."""
    hashed = _SPACE.copy()
    hashed.update(text.encode())
    digest = hashed.hexdigest()
    return (
        f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{'89ab'[int(digest[16], 16) & 3]}{digest[17:20]}-{digest[20:32]}"
    )
