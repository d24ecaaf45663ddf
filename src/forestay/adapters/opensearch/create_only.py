"""Documents that are written once: the first one under an id is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from forestay.adapters.opensearch.cluster import Cluster, to_json, version_of
from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import Conflicted, Unknown, Written

CONFIRMATIONS = 20
"""Attempts to confirm an existing document."""


class GoneAgain(Transient):
    """A document that existed a moment ago is not there: it was removed, or had not been acknowledged."""


Confirmed = Callable[[dict[str, Any]], Mapping[str, Any]]
"""The content with which an existing document is confirmed, from the one that was read."""


def as_it_is(source: dict[str, Any]) -> Mapping[str, Any]:
    return source


async def create(
    cluster: Cluster, kind: str, lines: Sequence[tuple[str, None, bytes]], confirmed: Confirmed = as_it_is
) -> list[bool]:
    """Create missing documents; where a conflict reports an existing one, that is confirmed."""
    results = await cluster.write(kind, lines) if lines else ()
    unsure = [result.detail for result in results if isinstance(result, Unknown)]
    if unsure:
        raise Transient(f"{len(unsure)} {kind} may not be stored: {unsure[0]}")
    status = [line[0] for line, result in zip(lines, results, strict=True) if isinstance(result, Conflicted)]
    await _confirm(cluster, kind, list(dict.fromkeys(status)), confirmed)
    return [isinstance(result, Written) for result in results]


async def _confirm(cluster: Cluster, kind: str, names: Sequence[str], confirmed: Confirmed) -> None:
    """Write documents once more as they are, over the version that was read.

    A create may conflict with a document that only a primary about to be replaced has: it would be rolled back. Once a
    write over it is acknowledged it is durable. Of many processes that confirm the same document, one succeeds at a time.
    """
    for _ in range(CONFIRMATIONS):
        if not names:
            return
        hits = await cluster.get(kind, names)
        if len(hits) < len(names):
            raise GoneAgain(f"some {kind} exist and cannot be read back; send them again")
        lines = [
            (hit["_id"], version_of(hit), to_json(confirmed(hit["_source"]), f"{kind} {hit['_id']!r}")) for hit in hits
        ]
        results = await cluster.write(kind, lines)
        names = [line[0] for line, result in zip(lines, results, strict=True) if not isinstance(result, Written)]
    raise Transient(f"some {kind} exist and could not be confirmed; send them again")
