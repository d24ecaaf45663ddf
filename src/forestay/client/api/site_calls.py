"""The calls about sites, as values; see `calls`."""

from __future__ import annotations

from urllib.parse import quote

from forestay.client.api.calls import Call, Json, document


def sites() -> Call[list[Json]]:
    """Every site whose agent has ever reported."""
    return Call("GET", "/v1/sites", lambda answer: list(document(answer)["sites"]))


def site(name: str) -> Call[Json]:
    """One site: its agent, the demand on it, its pilots, its launches."""
    return Call("GET", f"/v1/sites/{quote(name, safe='')}", document)
