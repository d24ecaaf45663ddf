"""The calls for playbooks by name, as values; see `calls`."""

from __future__ import annotations

from urllib.parse import quote

import orjson

from forestay.client.api.calls import Call, Json, document


def _place(name: str) -> str:
    return f"/v1/playbooks/{quote(name, safe='')}"


def playbooks() -> Call[list[Json]]:
    return Call("GET", "/v1/playbooks", lambda answer: list(document(answer)["playbooks"]))


def playbook(name: str, version: str | None = None) -> Call[Json]:
    return Call("GET", _place(name), document, [("version", version)] if version else [])


def put_playbook(name: str, text: str, *, type_: str | None = None) -> Call[Json]:
    """Keep a playbook in YAML or JSON under its name; the same content again changes nothing."""
    return Call("PUT", _place(name), document, body=orjson.dumps({"text": text, "type": type_}))
