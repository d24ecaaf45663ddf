"""The inputs of claimed jobs as their pilot needs them: filled in, validated again, and with all sources resolved.

Sources are in the order in which the pilot tries them: other pilots that have the file (`context.peers_for`), then the storage elements by proximity, then the
source in the job itself. The pilot's own cache precedes all of them, and is handled by the pilot.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from forestay.apps.server.http.request_context import RequestContext
from forestay.apps.server.insertion.tes_urls import s3_element
from forestay.domain.data.replica import LogicalFile, Viewpoint
from forestay.domain.data.staging_terms import transfer_of
from forestay.domain.jobs.inputs import (
    JobInput,
    Produced,
    catalogue_name,
    filled,
    local_path,
    logical_name,
    produced,
    wrong_input,
)
from forestay.domain.jobs.job_document import JobDocument, Manifest
from forestay.domain.jobs.reuse import expected_digests
from forestay.domain.jobs.specification import Specification
from forestay.formats.jobs.job_public import manifest_public
from forestay.ports.errors import Permanent
from forestay.ports.jobs.job_store import Stored
from forestay.services.data.remade_outputs import from_newest, newest_commits
from forestay.services.data.storage_access import element_path

Json = dict[str, Any]


class _KnownSources(NamedTuple):
    """The lookups for all inputs of a claim together."""

    pilot: str
    view: Viewpoint
    producers: Mapping[str, Stored]
    files: Mapping[str, LogicalFile]


async def inputs_of(
    context: RequestContext, granted: list[Stored], specs: dict[str, Specification], pilot: str, view: Viewpoint
) -> dict[str, list[Json]]:
    """For each job with inputs, what its pilot has to stage."""
    wanted: dict[str, list[JobInput]] = {}
    for stored in granted:
        document = stored.document
        given_inputs = specs[document.specification].inputs
        if given_inputs:
            expected = expected_digests(document)
            staged = [filled(entry, document.parameters, document.index) for entry in given_inputs]
            wanted[document.id] = [
                replace(entry, sha256=expected[entry.name]) if entry.name in expected else entry for entry in staged
            ]
    if not wanted:
        return {}
    inputs = [entry for entries in wanted.values() for entry in entries]
    producers = await _producers(context, inputs)
    wanted = {job: [from_newest(entry, producers) for entry in entries] for job, entries in wanted.items()}
    inputs = [entry for entries in wanted.values() for entry in entries]
    names = sorted({name for entry in inputs if (name := logical_name(entry)) is not None})
    catalogue = context.services.components.catalogue
    known = _KnownSources(pilot, view, _by_own_name(producers), await catalogue.locate(names, view))
    jobs = {stored.document.id: stored.document for stored in granted}
    return {
        job: [await _input(context, entry, jobs[job], known) for entry in entries] for job, entries in wanted.items()
    }


async def _producers(context: RequestContext, inputs: list[JobInput]) -> Mapping[str, Stored]:
    """The producers of the requested outputs, by the names in the inputs, read together."""
    names = sorted({other.job for job_input in inputs if (other := produced(job_input.source)) is not None})
    stored_jobs: dict[str, Stored] = {}
    for start in range(0, len(names), 1000):
        stored_jobs |= await context.services.components.store.get(names[start : start + 1000])
    return await newest_commits(context.services.components.store, stored_jobs)


def _by_own_name(producers: Mapping[str, Stored]) -> Mapping[str, Stored]:
    return {stored.document.id: stored for stored in producers.values()}


async def _input(context: RequestContext, job_input: JobInput, job: JobDocument, known: _KnownSources) -> Json:
    files: Json = {
        "name": job_input.name,
        "source": job_input.source,
        "bytes": job_input.size,
        "sha256": job_input.sha256,
    }
    if job_input.source.startswith("s3://"):  # only TES tasks have these
        place = s3_element(job_input.source, known.view.tenant, context.services.components.elements)
        sources = context.services.components.elements.sources(place[0].name, place[1]) if place is not None else []
        return files | ({"from": sources} if sources else {"missing": "no storage element has its bucket"})
    if why := wrong_input(job_input, context.services.components.staging):
        # Hosts may have been removed from the list since the job was submitted.
        return files | {"refused": why}
    changed = transfer_of(job.extra)
    protocol = str(changed.get("protocol", ""))
    if changed:
        files["transfer"] = changed
    file = logical_name(job_input)
    if file is not None:
        files["file"] = file
    other = produced(job_input.source)
    if other is not None:
        files |= await _produced(context, other, known, file or "", protocol)
    elif catalogue_name(job_input.source) is not None:
        files |= _catalogued(context, known.files[job_input.source], protocol)
    else:
        files |= _named(context, job_input, known, protocol)
    if files.get("missing"):
        return files
    # What other pilots keep may be other owners'.
    shared = file is not None and context.owners.get(known.pilot) == ""
    peers = list(context.peers_for(file or "", known.pilot)) if shared else []
    sources = [*peers, *files.pop("from", [])]
    # An input with a single source of its own keeps the original form.
    if sources and (len(sources) > 1 or peers or "element" in sources[0]):
        files["from"] = sources
    return files


def _replicas(context: RequestContext, file: LogicalFile | None, protocol: str) -> list[Json]:
    """The sources of a file's known replicas, in their order."""
    elements = context.services.components.elements
    replicas = file.replicas if file is not None else ()
    return [source for replica in replicas for source in elements.sources(replica.element, replica.path, protocol)]


