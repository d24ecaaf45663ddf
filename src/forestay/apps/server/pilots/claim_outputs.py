"""Where the outputs of claimed jobs go: a storage element, or the pilot's own folder."""

from __future__ import annotations

from typing import Any

from forestay.apps.server.http.request_context import RequestContext
from forestay.domain.data.attempt_folder import attempt_folder as folder_of_attempt
from forestay.domain.data.replica import Viewpoint
from forestay.domain.data.storage_element import StorageElement
from forestay.domain.jobs.job_document import Token

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


def attempt_folder(element: StorageElement, tenant: str, job: str, token: Token, claim: str) -> str:
    """The folder on an element for a single attempt of a job."""
    return f"{element.outputs}/{folder_of_attempt(tenant, job, token, claim)}"
