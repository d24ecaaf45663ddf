"""The calls for flows and the runs that run them, as values; see `calls`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

import httpx
import orjson

from forestay.client.api.answers import HistoryList, RunList, StoryPage
from forestay.client.api.calls import Call, Filters, Json, document, new_key, query_of

if TYPE_CHECKING:
    from forestay.client.api.schemas import RunDetails, RunJson, StartedRunJson, StoredFlow


def _place(run: str, what: str = "") -> str:
    return f"/v1/runs/{quote(run, safe='')}{what}"


def store_flow(text: str) -> Call[StoredFlow]:
    """A flow in YAML or JSON; stored once however often it is sent, since its version is the hash of its content."""
    return Call(
        "POST", "/v1/flows", lambda answer: cast("StoredFlow", document(answer)), body=orjson.dumps({"text": text})
    )


def flow(version: str) -> Call[Json]:
    """A stored flow: its name, its text, who holds all its runs."""
    return Call("GET", f"/v1/flows/{quote(version, safe='')}", document)


def start_run(
    flow_version: str, params: Mapping[str, object] | None = None, *, key: str | None = None
) -> Call[StartedRunJson]:
    """Always sent with a key, so that a repeat is harmless."""
    body = {"flow": flow_version, "params": dict(params or {})}
    return Call(
        "POST", "/v1/runs", lambda answer: cast("StartedRunJson", document(answer)),
        body=orjson.dumps(body), headers={"Idempotency-Key": key or new_key()},
    )  # fmt: skip


def run(name: str) -> Call[RunDetails]:
    return Call("GET", _place(name), lambda answer: cast("RunDetails", document(answer)))


def find_runs(filters: Filters | None = None, *, limit: int | None = None, cursor: str | None = None) -> Call[RunList]:
    query = query_of(filters or {})
    query += [(name, str(value)) for name, value in (("limit", limit), ("cursor", cursor)) if value is not None]

    def read(answer: httpx.Response) -> RunList:
        whole = document(answer)
        return RunList(cast("list[RunJson]", whole.get("runs", [])), whole.get("cursor"))

    return Call("GET", "/v1/runs", read, query)


def history(name: str, *, limit: int | None = None, cursor: str | None = None) -> Call[HistoryList]:
    """What happened to a run, the oldest first."""
    query = [(key, str(value)) for key, value in (("limit", limit), ("cursor", cursor)) if value is not None]

    def read(answer: httpx.Response) -> HistoryList:
        whole = document(answer)
        return HistoryList(whole.get("history", []), whole.get("cursor"))

    return Call("GET", _place(name, "/history"), read, query)


def triggers(name: str, *, task: str = "") -> Call[list[Json]]:
    """What can be raised for a run, or for one of its tasks."""
    query = [("task", task)] if task else []
    return Call("GET", _place(name, "/triggers"), lambda answer: list(document(answer)["triggers"]), query)


def raise_exception(
    name: str, *, trigger: str = "", new: str = "", task: str = "", reason: str = "", key: str | None = None
) -> Call[Json]:
    """Raise an exception for a run: one that is offered, or a new one; its key makes the repeat safe."""
    body = {"trigger": trigger, "new": new, "task": task, "reason": reason, "id": key or new_key()}
    return Call("POST", _place(name, "/triggers"), document, body=orjson.dumps(body))


def story(name: str, *, limit: int | None = None, cursor: str | None = None) -> Call[StoryPage]:
    """Everything that is known of a run, of any engine, the oldest first."""
    query = [(key, str(value)) for key, value in (("limit", limit), ("cursor", cursor)) if value is not None]

    def read(answer: httpx.Response) -> StoryPage:
        whole = document(answer)
        return StoryPage(whole.get("story", []), whole.get("cursor"))

    return Call("GET", _place(name, "/story"), read, query)


def resume(
    name: str, *, task: str = "", params: Mapping[str, object] | None = None, reason: str = "", dry_run: bool = False
) -> Call[Json]:
    """Let a run that has ended go on, or say what it would do again."""
    body = {"task": task, "params": dict(params or {}), "reason": reason, "dry_run": dry_run}
    return Call("POST", _place(name, "/resume"), document, body=orjson.dumps(body))


def verb(name: str, kind: str, *, task: str = "", key: str | None = None, **more: object) -> Call[Json]:
    """Steer a run or one of its tasks; its key makes the repeat safe."""
    body = {"verb": kind, "task": task, "id": key or new_key(), **more}
    return Call("POST", _place(name, "/verbs"), document, body=orjson.dumps(body))
