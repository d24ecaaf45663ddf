"""OpenLineage events: the start and end of a job or a run, with the files that it read and wrote.

One lineage run is one job, however many attempts it has. Events are derived from stored documents only, so an event made again is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import Any, Protocol
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, UUID, uuid5

from forestay.domain.jobs.inputs import filled, produced
from forestay.domain.jobs.job_document import JobDocument, State
from forestay.domain.jobs.lifecycle import Event
from forestay.domain.jobs.specification import Specification
from forestay.formats.jobs.job_public import time_text

SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACETS = "https://openlineage.io/spec/facets"
_ENDS = {
    State.COMPLETED: "COMPLETE",
    State.FORCED_COMPLETE: "COMPLETE",
    State.FAILED: "FAIL",
    State.CANCELLED: "ABORT",
}
_RUN_ENDS = {"completed": "COMPLETE", "forced_complete": "COMPLETE", "finished": "COMPLETE", "removed": "ABORT", "terminated": "ABORT"}  # fmt: skip
Json = dict[str, Any]


def job_events(document: JobDocument, spec: Specification | None, *, namespace: str, flow: str = "") -> list[Json]:
    """The events of a job so far: its start and its end. `flow`: the name of its run's flow."""
    final = document.final
    claims = [line.at for line in document.history if line.event == Event.CLAIM]
    if not claims and document.attempt == 0 and not final:
        return []
    began = document.created if not claims or document.attempt > len(claims) else claims[0]
    place = f"{namespace}/{document.tenant}"
    task = document.flow_ref.work.partition("@")[0] if document.flow_ref is not None else ""
    name = f"{flow}.{task}" if flow and task else document.name
    facets: Json = {}
    if document.flow_ref is not None:
        above = {"run": {"runId": run_id(document.flow_ref.run)}, "job": {"namespace": place, "name": flow or "flow"}}
        facets["parent"] = _facet("1-2-0/ParentRunFacet.json#/$defs/ParentRunFacet", **above)
    inputs = _inputs(document, spec, place)
    job = _job(place, name, document.owner, "JOB")
    events = [_event("START", began, document.id, facets, job, inputs, ())]
    if final:
        outputs = _outputs(document, place)
        kind = _ENDS[document.state]
        more = dict(facets)
        if kind != "COMPLETE":
            note = document.history[-1].note or document.state.value
            more["errorMessage"] = _error(note)
        events.append(_event(kind, document.changed, document.id, more, job, inputs, outputs))
    return events


class LineageRun(Protocol):
    """What is reported of a run."""

    @property
    def run(self) -> str: ...
    @property
    def tenant(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def started(self) -> int: ...
    @property
    def ended(self) -> int | None: ...


def run_events(run: LineageRun, *, namespace: str) -> list[Json]:
    job = _job(f"{namespace}/{run.tenant}", run.name, run.owner, "FLOW")
    events = [_event("START", run.started, run.run, {}, job, (), ())]
    if run.ended is not None:
        kind = _RUN_ENDS.get(run.state, "FAIL")
        facets = {} if kind == "COMPLETE" else {"errorMessage": _error(run.state)}
        events.append(_event(kind, run.ended, run.run, facets, job, (), ()))
    return events


def run_id(name: str) -> str:
    """The run's id as a UUID, which OpenLineage requires; our own ids are UUIDs, ids given by others may not be."""
    try:
        return str(UUID(name))
    except ValueError:
        return str(uuid5(NAMESPACE_URL, f"forestay:{name}"))


def _event(kind: str, at: int, run: str, facets: Json, job: Json, inputs: Sequence[Json], outputs: Sequence[Json]) -> Json:  # fmt: skip
    return {
        "eventType": kind,
        "eventTime": time_text(at),
        "producer": _producer(),
        "schemaURL": SCHEMA,
        "run": {"runId": run_id(run), "facets": facets},
        "job": job,
        "inputs": list(inputs),
        "outputs": list(outputs),
    }


def _job(namespace: str, name: str, owner: str, kind: str) -> Json:
    what = _facet(
        "2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet",
        processingType="BATCH",
        integration="FORESTAY",
        jobType=kind,
    )
    whose = _facet("1-0-1/OwnershipJobFacet.json#/$defs/OwnershipJobFacet", owners=[{"name": owner, "type": "OWNER"}])
    return {"namespace": namespace, "name": name, "facets": {"jobType": what, "ownership": whose}}


def _error(message: str) -> Json:
    where = "1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet"
    return _facet(where, message=message, programmingLanguage="none")


def _facet(schema: str, **fields: object) -> Json:
    return {"_producer": _producer(), "_schemaURL": f"{FACETS}/{schema}", **fields}


@cache
def _producer() -> str:
    return f"urn:forestay:{version('forestay')}"


def _inputs(document: JobDocument, spec: Specification | None, place: str) -> list[Json]:
    datasets: list[Json] = []
    for input_ in spec.inputs if spec is not None else ():
        job_input = filled(input_, document.parameters, document.index)
        made = produced(job_input.source)
        namespace, name = (place, _output_name(made.job)) if made is not None else _named(job_input.source, place)
        dataset: Json = {"namespace": namespace, "name": name, "facets": {}}
        if job_input.sha256:
            dataset["facets"]["version"] = _version(job_input.sha256)
        if dataset not in datasets:
            datasets.append(dataset)
    return datasets


def _outputs(document: JobDocument, place: str) -> list[Json]:
    winner = document.winner
    if winner is None or winner.manifest is None or not winner.manifest.files:
        return []
    manifest = winner.manifest
    return [{"namespace": place, "name": _output_name(document.id), "facets": {"version": _version(manifest.sha256)}}]


def _output_name(job: str) -> str:
    """The outputs of a job are one dataset: they are committed together."""
    return f"jobs/{job}/outputs"


def _version(digest: str) -> Json:
    return _facet("1-0-1/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet", datasetVersion=digest)


def _named(source: str, place: str) -> tuple[str, str]:
    """Namespace and name of a file, by OpenLineage's rules; the query of an address may contain a secret, and is left out."""
    if source.startswith("/"):
        return "file", source
    parts = urlsplit(source)
    if parts.scheme == "file":
        return "file", parts.path
    if parts.scheme in ("http", "https", "s3", "root") and parts.hostname:
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}", parts.path.lstrip("/") or "/"
    return place, source.partition("?")[0]
