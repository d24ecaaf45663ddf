"""The flow engine on Temporal: runs are workflows, reached by signals, queries and updates."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BadBase64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import (
    Client,
    Interceptor,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import TypedSearchAttributes, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from forestay.adapters.temporal.run_history import read_history
from forestay.adapters.temporal.security import Security
from forestay.adapters.temporal.workflows import temporal_runtime
from forestay.domain.flows.commands import AnswerVerb
from forestay.domain.flows.definition.flow_format import PYTHON, format_of, run_type
from forestay.domain.flows.events import Event, Verb
from forestay.domain.flows.execution.messages import as_plain, from_plain
from forestay.domain.flows.execution.run_names import shard_of
from forestay.domain.flows.scatter.shard_run import SHARD_JOBS, ShardEvent
from forestay.domain.playbooks.playbook_run import Event as PlaybookEvent
from forestay.domain.playbooks.playbook_run import event_as_plain, run_name
from forestay.ports.errors import NotFound, Permanent, PortError, Transient
from forestay.ports.flows.flow_engine import HistoryPage, RunPage, RunQuery, RunStart, RunSummary

ANSWER = timedelta(seconds=10)
NAMED = 100
"""Runs that one search asks for by name."""
DROPPED_WAITS = (0.05, 0.2, 0.5, 1.0)
"""Seconds after each time that Temporal dropped a verb."""
MEANINGS: Mapping[RPCStatusCode, type[PortError]] = {
    RPCStatusCode.NOT_FOUND: NotFound,
    RPCStatusCode.INVALID_ARGUMENT: Permanent,
    RPCStatusCode.PERMISSION_DENIED: Permanent,
    RPCStatusCode.UNAUTHENTICATED: Permanent,
    RPCStatusCode.UNIMPLEMENTED: Permanent,
    RPCStatusCode.OUT_OF_RANGE: Permanent,
}
"""Permanent errors; everything else may succeed later."""
NOT_YET = "no mapping defined for search attribute"
MARK = 8
"""Bytes by which a cursor is known to be one of ours."""
_SEARCHABLE = re.compile(r"[\w.@:+/ -]{1,255}")


@dataclass(frozen=True, slots=True)
class Limits:
    """When a workflow continues as new, after how long a silence it polls for itself, how many jobs it creates at once."""

    history: int = temporal_runtime.HISTORY
    look: float = temporal_runtime.FIRST_LOOK
    batch: int = SHARD_JOBS
    """Jobs that a shard creates by one activity: each activity costs six events."""


class TemporalFlowEngine:
    """Implements the port `FlowEngine`."""

    def __init__(
        self,
        address: str,
        *,
        namespace: str,
        task_queue: str,
        limits: Limits | None = None,
        interceptors: Sequence[Interceptor] = (),
        security: Security | None = None,
    ) -> None:
        self.address = address
        self.namespace = namespace
        self.task_queue = task_queue
        self.limits = limits or Limits()
        self._interceptors = interceptors
        self.security = security or Security()
        self._client: Client | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        await self.client()

    async def client(self) -> Client:
        """The connection, made when it is first needed: Temporal may be down when a process starts."""
        async with self._opening:
            if self._client is None:
                tls, converter = self.security.tls(), self.security.converter()
                try:
                    client = await Client.connect(
                        self.address,
                        namespace=self.namespace,
                        tls=tls,
                        data_converter=converter,
                        interceptors=self._interceptors,
                    )
                    await _register(client)
                except (RuntimeError, RPCError) as error:
                    raise Transient(f"Temporal at {self.address} does not respond: {error}") from error
                self._client = client
            return self._client

    async def close(self) -> None:
        self._client = None

    async def start(self, start: RunStart) -> bool:
        worklets: dict[str, Any] = {
            "run": start.run,
            "tenant": start.tenant,
            "owner": start.owner,
            # As text: the order of tasks matters, and Temporal sorts the names in a record.
            "flow": json.dumps(start.flow),
            "params": dict(start.params),
            "limits": {"history": self.limits.history, "look": self.limits.look, "batch": self.limits.batch},
        }
        worklets |= {"checks": True, "streams": True, "library": True}
        if start.held:
            worklets["held"] = list(start.held)
        if start.worklet:
            worklets["worklet"] = dict(start.worklet)
        if start.parent:
            worklets |= {"parent": dict(start.parent), "above": list(start.above), "holders": list(start.holders)}
        attributes = temporal_runtime.attributes(
            temporal_runtime.TENANT.value_set(start.tenant),
            temporal_runtime.OWNER.value_set(start.owner),
            temporal_runtime.FLOW.value_set(start.name),
            temporal_runtime.VERSION.value_set(start.version),
            temporal_runtime.STATUS.value_set("running"),
        )
        memo: dict[str, Any] = {temporal_runtime.SCHEDULE: start.schedule} if start.schedule else {}
        if start.resumed:
            worklets["resumed"] = dict(start.resumed)
            memo = await self._resumed_memo(start.run)
        name = format_of(start.flow)
        kind = run_type(name) if name else temporal_runtime.RUN
        queue = python_queue(self.task_queue) if name == PYTHON else self.task_queue
        return await self._start(kind, start.run, worklets, attributes, queue, memo, again=bool(start.resumed))

    async def _resumed_memo(self, run: str) -> dict[str, Any]:
        client = await self.client()
        with translated():
            ended = await client.get_workflow_handle(run).describe(rpc_timeout=ANSWER)
            summary = await _summary(ended)
            memo: dict[str, Any] = {temporal_runtime.BEGUN: summary.started, temporal_runtime.RESUMED: ended.run_id}
            return memo | ({temporal_runtime.SCHEDULE: summary.schedule} if summary.schedule else {})

    async def start_playbook(self, incident: str, n: int, *, tenant: str, owner: str) -> bool:
        fields = {"incident": incident, "n": n, "tenant": tenant}
        fields |= {"limits": {"history": self.limits.history, "look": self.limits.look}}
        attributes = temporal_runtime.attributes(
            temporal_runtime.TENANT.value_set(tenant), temporal_runtime.OWNER.value_set(owner)
        )
        return await self._start(temporal_runtime.PLAYBOOK, run_name(incident, n), fields, attributes, self.task_queue)

    async def _start(
        self,
        workflow: str,
        name: str,
        fields: Mapping[str, Any],
        attributes: TypedSearchAttributes,
        queue: str,
        memo: Mapping[str, Any] | None = None,
        *,
        again: bool = False,
    ) -> bool:
        """Start a workflow; False if there is, or was, one of this name. ``again``: it continues one that has ended."""
        client = await self.client()
        with translated():
            try:
                await client.start_workflow(
                    workflow,
                    fields,
                    id=name,
                    task_queue=queue,
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE
                    if again
                    else WorkflowIDReusePolicy.REJECT_DUPLICATE,
                    memo=memo,
                    search_attributes=attributes,
                    rpc_timeout=ANSWER,
                )
            except WorkflowAlreadyStartedError:
                return False
        return True

    async def tell_playbook(self, incident: str, n: int, events: Sequence[PlaybookEvent]) -> None:
        await self._tell(run_name(incident, n), [event_as_plain(event) for event in events])

    async def tell_run(self, run: str, events: Sequence[Event]) -> None:
        await self._tell(run, [as_plain(event) for event in events])

    async def tell_shard(self, run: str, work: str, shard: int, events: Sequence[ShardEvent]) -> None:
        await self._tell(shard_of(run, work, shard), [as_plain(event) for event in events])

    async def send_message(self, run: str, incoming: Mapping[str, Any]) -> None:
        client = await self.client()
        with translated():
            await client.get_workflow_handle(run).signal(temporal_runtime.MESSAGE, dict(incoming), rpc_timeout=ANSWER)

    async def _tell(self, target: str, messages: list[dict[str, Any]]) -> None:
        client = await self.client()
        with translated():
            await client.get_workflow_handle(target).signal(temporal_runtime.MESSAGES, messages, rpc_timeout=ANSWER)

    async def send_verb(self, run: str, verb: Verb) -> AnswerVerb:
        client = await self.client()
        with translated():
            try:
                plain = await self._update(client, run, verb)
            except WorkflowUpdateFailedError as error:
                raise NotFound(f"the run ended before it accepted the command: {error.cause}") from error
            except WorkflowUpdateRPCTimeoutOrCancelledError as error:
                raise Transient("the run did not respond in time; send the same command again") from error
        answer = from_plain(plain)
        assert isinstance(answer, AnswerVerb)  # noqa: S101 - the workflow answers nothing else
        return answer

    async def _update(self, client: Client, run: str, verb: Verb) -> dict[str, Any]:
        """Send a verb, and again when Temporal dropped it.

        A signal that arrives while a run completes makes Temporal fail that workflow task, and it drops the updates that the task
        carried. The next try is taken by the run, or finds that it has ended. The update's id is the verb's, so Temporal itself
        answers a repeat of one that was taken.
        """
        handle = client.get_workflow_handle(run)
        for wait in DROPPED_WAITS:
            try:
                answer: dict[str, Any] = await handle.execute_update(
                    temporal_runtime.VERB, as_plain(verb), id=verb.id, rpc_timeout=ANSWER, result_type=dict
                )
            except RPCError as error:
                if error.status is not RPCStatusCode.FAILED_PRECONDITION:
                    raise
                await asyncio.sleep(wait)
            else:
                return answer
        raise Transient("the run did not accept the command; send the same command again")

    async def describe(self, run: str) -> RunSummary:
        client = await self.client()
        with translated():
            description = await client.get_workflow_handle(run).describe(rpc_timeout=ANSWER)
        if description.workflow_type not in temporal_runtime.RUNS:
            raise NotFound(f"{run} is not a run")
        return await _summary(description)

    async def state(self, run: str) -> Mapping[str, Any]:
        client = await self.client()
        with translated():
            state: Mapping[str, Any] = await client.get_workflow_handle(run).query(
                temporal_runtime.STATE, rpc_timeout=ANSWER, result_type=dict
            )
        return state

    async def find(self, query: RunQuery, *, limit: int = 100, cursor: str | None = None) -> RunPage:
        client = await self.client()
        with translated():
            pages = client.list_workflows(
                _query(query), page_size=limit, next_page_token=run_token(cursor), limit=limit
            )
            await pages.fetch_next_page()
            found = await _newest(client, pages.current_page or ())
            summaries = [await _summary(execution) for execution in found]
        more = pages.next_page_token
        return RunPage(summaries, run_cursor(more) if more else None)

    async def moved(self, since: int) -> Sequence[RunSummary]:
        """Runs of all tenants that began or ended at this time or later."""
        client = await self.client()
        at = datetime.fromtimestamp(since / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        query = f"{_query(RunQuery(''))} AND (StartTime >= '{at}' OR CloseTime >= '{at}')"
        with translated():
            return [await _summary(workflow) async for workflow in client.list_workflows(query)]

    async def count(self, query: RunQuery) -> int:
        client = await self.client()
        with translated():
            return (await client.count_workflows(_query(query), rpc_timeout=ANSWER)).count

    async def history(self, run: str, *, limit: int = 100, cursor: str | None = None) -> HistoryPage:
        client = await self.client()
        with translated():
            return await read_history(client, run, limit=limit, cursor=cursor)


def python_queue(task_queue: str) -> str:
    """The queue for runs of Python flows: only orchestrators that their operator trusts with such code poll it."""
    return f"{task_queue}-python"


async def _newest(client: Client, found: Sequence[WorkflowExecution]) -> list[WorkflowExecution]:
    """The executions without earlier ones of resumed runs: each run is listed once."""
    ended = sorted({execution.id for execution in found if execution.close_time is not None})
    last: dict[str, str] = {}
    for start in range(0, len(ended), NAMED):
        names = ", ".join(f"'{name}'" for name in ended[start : start + NAMED])
        query = f"WorkflowId IN ({names}) AND ExecutionStatus != 'ContinuedAsNew'"
        async for execution in client.list_workflows(query):  # the newest first
            last.setdefault(execution.id, execution.run_id)
    return [execution for execution in found if last.get(execution.id, execution.run_id) == execution.run_id]


async def _register(client: Client) -> None:
    """Create the search attributes of runs; existing ones are kept."""
    request = AddSearchAttributesRequest(
        namespace=client.namespace,
        search_attributes={
            attribute.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD for attribute in temporal_runtime.ATTRIBUTES
        },
    )
    try:
        await client.operator_service.add_search_attributes(request, timeout=ANSWER)
    except RPCError as error:
        if error.status is not RPCStatusCode.ALREADY_EXISTS:
            raise


@contextmanager
def translated() -> Iterator[None]:
    """Translate Temporal's errors to port errors."""
    try:
        yield
    except RPCError as error:
        # On a real database a new namespace learns of its search attributes up to a minute after they were made.
        soon = NOT_YET in error.message
        kind = Transient if soon else MEANINGS.get(error.status, Transient)
        raise kind(f"Temporal: {error.message}") from error


