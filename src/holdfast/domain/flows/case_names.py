"""Names that are made of what they name, so that whoever repeats something finds what was made the first time."""

from __future__ import annotations

from uuid import UUID, uuid5

_SPACE = UUID("6b1f7c52-2b56-5d0e-9a3e-0f6c1c8c1a77")


def job_of(case: str, work: str, index: int) -> str:
    """The id of a job of a round."""
    return str(uuid5(_SPACE, f"job:{case}:{work}:{index}"))


def case_of(case: str, work: str, index: int) -> str:
    """The id of the case that runs a sub-flow for an element of a round."""
    return str(uuid5(_SPACE, f"case:{case}:{work}:{index}"))


def case_keyed(tenant: str, key: str) -> str:
    """The id of a case that was asked for with an idempotency key."""
    return str(uuid5(_SPACE, f"key:{tenant}:{key}"))


def shard_of(case: str, work: str, shard: int) -> str:
    """The name of a shard, or with -1 of what a case looks after itself, among all shards of all cases."""
    return f"{case}:{work}:{shard}"
