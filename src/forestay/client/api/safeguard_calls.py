"""The calls for the safeguards and the audit log, as values; see `calls`."""

from __future__ import annotations

import orjson

from forestay.client.api.calls import Call, Json, document


def safeguards() -> Call[Json]:
    """What holds rules back: stops, groups of storms, limits."""
    return Call("GET", "/v1/safeguards", document)


def stop_acts(*, reason: str, everywhere: bool = False) -> Call[Json]:
    """Stop all acts of rules; a repeat changes nothing."""
    return Call(
        "POST", "/v1/safeguards/stop", document, body=orjson.dumps({"reason": reason, "everywhere": everywhere})
    )


def let_acts_go_on(*, reason: str, everywhere: bool = False) -> Call[Json]:
    return Call("POST", "/v1/safeguards/go", document, body=orjson.dumps({"reason": reason, "everywhere": everywhere}))


def decide_group(group: str, rule: str, do: str, *, reason: str, fingerprint: str | None = None) -> Call[Json]:
    """Try a rule on the group of a storm again (`try`), or let it act on all of them (`all`); with a fingerprint, on those of one error."""
    body = {"group": group, "rule": rule, "do": do, "reason": reason}
    if fingerprint is not None:
        body["fingerprint"] = fingerprint
    return Call("POST", "/v1/safeguards/groups", document, body=orjson.dumps(body))


def audit(*, start: int | None = None, limit: int = 100) -> Call[Json]:
    """Entries of the audit log in order: from a number on, or the last ones."""
    query = [("limit", str(limit))]
    if start is not None:
        query.append(("start", str(start)))
    return Call("GET", "/v1/audit", document, query)