def _query(query: RunQuery) -> str:
    wanted = {
        temporal_runtime.TENANT: query.tenant,
        temporal_runtime.FLOW: query.name,
        temporal_runtime.VERSION: query.version,
        temporal_runtime.STATUS: query.state,
        temporal_runtime.OWNER: query.owner,
    }
    # A run that continued as new is the new run.
    parts = [
        f"WorkflowType IN ({', '.join(repr(run) for run in temporal_runtime.RUNS)})",
        "ExecutionStatus != 'ContinuedAsNew'",
    ]
    if query.open:
        parts.append("ExecutionStatus = 'Running'")
    for key, value in wanted.items():
        if value:
            values = value.split(",") if key is temporal_runtime.STATUS else [value]
            parts.append(f"{key.name} IN ({', '.join(repr(searched(state)) for state in values)})")
    return " AND ".join(parts)


def searched(value: str) -> str:
    """A value that is allowed in a search; `Permanent` for any other."""
    if _SEARCHABLE.fullmatch(value) is None:
        raise Permanent(f"runs cannot be searched by {value[:40]!r}")
    return value


def run_cursor(token: bytes) -> str:
    """Temporal's own token, marked: for a foreign token Temporal reports an error as if a retry could help."""
    return urlsafe_b64encode(sha256(token).digest()[:MARK] + token).decode()


