"""The calls for hosts, as values; see `calls`."""

from __future__ import annotations

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
