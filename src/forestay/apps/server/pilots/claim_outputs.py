"""Where the outputs of claimed jobs go: a storage element, or the pilot's own folder."""

from __future__ import annotations

from typing import Any, NamedTuple

from forestay.apps.server.http.request_context import RequestContext
from forestay.domain.data.attempt_folder import MANIFEST, is_own_manifest
from forestay.domain.data.attempt_folder import attempt_folder as folder_of_attempt
from forestay.domain.data.replica import Viewpoint
from forestay.domain.data.storage_element import StorageElement
from forestay.domain.jobs.job_document import Token
from forestay.services.data.storage_access import element_path

Json = dict[str, Any]


def outputs_of(context: RequestContext, view: Viewpoint) -> Json | None:
    """The entry in a claim for the outputs; None: none."""
    element = context.services.components.elements.outputs_for(view.tenant, view.site, view.element)
    if element is None:
        return None
    door = element.doors[0]
    return {
        "element": element.name,
        "kind": door.kind.value,
        "base": door.place(element.outputs),
        "prefix": element.outputs,
        "private": element.private,
    }


def attempt_folder(
    element: StorageElement, tenant: str, job: str, token: Token, claim: str, checkpoint: int = 0
) -> str:
    """The folder on an element that belongs to one attempt of a job alone, or to one of its checkpoints."""
    return f"{element.outputs}/{folder_of_attempt(tenant, job, token, claim, checkpoint)}"


class ClaimedAttempt(NamedTuple):
    """What an attempt's own folder is named by."""

    tenant: str
    job: str
    token: Token
    claim: str


def is_its_own(context: RequestContext, attempt: ClaimedAttempt, path: str, checkpoint: int = 0) -> bool:
    """Whether a manifest is in the attempt's own folder, on every kind of storage: nobody commits what is another's."""
    where = element_path(path)
    if where is None:
        return path.startswith("/") and is_own_manifest(path, *attempt, checkpoint)
    element = context.services.components.elements.elements.get(where.element)
    return element is not None and where.path == f"{attempt_folder(element, *attempt, checkpoint)}/{MANIFEST}"
