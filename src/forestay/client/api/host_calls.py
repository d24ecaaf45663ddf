"""The calls for hosts, licences and quotas, as values; see `calls`."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import orjson

from forestay.client.api.calls import Call, Json, document


def hosts() -> Call[Json]:
    """The hosts that ask for jobs, and those that get none, with the reason."""
    return Call("GET", "/v1/hosts", document)


def close_host(host: str, *, reason: str, seconds: int | None = None) -> Call[Json]:
    """Give a host no jobs, for a time or until it is opened."""
    body = {"reason": reason} | ({"seconds": seconds} if seconds is not None else {})
    return Call("POST", f"/v1/hosts/{quote(host, safe='')}/close", document, body=orjson.dumps(body))


def open_host(host: str, *, reason: str) -> Call[Json]:
    return Call("POST", f"/v1/hosts/{quote(host, safe='')}/open", document, body=orjson.dumps({"reason": reason}))


def licences() -> Call[Json]:
    """The licences of the domain, with the jobs that have seats."""
    return Call("GET", "/v1/licences", document)


def set_licence(name: str, seats: int) -> Call[Json]:
    """Set how many seats a licence has."""
    return Call("PUT", f"/v1/licences/{quote(name, safe='')}", document, body=orjson.dumps({"seats": seats}))


def remove_licence(name: str) -> Call[Json]:
    return Call("DELETE", f"/v1/licences/{quote(name, safe='')}", document)


def quotas() -> Call[Json]:
    """The quotas, teams and shares of the tenant, with what is used."""
    return Call("GET", "/v1/quotas", document)


def set_quota(kind: str, name: str, limits: Mapping[str, float | None]) -> Call[Json]:
    """Set the limits of an owner or a team; `*` is each without limits of its own."""
    return Call("PUT", f"/v1/quotas/{kind}/{quote(name, safe='')}", document, body=orjson.dumps(dict(limits)))


def remove_quota(kind: str, name: str) -> Call[Json]:
    return Call("DELETE", f"/v1/quotas/{kind}/{quote(name, safe='')}", document)


def join_team(owner: str, team: str) -> Call[Json]:
    """Put an owner into a team."""
    return Call("PUT", f"/v1/quotas/members/{quote(owner, safe='')}", document, body=orjson.dumps({"team": team}))


def leave_team(owner: str) -> Call[Json]:
    return Call("DELETE", f"/v1/quotas/members/{quote(owner, safe='')}", document)


def set_fair_share(half_life: int) -> Call[Json]:
    """Set after how many seconds past use counts half; 0: owners take turns."""
    return Call("PUT", "/v1/quotas/fair-share", document, body=orjson.dumps({"half_life": half_life}))
