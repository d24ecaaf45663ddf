"""The inputs of claimed jobs, as their pilot needs them: filled in, checked again, and outputs of other jobs looked up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from holdfast.apps.server.desk import Desk
from holdfast.domain.jobs.inputs import Input, Produced, filled, local_path, produced, wrong_input
from holdfast.domain.jobs.specification import Specification
from holdfast.formats.job_public import manifest_public
from holdfast.ports.job_store import Stored

Json = dict[str, Any]


async def inputs_of(desk: Desk, granted: list[Stored], specs: dict[str, Specification]) -> dict[str, list[Json]]:
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
    tenants = {one.document.id: one.document.tenant for one in granted}
    return {
        job: [await _input(desk, entry, tenants[job], producers) for entry in inputs] for job, inputs in wanted.items()
    }


async def _producers(desk: Desk, inputs: list[Input]) -> Mapping[str, Stored]:
    """The jobs whose outputs are asked for, read together."""
    names = sorted({other.job for one in inputs if (other := produced(one.source)) is not None})
    found: dict[str, Stored] = {}
    for start in range(0, len(names), 1000):
        found |= await desk.services.parts.store.get(names[start : start + 1000])
    return found


async def _input(desk: Desk, given: Input, tenant: str, producers: Mapping[str, Stored]) -> Json:
    told: Json = {"name": given.name, "source": given.source, "bytes": given.size, "sha256": given.sha256}
    outbound = desk.services.parts.staging
    if why := wrong_input(given, outbound):
        # The list of hosts may have become shorter since the job was submitted.
        return told | {"refused": why}
    other = produced(given.source)
    if other is not None:
        return told | await _produced(desk, other, producers.get(other.job), tenant)
    if local_path(given.source) is None:
        told["private"] = outbound.may_be_private(urlsplit(given.source).hostname or "")
    return told


async def _produced(desk: Desk, other: Produced, stored: Stored | None, tenant: str) -> Json:
    if stored is None or stored.document.tenant != tenant:
        return {"missing": f"there is no job {other.job}"}
    winner = await desk.services.outputs.winner(stored)
    if winner is None or winner.manifest is None:
        return {"missing": f"job {other.job} is {stored.document.state} and has committed no outputs"}
    return {"manifest": manifest_public(winner.manifest), "path": other.path}
