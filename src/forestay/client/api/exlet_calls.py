"""The calls for exlets by name, as values; see `calls`."""

from __future__ import annotations

from urllib.parse import quote

import orjson

from forestay.client.api.calls import Call, Json, document


def _place(name: str) -> str:
    return f"/v1/exlets/{quote(name, safe='')}"


def exlets() -> Call[list[Json]]:
    return Call("GET", "/v1/exlets", lambda answer: list(document(answer)["exlets"]))


def exlet(name: str, version: str | None = None) -> Call[Json]:
    return Call("GET", _place(name), document, [("version", version)] if version else [])


def put_exlet(name: str, text: str, *, type_: str | None = None) -> Call[Json]:
    """Keep an exlet in YAML or JSON under its name; the same content again changes nothing."""
    return Call("PUT", _place(name), document, body=orjson.dumps({"text": text, "type": type_}))
