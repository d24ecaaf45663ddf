"""What a pilot gets for TES tasks beside a job's claim: how to run one, or where its outputs go."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from forestay.apps.server.http.request_context import RequestContext
from forestay.apps.server.insertion.tes_urls import s3_element
from forestay.domain.jobs.inputs import local_path
from forestay.domain.jobs.job_document import JobDocument, Manifest, State
from forestay.domain.jobs.specification import Specification
from forestay.formats.ga4gh.tes_job import MARK, OUTPUTS, TES, output_json, plan_of, task_of
from forestay.formats.ga4gh.tes_task import TaskOutput
from forestay.formats.jobs.job_public import manifest_public
from forestay.ports.errors import Permanent
from forestay.ports.jobs.job_store import Stored
from forestay.services.data.storage_access import element_path

Json = dict[str, Any]


async def tasks_told(
    context: RequestContext, granted: list[Stored], specs: dict[str, Specification]
) -> dict[str, Json]:
    """For each job of a task, the additional fields of its claim."""
    inputs: dict[str, Json] = {}
    for stored in granted:
        document = stored.document
        spec = specs[document.specification]
        if TES not in spec.extra:
            continue
        task = task_of(spec)
        if task is not None:
            inputs[document.id] = {"task": plan_of(task, context.services.components.settings.tes_containers)}
        else:
            inputs[document.id] = await _outputs(context, document)
    return inputs


async def _outputs(context: RequestContext, document: JobDocument) -> Json:
    """The outputs that an output job transfers, and their targets."""
    pair = await outputs_asked(context, document)
    if pair is None:
        return {"task": {"refused": "the task of these outputs does not exist"}}
    outputs, manifest = pair
    plan: Json = {
        "outputs": [_output(context, document.tenant, output) for output in outputs],
        "manifest": manifest_public(manifest),
    }
    if element_path(manifest.path) is None:
        return {"task": {"bring": plan}}
    try:
        return {"task": {"bring": plan}, "inputs": await files_on_element(context, document.tenant, manifest)}
    except Permanent as error:
        return {"task": {"refused": str(error)}}


async def outputs_asked(
    context: RequestContext, document: JobDocument
) -> tuple[tuple[TaskOutput, ...], Manifest] | None:
    """The outputs that a job transfers, and the manifest of the attempt that counts."""
    task = str(document.parameters.get("task"))
    stored = (await context.services.components.store.get([task])).get(task)
    if document.labels.get(MARK) != OUTPUTS or stored is None or stored.document.tenant != document.tenant:
        return None
    ending = await context.services.outputs.winner(stored)
    if ending is None and stored.document.state is State.FAILED:
        ending = stored.document.last
    name = stored.document.specification
    spec = (await context.specifications([name])).get(name)
    asked = task_of(spec) if spec is not None else None
    if ending is None or ending.manifest is None or asked is None:
        return None
    return asked.outputs, ending.manifest


def _output(context: RequestContext, tenant: str, output: TaskOutput) -> Json:
    returned_output_json = output_json(output)
    if (path := local_path(output.url)) is not None:
        return returned_output_json | {"to": {"kind": "file", "base": path}}
    if output.url.startswith("s3://"):
        found_s3_element = s3_element(output.url, tenant, context.services.components.elements)
        return returned_output_json | {
            "to": {
                "kind": "s3",
                "base": output.url,
                "private": found_s3_element is not None and found_s3_element[0].private,
            }
        }
    parts = context.services.components
    if why := parts.staging.check(output.url):
        return returned_output_json | {"refused": why}
    private = parts.staging.may_be_private(urlsplit(output.url).hostname or "")
    return returned_output_json | {"to": {"kind": "http", "base": output.url, "private": private}}


async def files_on_element(context: RequestContext, tenant: str, manifest: Manifest) -> list[Json]:
    """The files of a manifest on an element, to be staged as any input is. `Permanent` if it cannot be had."""
    elements = context.services.components.elements
    where = element_path(manifest.path)
    assert where is not None  # noqa: S101 - the caller looked
    folder = os.path.dirname(where.path)
    return [
        {
            "name": path,
            "source": f"{manifest.path}#{path}",
            "bytes": listed.size,
            "sha256": listed.sha256,
            "from": elements.sources(where.element, f"{folder}/{path}"),
        }
        for path, listed in (await elements.listed(tenant, manifest)).items()
    ]


async def task_uploads(context: RequestContext, document: JobDocument, urls: list[str]) -> dict[str, str] | None:
    """Signed addresses for outputs of a task on S3; None for a job of another kind. `Permanent` for outputs that its client did not name."""
    pair = await outputs_asked(context, document)
    if pair is None:
        return None
    signed: dict[str, str] = {}
    for url in urls:
        if not any(_beneath(url, output) for output in pair[0]):
            raise Permanent(f"{url[:200]} is not among the outputs of the task")
        place = s3_element(url, document.tenant, context.services.components.elements)
        if place is None:
            raise Permanent(f"no storage element has the bucket of {url[:200]}")
        element, path = place
        signed[url] = context.services.components.elements.uploads(element.name, [path])[path]
    return signed


def _beneath(url: str, output: TaskOutput) -> bool:
    return url == output.url or (".." not in url.split("/") and url.startswith(output.url.rstrip("/") + "/"))
