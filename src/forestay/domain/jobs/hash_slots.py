"""Hash slots: how the servers divide the jobs among themselves without communication.

A job's id determines one of 1,024 slots. Each server takes the slots for which it has the highest
hash among the servers that it has seen alive. Two servers may for a while both believe that they own a slot: that
costs a conflict at the store, never a second claim.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from zlib import crc32

SLOTS = 1024


def hash_slot_of(job: str) -> int:
    """The slot of a job, the same on every machine and in every release."""
    return crc32(job.encode()) % SLOTS


def own_hash_slots(server: str, alive: Iterable[str]) -> frozenset[int]:
    """The slots of a server among those alive (always including itself), by rendezvous hashing."""
    others = sorted(set(alive) - {server})
    if not others:
        return frozenset(range(SLOTS))
    rivals = zip(*(_weights(other) for other in others), strict=True)
    ours = _weights(server)
    return frozenset(slot for slot, theirs in enumerate(rivals) if ours[slot] > max(theirs))


def fallback_hash_slots(server: str, alive: Iterable[str]) -> frozenset[int]:
    """The slots of others that a server would take over if their owner were gone. With two or more servers each slot has exactly one fallback."""
    others = sorted(set(alive) - {server})
    if not others:
        return frozenset()
    rivals = zip(*(_weights(other) for other in others), strict=True)
    ours = _weights(server)
    return frozenset(slot for slot, theirs in enumerate(rivals) if sum(weight > ours[slot] for weight in theirs) == 1)


@lru_cache(maxsize=64)
def _weights(server: str) -> tuple[tuple[int, str], ...]:
    """The weight of a server in each slot. Cached, since the same servers recur."""
    return tuple(_weight(server, slot) for slot in range(SLOTS))


def _weight(server: str, slot: int) -> tuple[int, str]:
    # The slot is hashed and mixed, since crc32 alone is linear and would give one server all slots.
    mixed = crc32(f"{slot}:{server}".encode()) * 0x9E3779B1 & 0xFFFFFFFF
    mixed ^= mixed >> 15
    return (mixed * 0x85EBCA77 & 0xFFFFFFFF, server)
