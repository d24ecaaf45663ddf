"""The inputs of claimed jobs, as their pilot needs them: filled in, checked again, and outputs of other jobs looked up."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from holdfast.apps.server.desk import Desk
from holdfast.domain.jobs.inputs import Input, filled, local_path, produced, wrong_input
from holdfast.domain.jobs.specification import Specification
from holdfast.formats.job_public import manifest_public
from holdfast.ports.job_store import Stored

Json = dict[str, Any]


async def inputs_of(desk: Desk, granted: list[Stored], specs: dict[str, Specification]) -> dict[str, list[Json]]:
    """For each job that has inputs, what its pilot is to stage."""
    found: dict[str, list[Json]] = {}
    for one in granted:
        document = one.document
        given = specs[document.specification].inputs
        if given:
            inputs = [filled(entry, document.parameters, document.index) for entry in given]
            found[document.id] = [await _input(desk, entry, document.tenant) for entry in inputs]
    return found


async def _input(desk: Desk, given: Input, tenant: str) -> Json:
    told: Json = {"name": given.name, "source": given.source, "bytes": given.size, "sha256": given.sha256}
    outbound = desk.services.parts.staging
    if why := wrong_input(given, outbound):
        # The list of hosts may have become shorter since the job was submitted.
        return told | {"refused": why}
    other = produced(given.source)
    if other is not None:
        return told | await _produced(desk, other.job, other.path, tenant)
    if local_path(given.source) is None:
        told["private"] = outbound.may_be_private(urlsplit(given.source).hostname or "")
    return told


async def _produced(desk: Desk, job: str, path: str, tenant: str) -> Json:
    stored = (await desk.services.parts.store.get([job])).get(job)
    if stored is None or stored.document.tenant != tenant:
        return {"missing": f"there is no job {job}"}
    winner = await desk.services.outputs.winner(stored)
    if winner is None or winner.manifest is None:
        return {"missing": f"job {job} is {stored.document.state} and has committed no outputs"}
    return {"manifest": manifest_public(winner.manifest), "path": path}
