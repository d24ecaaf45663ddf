"""Which jobs should run in the same place: those whose outputs are inputs of the same later job, and that job, share a key.

A specification contains it as a template with `{name}` for a job's parameter; each job's document carries its own key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from forestay.domain.jobs.inputs import filled_text
from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.specification import Specification

COLOCATE = "colocate"
"""The field of specifications and documents for it."""
MOST_ROOM = 10_000


class ColocationKey(NamedTuple):
    """One colocation."""

    key: str
    room: int = 1
    """How many of its jobs run at the same time at the widest point."""
    of: int = 0
    """How many jobs there are in all; 0: unknown."""


def colocation_key(value: object) -> ColocationKey | None:
    """Read a colocation from a document; None: there is none, or it is of a newer format."""
    if isinstance(value, str) and value:
        return ColocationKey(value)
    if isinstance(value, Mapping) and isinstance(value.get("key"), str):
        room, of = value.get("room", 1), value.get("of", 0)
        if isinstance(room, int) and isinstance(of, int):
            return ColocationKey(str(value["key"]), room, of)
    return None


def colocation_of(document: JobDocument) -> ColocationKey | None:
    return colocation_key(document.extra.get(COLOCATE)) if document.extra else None


def colocation(
    spec: Specification, labels: Mapping[str, str], parameters: Mapping[str, object], index: int | None, run: str = ""
) -> Mapping[str, object]:
    """What a job's document carries of a colocation that its specification names, or its labels `colocate`, `colocate-slots` and `colocate-jobs`; keys of one run mean nothing to another."""
    given_colocation_key = colocation_key(spec.extra.get(COLOCATE)) if spec.extra else None
    if given_colocation_key is None and COLOCATE in labels:
        room, of = labels.get("colocate-slots", "1"), labels.get("colocate-jobs", "0")
        given_colocation_key = ColocationKey(
            labels[COLOCATE], int(room) if room.isdigit() else 1, int(of) if of.isdigit() else 0
        )
    if given_colocation_key is None or not given_colocation_key.key:
        return {}
    key = filled_text(given_colocation_key.key, parameters, index)
    return {
        COLOCATE: {
            "key": f"{run}:{key}" if run else key,
            "room": min(given_colocation_key.room, MOST_ROOM),
            "of": given_colocation_key.of,
        }
    }
