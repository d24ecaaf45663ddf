"""The calls for incidents, as values; see `calls`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from urllib.parse import quote

import httpx
import orjson

from forestay.client.api.answers import IncidentList
from forestay.client.api.calls import Call, Filters, Json, document, query_of

if TYPE_CHECKING:
    from forestay.client.api.schemas import IncidentJson, IncidentWhole


def find_incidents(
    filters: Filters | None = None, *, limit: int | None = None, cursor: str | None = None
) -> Call[IncidentList]:
    query = query_of(filters or {})
    query += [(name, str(value)) for name, value in (("limit", limit), ("cursor", cursor)) if value is not None]

    def read(answer: httpx.Response) -> IncidentList:
        whole = document(answer)
        return IncidentList(cast("list[IncidentJson]", whole.get("incidents", [])), whole.get("cursor"))

    return Call("GET", "/v1/incidents", read, query)


def count_incidents(by: str, filters: Filters | None = None) -> Call[dict[str, int]]:
    query = [("by", by), *query_of(filters or {})]
    return Call("GET", "/v1/incidents/counts", lambda answer: dict(document(answer)["counts"]), query)


def launch(name: str, *, playbook: str = "", text: str = "") -> Call[Json]:
    """Carry out a playbook for an incident: a kept one by its name, or its text in YAML."""
    place = f"/v1/incidents/{quote(name, safe='')}/playbook"
    return Call("POST", place, document, body=orjson.dumps({"playbook": playbook, "text": text}))


def incident(name: str) -> Call[IncidentWhole]:
    place = f"/v1/incidents/{quote(name, safe='')}"
    return Call("GET", place, lambda answer: cast("IncidentWhole", document(answer)))


def inbox(*, cause: str | None = None, owner: str | None = None, snoozed: bool = False) -> Call[Json]:
    """What waits for a person, in groups: `groups`, and whether there is `more`."""
    wanted = (("cause", cause), ("owner", owner), ("snoozed", "show" if snoozed else None))
    return Call("GET", "/v1/inbox", document, [(name, value) for name, value in wanted if value])


def error(fingerprint: str) -> Call[Json]:
    """All failures of one fingerprint: since when, how often, where, whose."""
    return Call("GET", f"/v1/errors/{quote(fingerprint, safe='')}", document)


def triage(fingerprint: str, act: str, *, assignee: str = "", seconds: int = 0, reason: str = "") -> Call[Json]:
    """Say something of an error: `acknowledge`, `assign`, `snooze`, `resolve` or `reopen`."""
    body = {"act": act, "assignee": assignee, "seconds": seconds, "reason": reason}
    return Call("POST", f"/v1/errors/{quote(fingerprint, safe='')}/triage", document, body=orjson.dumps(body))


def teach(
    fingerprint: str,
    cause: str,
    *,
    retry: str | None = None,
    pattern: str = "",
    dry_run: bool = False,
    anyway: bool = False,
    reason: str = "",
) -> Call[Json]:
    """Teach the site the cause of an error; with `dry_run` only report the effects."""
    body = {"cause": cause, "retry": retry, "pattern": pattern, "dry_run": dry_run, "anyway": anyway, "reason": reason}
    return Call("POST", f"/v1/errors/{quote(fingerprint, safe='')}/teach", document, body=orjson.dumps(body))


def correct_cause(incident: str, cause: str, *, retry: str | None = None, reason: str = "") -> Call[Json]:
    """Give one failure another cause."""
    body = {"cause": cause, "retry": retry, "reason": reason}
    return Call("POST", f"/v1/incidents/{quote(incident, safe='')}/cause", document, body=orjson.dumps(body))


def taught() -> Call[Json]:
    """The patterns taught at this site, with their results."""
    return Call("GET", "/v1/taught", document)


def forget(name: str) -> Call[Json]:
    """Remove a taught pattern."""
    return Call("DELETE", f"/v1/taught/{quote(name, safe='')}", document)
