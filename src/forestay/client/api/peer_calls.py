"""The calls about peers, as values; see `calls`."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import orjson

from forestay.client.api.calls import Call, Json, document


def peers() -> Call[Json]:
    """This domain's public key and its peers."""
    return Call("GET", "/v1/peers", document)


def put_peer(name: str, known: Mapping[str, object]) -> Call[Json]:
    """Register a peer: `url`, `key`, `tenants`, `sends`, `lease`, `cost`."""
    return Call("PUT", f"/v1/peers/{quote(name, safe='')}", document, body=orjson.dumps(dict(known)))


def remove_peer(name: str) -> Call[Json]:
    return Call("DELETE", f"/v1/peers/{quote(name, safe='')}", document)
