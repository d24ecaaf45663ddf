"""The calls for the catalogue of files, as values; see `calls`."""

from __future__ import annotations

import orjson

from forestay.client.api.calls import Call, Json, document


def files(name: str = "", *, limit: int = 100) -> Call[Json]:
    """Files with a document in the catalogue whose name contains a text."""
    return Call("GET", "/v1/files", document, [("name", name), ("limit", str(limit))])


def where(name: str, *, site: str = "") -> Call[Json]:
    """The replicas of a file, as a pilot of a site would try them."""
    return Call("GET", "/v1/files/where", document, [("name", name), *([("site", site)] if site else [])])


def add_replica(
    name: str,
    element: str,
    *,
    path: str | None = None,
    size: int | None = None,
    sha256: str | None = None,
    reason: str = "",
) -> Call[Json]:
    """Say that an element has a copy; without a path where its rules say."""
    return _post("", name, element, path, bytes=size, sha256=sha256, reason=reason)


def remove_replica(name: str, element: str, *, path: str | None = None, reason: str = "") -> Call[Json]:
    """Take replicas out of the catalogue; what is on the element stays there."""
    return _post("/remove", name, element, path, reason=reason)


def mark_replica(name: str, element: str, *, bad: bool = True, path: str | None = None, reason: str = "") -> Call[Json]:
    """Say that a replica is bad, or good again."""
    return _post("/mark", name, element, path, bad=bad, reason=reason)


def _post(what: str, name: str, element: str, path: str | None, **more: object) -> Call[Json]:
    body = {"name": name, "element": element, "path": path, **more}
    values = {key: value for key, value in body.items() if value is not None}
    return Call("POST", f"/v1/files/replicas{what}", document, body=orjson.dumps(values))
