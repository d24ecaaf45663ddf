"""What both workflows need from Temporal: activities, signals to other workflows, the limit on history length."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import ActivityError, ApplicationError, FailureError

from forestay.domain.flows.definition.flow_format import PACKAGES, run_type

Plain = dict[str, Any]

MESSAGES = "messages"
"""The one signal: a list of messages in their plain form."""
VERB = "verb"
STATE = "state"
RUN = "run"
SHARD = "shard"
PYTHON_RUN = "python-run"
MESSAGE = "message"
"""The signal with a message for a flow that waits for messages."""
PLAYBOOK = "playbook"
SCHEDULED_RUN = "scheduled-run"
RUNS = (RUN, PYTHON_RUN, *map(run_type, PACKAGES))

ASKING = "asking"
"""The searchable state of a run that waits for a person's answer."""

HISTORY = 4000
"""Events after which a run continues as new; far below the 8,000 that we allow and the 51,200 that Temporal does."""
FIRST_LOOK = 600
"""Seconds without messages after which a run or shard polls its jobs itself; doubled each time."""
LAST_LOOK = 6 * 3600
SILENT = timedelta(seconds=20)
"""The time without a heartbeat after which an activity is given to another orchestrator: its own was killed."""

REFUSED = "Refused"
"""The type of an activity's error that no retry can fix."""

TENANT = SearchAttributeKey.for_keyword("ForestayTenant")
OWNER = SearchAttributeKey.for_keyword("ForestayOwner")
FLOW = SearchAttributeKey.for_keyword("ForestayFlow")
VERSION = SearchAttributeKey.for_keyword("ForestayVersion")
STATUS = SearchAttributeKey.for_keyword("ForestayState")
ATTRIBUTES = (TENANT, OWNER, FLOW, VERSION, STATUS)
BEGUN = "ForestayBegun"
"""In the memo of a run that was continued as new: when the run began, in milliseconds since 1970."""
SCHEDULE = "ForestaySchedule"
"""In the memo of a run that a schedule started: its name."""
RESUMED = "ForestayResumed"
"""In the memo of the Temporal run that resumes an ended run: the Temporal run with which it had ended."""

_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=30),
    non_retryable_error_types=[REFUSED],
)


class ActivityRefused(Exception):
    """The activity's request is impossible, now and later."""


class HeldBack(Exception):
    """Nothing of a round was begun: its incident is being handled."""

    def __init__(self, incident: str) -> None:
        super().__init__(incident)
        self.incident = incident


async def do(activity: str, payload: Plain, *, seconds: int = 120) -> Any:
    """Run an activity, retried until it succeeds or is refused."""
    return await _done(activity, payload, start_to_close_timeout=timedelta(seconds=seconds))


async def ask(activity: str, payload: Plain) -> Any:
    """Run a local activity that answers from memory: in this orchestrator, at the cost of one event and no round trip to the server."""
    return await workflow.execute_local_activity(
        activity, payload, start_to_close_timeout=timedelta(seconds=10), retry_policy=_RETRY
    )


async def wait_for(activity: str, payload: Plain) -> Any:
    """Run an activity that waits for something. These have a queue of their own, so that working activities need not wait behind waiting ones."""
    return await _done(
        activity,
        payload,
        task_queue=waiting_queue(workflow.info().task_queue),
        start_to_close_timeout=timedelta(hours=1),
    )


def waiting_queue(task_queue: str) -> str:
    return f"{task_queue}-waiting"


async def _done(activity: str, payload: Plain, **how: Any) -> Any:
    try:
        return await workflow.execute_activity(activity, payload, heartbeat_timeout=SILENT, retry_policy=_RETRY, **how)
    except ActivityError as error:
        if isinstance(error.cause, ApplicationError) and error.cause.type == REFUSED:
            raise ActivityRefused(error.cause.message) from error
        raise


async def tell(target: str, *messages: Plain) -> None:
    """Signal another workflow; one that has ended does not need it."""
    try:
        await workflow.get_external_workflow_handle(target).signal(MESSAGES, list(messages))
    except FailureError:
        workflow.logger.info("no recipient for: %s", target)


def now() -> int:
    """Milliseconds since 1970, the same in every replay."""
    return int(workflow.time() * 1000)


def begun() -> dict[str, Any]:
    """The memo of the next run when continuing as new: when the first of its runs began, and its schedule."""
    at = workflow.info().workflow_start_time
    schedule = workflow.memo_value(SCHEDULE, "", type_hint=str)
    memo: dict[str, Any] = {BEGUN: workflow.memo_value(BEGUN, round(at.timestamp() * 1000), type_hint=int)}
    return memo | ({SCHEDULE: schedule} if schedule else {})


def too_long(limit: int) -> bool:
    """Whether the history is long enough to continue as new."""
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.get_current_history_length() >= limit


def attributes(*pairs: Any) -> TypedSearchAttributes:
    """Search attributes of a workflow that is started."""
    return TypedSearchAttributes([SearchAttributePair(pair.key, pair.value) for pair in pairs])


class WorkflowTasks:
    """Tasks of a workflow beside its loop. An error in one is a bug: it is raised in the loop, so that Temporal holds the workflow until it is fixed."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._over)
        return task

    def check(self) -> None:
        if self.error is not None:
            raise RuntimeError("a part of the workflow failed") from self.error

    def _over(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.error = task.exception()

    def stop(self) -> None:
        for task in self._running:
            task.cancel()
