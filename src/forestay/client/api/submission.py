"""Submits any number of jobs in as many requests as needed, each with its own idempotency key.

The keys and the cuts follow from the first key and the jobs alone. So the same jobs sent again with the same key, by
this process or another, give the same ids, and nothing is doubled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from forestay.client.api.calls import LARGEST_REQUEST
from forestay.client.api.forestay_client import ForestayClient

if TYPE_CHECKING:
    from forestay.client.api.schemas import AcceptedJson, NewJob, SpecificationJson

LARGEST_BODY = 8 << 20
"""Bytes of jobs in one request."""


@dataclass(frozen=True, slots=True)
class Portion:
    """The jobs of one request."""

    key: str
    jobs: Sequence[NewJob]


def portions(jobs: Iterable[NewJob], key: str) -> Iterator[Portion]:
    """Cut jobs into requests. The first has the key itself, the later ones the key and a number."""
    cut: list[NewJob] = []
    size = number = 0
    for job in jobs:
        bytes_of_job = len(orjson.dumps(job)) + 1
        if cut and (len(cut) == LARGEST_REQUEST or size + bytes_of_job > LARGEST_BODY):
            yield Portion(_key(key, number), cut)
            cut, size, number = [], 0, number + 1
        cut.append(job)
        size += bytes_of_job
    if cut:
        yield Portion(_key(key, number), cut)


def _key(key: str, number: int) -> str:
    return key if number == 0 else f"{key}.{number}"


def submit_many(
    client: ForestayClient, jobs: Iterable[NewJob], specification: SpecificationJson | None = None, *, key: str
) -> Iterator[list[AcceptedJson]]:
    """Submit request by request; what the server accepted is given out as it comes."""
    for portion in portions(jobs, key):
        yield client.submit(portion.jobs, specification, key=portion.key)
