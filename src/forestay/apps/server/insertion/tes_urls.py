"""The addresses of a task's inputs and outputs: which can be reached, and by which storage element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from forestay.domain.data.storage_element import AccessProtocol, StorageElement, wrong_path
from forestay.domain.flows.definition.flow_problem import FlowProblem
from forestay.domain.jobs.inputs import catalogue_name, local_path
from forestay.domain.jobs.outbound import OutboundPolicy
from forestay.formats.ga4gh.tes_job import bucket_of
from forestay.formats.ga4gh.tes_task import FileType, TaskDocument
from forestay.services.data.storage_access import StorageAccess


def wrong_urls(task: TaskDocument, tenant: str, outbound: OutboundPolicy, elements: StorageAccess) -> list[FlowProblem]:
    """All addresses that cannot be reached, so that no task is created that can only fail."""
    return list(_wrong(task, tenant, outbound, elements))


def _wrong(task: TaskDocument, tenant: str, outbound: OutboundPolicy, elements: StorageAccess) -> Iterator[FlowProblem]:
    for place, task_input in enumerate(task.inputs):
        if not task_input.url:
            continue
        # A file of the catalogue comes from any available replica.
        catalogued = catalogue_name(task_input.url) is not None
        why = None if catalogued else _unreachable(task_input.url, tenant, outbound, elements)
        if why is None and task_input.type is FileType.DIRECTORY and local_path(task_input.url) is None:
            why = "a folder needs a path, not an address"
        if why is not None:
            yield FlowProblem(("inputs", place, "url"), why)
    for place, output in enumerate(task.outputs):
        why = _unreachable(output.url, tenant, outbound, elements)
        if why is not None:
            yield FlowProblem(("outputs", place, "url"), why)


def _unreachable(url: str, tenant: str, outbound: OutboundPolicy, elements: StorageAccess) -> str | None:
    path = local_path(url)
    if path is not None:
        parts = path.split("/")
        return (
            None if path.startswith("/") and "\0" not in path and ".." not in parts else "an absolute path is required"
        )
    if url.startswith(("http:", "https:")):
        return outbound.check(url)
    bucket = bucket_of(url)
    if bucket is None:
        return "an address is a path, or starts with file://, http://, https:// or s3://; an input may also be lfn:NAME"
    found_s3_element = s3_element(url, tenant, elements)
    if found_s3_element is None:
        return f"no storage element here has the bucket {bucket[0]}"
    return wrong_path(found_s3_element[1].rstrip("/")) if found_s3_element[1] else "an object in the bucket is required"


def s3_element(url: str, tenant: str, elements: StorageAccess) -> tuple[StorageElement, str] | None:
    """The element that has the bucket of an address, and the path on it; an element may be a folder of a bucket."""
    bucket = bucket_of(url)
    if bucket is None:
        return None
    whole = f"{bucket[0]}/{bucket[1]}"
    for element in elements.elements.values():
        base = urlsplit(element.doors[0].base).path.strip("/")
        if (
            element.doors[0].kind is AccessProtocol.S3
            and element.serves(tenant)
            and base
            and whole.startswith(f"{base}/")
        ):
            path = whole.removeprefix(f"{base}/")
            if element.may_read(tenant, path.rstrip("/") or "-"):
                return element, path
    return None


def storage_of(tenant: str, hosts: Sequence[str], elements: StorageAccess) -> list[str]:
    """The possible sources of inputs and targets of outputs, in the terms of TES."""
    buckets = [
        f"s3://{urlsplit(element.doors[0].base).path.strip('/')}"
        for element in elements.elements.values()
        if element.doors[0].kind is AccessProtocol.S3 and element.serves(tenant)
    ]
    return ["file:///", *(f"https://{host.removeprefix('private:')}" for host in hosts), *buckets]