def _catalogued(context: RequestContext, file: LogicalFile, protocol: str) -> Json:
    sources = _replicas(context, file, protocol)
    if not sources:
        return {"missing": f"no storage element has {file.name}"}
    about = {"bytes": file.size, "sha256": file.sha256}
    return {name: value for name, value in about.items() if value is not None} | {"from": sources}


def _named(context: RequestContext, job_input: JobInput, known: _KnownSources, protocol: str) -> Json:
    """A path or an address; with a digest it may have replicas too."""
    replicas = _replicas(context, known.files.get(job_input.source), protocol)
    path = local_path(job_input.source)
    if path is not None:
        return {"from": [{"kind": "file", "path": path}, *replicas]}
    private = context.services.components.staging.may_be_private(urlsplit(job_input.source).hostname or "")
    return {"private": private, "from": [{"kind": "http", "url": job_input.source, "private": private}, *replicas]}


async def _produced(context: RequestContext, other: Produced, known: _KnownSources, file: str, protocol: str) -> Json:
    stored = known.producers.get(other.job)
    if stored is None or stored.document.tenant != known.view.tenant:
        return {"missing": f"there is no job {other.job}"}
    winner = await context.services.outputs.winner(stored)
    if winner is None or winner.manifest is None:
        return {"missing": f"job {other.job} is {stored.document.state} and has no committed outputs"}
    if element_path(winner.manifest.path) is None:
        # The location of the manifest itself follows; it also has the digest.
        return {"manifest": manifest_public(winner.manifest), "path": other.path} | {
            "from": _replicas(context, known.files.get(file), protocol)
        }
    return await _on_element(context, winner.manifest, other.path, known, file, protocol)


async def _on_element(
    context: RequestContext, manifest: Manifest, path: str, known: _KnownSources, file: str, protocol: str
) -> Json:
    """An output on a storage element: the server reads the manifest, so that the pilot needs only the one file."""
    elements = context.services.components.elements
    try:
        listed = (await elements.listed(known.view.tenant, manifest)).get(path)
    except Permanent as error:
        return {"missing": str(error)}
    if listed is None:
        return {"missing": "the job has no output of this name"}
    where = element_path(manifest.path)
    assert where is not None  # noqa: S101 - the caller looked
    place = (where.element, f"{os.path.dirname(where.path)}/{path}")
    logical_file = known.files.get(file)
    replicas = logical_file.replicas if logical_file is not None else ()
    now = context.services.components.clock.now()
    good = [replica.place for replica in replicas if not replica.bad(now) and replica.place != place]
    bad = [replica.place for replica in replicas if replica.bad(now) and replica.place != place]
    own_is_bad = any(replica.place == place and replica.bad(now) for replica in replicas)
    order = [*good, place, *bad] if own_is_bad else [place, *good, *bad]
    sources = [source for element, at in order for source in elements.sources(element, at, protocol)]
    if not sources:
        return {"missing": f"{where.element} cannot be used: its credentials are missing"}
    return {"bytes": listed.size, "sha256": listed.sha256, "from": sources}
