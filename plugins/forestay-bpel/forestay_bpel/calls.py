"""The calls for processes, as values that a `ForestayClient` sends; see `forestay.client.api.calls`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

import orjson

from forestay.client.api.calls import Call, Json, document

if TYPE_CHECKING:
    from forestay.client.api.schemas import StoredFlow


def store_bpel(
    process: str, *, wsdls: Sequence[str] = (), jobs: Mapping[str, str] | None = None, mapping: str = ""
) -> Call[StoredFlow]:
    """Store a process in WS-BPEL 2.0 with its job definitions in JSDL 1.0, and the mapping of its partners."""
    body = {"process": process, "wsdls": list(wsdls), "jobs": dict(jobs or {}), "mapping": mapping}
    return Call("POST", "/v1/flows/bpel", lambda answer: cast("StoredFlow", document(answer)), body=orjson.dumps(body))


def send_message(run: str, partner: str, operation: str, message: Mapping[str, object]) -> Call[Json]:
    """Send a message to the process of a run."""
    body = {"partner": partner, "operation": operation, "message": dict(message)}
    return Call("POST", f"/v1/runs/{quote(run, safe='')}/messages", document, body=orjson.dumps(body))
