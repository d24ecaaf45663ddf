"""The calls for flows, runs and the compensation library, as values; see `calls`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast
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


def dry_run(
    flow: str | None = None, *, text: str | None = None, params: Mapping[str, object] | None = None
) -> Call[Json]:
    """What a run of a stored flow, or of one in a text, would do; nothing is stored or started."""
    body = {"flow": flow, "text": text, "params": dict(params or {})}
    return Call("POST", "/v1/runs/dry-run", document, body=orjson.dumps(body))


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
    """Resume a run that has ended, or report what it would run again."""
    body = {"task": task, "params": dict(params or {}), "reason": reason, "dry_run": dry_run}
    return Call("POST", _place(name, "/resume"), document, body=orjson.dumps(body))


def verb(name: str, kind: str, *, task: str = "", key: str | None = None, **more: object) -> Call[Json]:
    """Steer a run or one of its tasks; its key makes the repeat safe."""
    body = {"verb": kind, "task": task, "id": key or new_key(), **more}
    return Call("POST", _place(name, "/verbs"), document, body=orjson.dumps(body))


def questions(*, state: str = "waiting") -> Call[list[Json]]:
    """The questions that wait for an answer, or those that were closed lately."""
    return Call("GET", "/v1/questions", lambda answer: list(document(answer)["questions"]), [("state", state)])


def question(name: str) -> Call[Json]:
    return Call("GET", f"/v1/questions/{quote(name, safe='')}", document)


def answer_question(name: str, answer: Mapping[str, Any]) -> Call[Json]:
    """Answer a question; the same answer again changes nothing."""
    body = orjson.dumps({"answer": dict(answer)})
    return Call("POST", f"/v1/questions/{quote(name, safe='')}", document, body=body)


def _schedule_place(name: str, what: str = "") -> str:
    return f"/v1/schedules/{quote(name, safe='')}{what}"


def schedules() -> Call[list[Json]]:
    """All schedules, by name."""
    return Call("GET", "/v1/schedules", lambda answer: list(document(answer)["schedules"]))


def schedule(name: str) -> Call[Json]:
    return Call("GET", _schedule_place(name), document)


def put_schedule(name: str, body: Mapping[str, Any]) -> Call[Json]:
    """Create or replace a schedule; the same again changes nothing."""
    return Call("PUT", _schedule_place(name), document, body=orjson.dumps(dict(body)))


def steer_schedule(name: str, act: str, *, reason: str = "") -> Call[Json]:
    """``pause``, ``resume`` or ``run``."""
    return Call("POST", _schedule_place(name, f"/{act}"), document, body=orjson.dumps({"reason": reason}))


def delete_schedule(name: str) -> Call[Json]:
    return Call("DELETE", _schedule_place(name), document)


def send_event(event: str, *, key: str = "", data: Mapping[str, Any] | None = None, id_: str = "") -> Call[Json]:
    """Send an event to the runs that wait for it, or to the first that will; always with an id, so that a repeat is harmless."""
    body = {"event": event, "key": key, "data": dict(data or {}), "id": id_ or new_key()}
    return Call("POST", "/v1/external-events", document, body=orjson.dumps(body))


def _library_place(action: str) -> str:
    return f"/v1/compensations/{quote(action, safe='')}"


def compensations() -> Call[list[Json]]:
    return Call("GET", "/v1/compensations", lambda answer: list(document(answer)["compensations"]))


def compensation(action: str, version: str | None = None) -> Call[Json]:
    return Call("GET", _library_place(action), document, [("version", version)] if version else [])


def put_compensation(action: str, text: str) -> Call[Json]:
    """Register a compensation in YAML or JSON for its action; the same content again changes nothing."""
    return Call("PUT", _library_place(action), document, body=orjson.dumps({"text": text}))


def compensation_stack(run: str) -> Call[list[Json]]:
    """The compensation stack of a run, the one that is run first at its head."""
    return Call("GET", _place(run, "/compensations"), lambda answer: list(document(answer)["compensations"]))


def rebind_compensation(run: str, number: int, *, key: str, version: str | None = None, reason: str = "") -> Call[Json]:
    """Give a compensation on the stack of a run another version; a repeat with the same key is harmless."""
    place = _place(run, f"/compensations/{number}/rebind")
    return Call("POST", place, document, body=orjson.dumps({"version": version, "id": key, "reason": reason}))
