"""The calls about sites, as values; see `calls`."""

from __future__ import annotations

from urllib.parse import quote

from forestay.client.api.calls import Call, Json, document


def sites() -> Call[list[Json]]:
    """Every site whose agent ever said that it is there."""
    return Call("GET", "/v1/sites", lambda answer: list(document(answer)["sites"]))


def site(name: str) -> Call[Json]:
    """One site: its agent, what is asked of it, its pilots, its launches."""
    return Call("GET", f"/v1/sites/{quote(name, safe='')}", document)
