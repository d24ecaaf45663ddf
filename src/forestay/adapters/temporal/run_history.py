"""The history of a run, read from the histories of its workflows.

A cursor names a run and one of its events. It is never Temporal's own: that names what it reads, and comes back from untrusted callers.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from forestay.adapters.temporal.codec import SealedPayloads
from forestay.adapters.temporal.workflows import temporal_runtime
from forestay.ports.errors import Permanent
from forestay.ports.flows.flow_engine import HistoryPage, RunHistoryEvent

ANSWER = timedelta(seconds=10)
PAGE = 1000
RUNS = 5
"""The most Temporal runs that one call reads; each has some thousand events."""
RESUMPTIONS = 100
"""The most resumptions of one run that are read for its history."""
_USUAL = frozenset(
    {
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE,
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND,
    }
)
"""Harmless failures: Temporal retries on its own and nothing is wrong."""


async def read_history(client: Client, flow_run: str, *, limit: int, cursor: str | None) -> HistoryPage:
    """A page of the history, oldest first."""
    run, after = _cursor(cursor) if cursor is not None else (await _first_run(client, flow_run), 0)
    found_events: list[RunHistoryEvent] = []
    codec = client.data_converter.payload_codec
    for _ in range(RUNS):
        following = ""
        events = client.get_workflow_handle(flow_run, run_id=run or None).fetch_history_events(page_size=PAGE)
        async for event in events:
            following = event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
            if event.event_id <= after:
                continue
            if isinstance(codec, SealedPayloads):
                codec.open_all(event)
            found_events += happenings(event)
            if len(found_events) >= limit:
                return HistoryPage(found_events, _as_cursor(run, event.event_id))
        if not following:
            following = await _resumed_from(client, flow_run, run)
        if not following:
            return HistoryPage(found_events, None)
        run, after = following, 0
    return HistoryPage(found_events, _as_cursor(run, 0))


async def _first_run(client: Client, flow_run: str) -> str:
    """The Temporal run with which it began, or the oldest that is still kept."""
    parts = [first async for first, _ in _parts(client, flow_run)]
    return parts[-1] if parts else ""


async def _resumed_from(client: Client, flow_run: str, ended: str) -> str:
    """The Temporal run with which a run went on after it had ended with this one; empty: it did not."""
    if ended:
        async for first, before in _parts(client, flow_run):
            if before == ended:
                return first
    return ""


async def _parts(client: Client, flow_run: str) -> AsyncIterator[tuple[str, str]]:
    """The Temporal run with which a run began, and with which it went on each time it was resumed, the newest first; each with the one that had ended before."""
    before = ""
    for _ in range(RESUMPTIONS):
        first = ""
        async for event in client.get_workflow_handle(flow_run, run_id=before or None).fetch_history_events(
            page_size=1
        ):
            first = event.workflow_execution_started_event_attributes.first_execution_run_id
            break
        try:
            described = await client.get_workflow_handle(flow_run, run_id=first).describe(rpc_timeout=ANSWER)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return
        before = await described.memo_value(temporal_runtime.RESUMED, "", type_hint=str)
        yield first, before
        if not before:
            return


def _as_cursor(run: str, event: int) -> str:
    return urlsafe_b64encode(json.dumps([run, event]).encode()).decode()


def _cursor(text: str) -> tuple[str, int]:
    try:
        run, event = json.loads(urlsafe_b64decode(text.encode("ascii")))
    except (ValueError, TypeError) as error:
        raise Permanent("invalid cursor") from error
    if not isinstance(run, str) or not isinstance(event, int) or len(run) > 64:
        raise Permanent("invalid cursor")
    return run, event


def happenings(event: HistoryEvent) -> Iterator[RunHistoryEvent]:
    """The meaning of an event for the run, if any."""
    at = event.event_time.ToMilliseconds()
    match event.WhichOneof("attributes"):
        case "workflow_execution_started_event_attributes":
            started = event.workflow_execution_started_event_attributes
            if not started.continued_execution_run_id:
                data = _first(started.input.payloads)
                facts = {name: data.get(name) for name in ("owner", "params", "parent")}
                yield RunHistoryEvent(
                    at, "started", facts | {"undo": "undo" in data, "resumed": data.get("resumed", {}).get("task")}
                )
        case "activity_task_scheduled_event_attributes":
            activity = event.activity_task_scheduled_event_attributes
            yield RunHistoryEvent(at, activity.activity_type.name, _first(activity.input.payloads))
        case "activity_task_failed_event_attributes":
            yield RunHistoryEvent(
                at, "refused", {"reason": event.activity_task_failed_event_attributes.failure.message}
            )
        case "start_child_workflow_execution_initiated_event_attributes":
            child = event.start_child_workflow_execution_initiated_event_attributes
            data = _first(child.input.payloads)
            facts = {"id": child.workflow_id, "order": data.get("order") or {}, "start": data.get("start") or {}}
            facts |= {"parent": data.get("parent") or {}, "shard": data.get("shard")}
            yield RunHistoryEvent(at, f"start-{child.workflow_type.name}", facts)
        case "workflow_execution_signaled_event_attributes":
            for message in _messages(event.workflow_execution_signaled_event_attributes.input.payloads):
                yield RunHistoryEvent(at, str(message.get("type")), message)
        case "workflow_execution_update_accepted_event_attributes":
            request = event.workflow_execution_update_accepted_event_attributes.accepted_request
            yield RunHistoryEvent(at, "Verb", _first(request.input.args.payloads))
        case "upsert_workflow_search_attributes_event_attributes":
            fields = event.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields
            if temporal_runtime.STATUS.name in fields:
                yield RunHistoryEvent(at, "state", {"state": _decoded(fields[temporal_runtime.STATUS.name])})
        case "workflow_task_failed_event_attributes":
            failed = event.workflow_task_failed_event_attributes
            if failed.cause not in _USUAL:
                yield RunHistoryEvent(at, "trouble", {"reason": failed.failure.message})
        case "workflow_execution_completed_event_attributes":
            yield RunHistoryEvent(
                at, "ended", _first(event.workflow_execution_completed_event_attributes.result.payloads)
            )
        case "workflow_execution_failed_event_attributes":
            failure = event.workflow_execution_failed_event_attributes.failure
            yield RunHistoryEvent(at, "ended", {"outcome": "broken", "reason": failure.message})
        case "workflow_execution_terminated_event_attributes":
            reason = event.workflow_execution_terminated_event_attributes.reason
            yield RunHistoryEvent(at, "ended", {"outcome": "terminated", "reason": reason})
        case "workflow_execution_timed_out_event_attributes":
            yield RunHistoryEvent(at, "ended", {"outcome": "terminated", "reason": "it took too long"})
        case _:
            return


def _first(payloads: Sequence[Payload]) -> dict[str, Any]:
    value = _decoded(payloads[0]) if payloads else None
    return value if isinstance(value, dict) else {}


def _messages(payloads: Sequence[Payload]) -> list[dict[str, Any]]:
    value = _decoded(payloads[0]) if payloads else None
    return [message for message in value if isinstance(message, dict)] if isinstance(value, list) else []


def _decoded(payload: Payload) -> Any:
    try:
        return json.loads(payload.data)
    except ValueError:
        return None
