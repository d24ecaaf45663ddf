"""The calls of interface X, as values; see `calls`. For authors of an engine's side of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast
from urllib.parse import quote

import httpx
import orjson

from forestay.client.api.calls import Call, Json, document

if TYPE_CHECKING:
    from forestay.client.api.schemas import EventAnswerJson, NewEvent, OrderJson, ToldIncident


class Orders(NamedTuple):
    """Waiting commands, and the states of the requested incidents."""

    orders: list[OrderJson]
    incidents: dict[str, ToldIncident]


def report(engine: str, events: Sequence[NewEvent]) -> Call[list[EventAnswerJson]]:
    """Report events; the same ones again are harmless."""

    def read(answer: httpx.Response) -> list[EventAnswerJson]:
        return cast("list[EventAnswerJson]", document(answer)["answers"])

    return Call("POST", _place(engine, "/events"), read, body=orjson.dumps({"events": events}, default=str))


def orders(
    engine: str, *, after: int = 0, run: str = "", incidents: Sequence[str] = (), wait: float = 0
) -> Call[Orders]:
    """Request orders; with `wait` the server answers as soon as there is news."""
    query = [("after", str(after)), ("wait", f"{wait:g}")] + ([("run", run)] if run else [])
    query += [("incident", incident) for incident in incidents]

    def read(answer: httpx.Response) -> Orders:
        whole = document(answer)
        return Orders(whole["orders"], whole["incidents"])

    return Call("GET", _place(engine, "/orders"), read, query)


def answer_order(engine: str, order: str, outcome: str, detail: str = "") -> Call[Json]:
    """Report the outcome of an order: `done` or `refused`."""
    body = orjson.dumps({"outcome": outcome, "detail": detail[:500]})
    return Call("POST", _place(engine, f"/orders/{quote(order, safe='')}"), document, body=body)


def _place(engine: str, what: str) -> str:
    return f"/v1/engines/{quote(engine, safe='')}{what}"
