"""The inputs of claimed jobs, as their pilot needs them: filled in, checked again, and everything looked up that they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from holdfast.apps.server.desk import Desk
from holdfast.domain.jobs.inputs import Input, Produced, filled, local_path, logical_name, produced, wrong_input
from holdfast.domain.jobs.job_document import JobDocument
from holdfast.domain.jobs.specification import Specification
from holdfast.formats.job_public import manifest_public
from holdfast.ports.job_store import Stored

Json = dict[str, Any]

TRANSFER = "transfer"
"""Where a document keeps how its files are brought, when a rule changed that."""


class _Asked(NamedTuple):
    """Who stages an input, and for which job."""

    job: JobDocument
    pilot: str


async def inputs_of(
    desk: Desk, granted: list[Stored], specs: dict[str, Specification], pilot: str
) -> dict[str, list[Json]]:
    """For each job that has inputs, what its pilot is to stage."""
    wanted: dict[str, list[Input]] = {}
    for one in granted:
        document = one.document
        given = specs[document.specification].inputs
        if given:
            wanted[document.id] = [filled(entry, document.parameters, document.index) for entry in given]
    if not wanted:
        return {}
    producers = await _producers(desk, [entry for inputs in wanted.values() for entry in inputs])
    asked = {one.document.id: _Asked(one.document, pilot) for one in granted}
    return {
        job: [await _input(desk, entry, asked[job], producers) for entry in inputs] for job, inputs in wanted.items()
    }


async def _producers(desk: Desk, inputs: list[Input]) -> Mapping[str, Stored]:
    """The jobs whose outputs are asked for, read together."""
    names = sorted({other.job for one in inputs if (other := produced(one.source)) is not None})
    found: dict[str, Stored] = {}
    for start in range(0, len(names), 1000):
        found |= await desk.services.parts.store.get(names[start : start + 1000])
    return found


async def _input(desk: Desk, given: Input, asked: _Asked, producers: Mapping[str, Stored]) -> Json:
    told: Json = {"name": given.name, "source": given.source, "bytes": given.size, "sha256": given.sha256}
    outbound = desk.services.parts.staging
    if why := wrong_input(given, outbound):
        # The list of hosts may have become shorter since the job was submitted.
        return told | {"refused": why}
    if changed := asked.job.extra.get(TRANSFER):
        told["transfer"] = changed
    file = logical_name(given)
    peers: list[Json] = []
    if file is not None:
        told["file"] = file
        peers = list(desk.peers_for(file, asked.pilot))
    other = produced(given.source)
    if other is not None:
        told |= await _produced(desk, other, producers.get(other.job), asked.job.tenant)
        # The place of the manifest itself comes after what is told here; it also has the digest.
        return told | {"from": peers} if peers and "manifest" in told else told
    path = local_path(given.source)
    if path is not None:
        return told | {"from": [*peers, {"kind": "file", "path": path}]} if peers else told
    told["private"] = outbound.may_be_private(urlsplit(given.source).hostname or "")
    own = {"kind": "http", "url": given.source, "private": told["private"]}
    return told | {"from": [*peers, own]} if peers else told


async def _produced(desk: Desk, other: Produced, stored: Stored | None, tenant: str) -> Json:
    if stored is None or stored.document.tenant != tenant:
        return {"missing": f"there is no job {other.job}"}
    winner = await desk.services.outputs.winner(stored)
    if winner is None or winner.manifest is None:
        return {"missing": f"job {other.job} is {stored.document.state} and has committed no outputs"}
    return {"manifest": manifest_public(winner.manifest), "path": other.path}