def run_token(cursor: str | None) -> bytes | None:
    """What `run_cursor` was made of; `Permanent` for anything else."""
    if cursor is None:
        return None
    try:
        marked = urlsafe_b64decode(cursor.encode("ascii"))
    except (ValueError, BadBase64) as error:
        raise Permanent("invalid cursor") from error
    if sha256(marked[MARK:]).digest()[:MARK] != marked[:MARK]:
        raise Permanent("invalid cursor")
    return marked[MARK:]


_CUT = {WorkflowExecutionStatus.TERMINATED: "terminated", WorkflowExecutionStatus.TIMED_OUT: "terminated"}


async def _summary(execution: WorkflowExecution) -> RunSummary:
    known = execution.typed_search_attributes
    state = known.get(temporal_runtime.STATUS) or "running"
    if execution.status in _CUT:
        state = _CUT[execution.status]
    elif execution.status is WorkflowExecutionStatus.FAILED:
        state = "broken"
    return RunSummary(
        run=execution.id,
        tenant=known.get(temporal_runtime.TENANT) or "",
        owner=known.get(temporal_runtime.OWNER) or "",
        name=known.get(temporal_runtime.FLOW) or "",
        version=known.get(temporal_runtime.VERSION) or "",
        state=state,
        started=await execution.memo_value(temporal_runtime.BEGUN, _millis(execution.start_time) or 0, type_hint=int),
        ended=_millis(execution.close_time),
        above=execution.parent_id or "",
        schedule=await execution.memo_value(temporal_runtime.SCHEDULE, "", type_hint=str),
    )


def _millis(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1000)
