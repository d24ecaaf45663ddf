"""The calls for approvals, as values; see `calls`."""

from __future__ import annotations

from urllib.parse import quote

import orjson

from forestay.client.api.calls import Call, Json, document


def approvals(*, state: str | None = None) -> Call[list[Json]]:
    """What waits for approval, or did lately."""
    query = [("state", state)] if state else []
    return Call("GET", "/v1/approvals", lambda answer: list(document(answer)["approvals"]), query)


def approval(name: str) -> Call[Json]:
    return Call("GET", f"/v1/approvals/{quote(name, safe='')}", document)


def answer_approval(name: str, *, agree: bool, reason: str = "") -> Call[Json]:
    """Agree to a request, which is then done, or refuse it; a repeat changes nothing."""
    body = orjson.dumps({"agree": agree, "reason": reason})
    return Call("POST", f"/v1/approvals/{quote(name, safe='')}", document, body=body)
