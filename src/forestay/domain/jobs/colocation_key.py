"""With whom a job is to be brought together: the key that it shares with those whose outputs meet its own in a later job, and with that job.

A specification names it with `{name}` where a job's parameter stands; each job's document carries its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from forestay.domain.jobs.inputs import filled_text
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.specification import Specification

MEET = "meet"
"""Where specifications and documents keep it."""
MOST_ROOM = 10_000


class ColocationKey(NamedTuple):
    """One meeting."""

    key: str
    room: int = 1
    """How many of its jobs run at the same time at the widest point."""
    of: int = 0
    """How many they are in all; 0: not known."""


def colocation_key(given: object) -> ColocationKey | None:
    """Read a meeting from a document; None: there is none, or a newer writer means something else."""
    if isinstance(given, str) and given:
        return ColocationKey(given)
    if isinstance(given, Mapping) and isinstance(given.get("key"), str):
        room, of = given.get("room", 1), given.get("of", 0)
        if isinstance(room, int) and isinstance(of, int):
            return ColocationKey(str(given["key"]), room, of)
    return None


def meet_of(document: JobDocument) -> ColocationKey | None:
    return colocation_key(document.extra.get(MEET)) if document.extra else None


def meeting(
    spec: Specification, labels: Mapping[str, str], parameters: Mapping[str, object], index: int | None, case: str = ""
) -> Mapping[str, object]:
    """What a job's document carries of a meeting that its specification names, or its labels `meet`, `meet-room` and `meet-of`; keys of one case mean nothing to another."""
    given = colocation_key(spec.extra.get(MEET)) if spec.extra else None
    if given is None and MEET in labels:
        room, of = labels.get("meet-room", "1"), labels.get("meet-of", "0")
        given = ColocationKey(labels[MEET], int(room) if room.isdigit() else 1, int(of) if of.isdigit() else 0)
    if given is None or not given.key:
        return {}
    key = filled_text(given.key, parameters, index)
    return {MEET: {"key": f"{case}:{key}" if case else key, "room": min(given.room, MOST_ROOM), "of": given.of}}
