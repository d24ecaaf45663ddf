"""Tells Forestay what becomes of Airflow's own tasks, so that their failures are classified and learnt from like all others.

Off until `[forestay] listener_conn_id` names a connection. It only observes: Airflow has already decided, so that nothing waits and no order is carried out. It takes
at most `BOUND` seconds, and never raises.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from typing import Any

import httpx
from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin
from airflow.sdk import BaseHook, conf

from airflow_provider_forestay.server import Place

log = logging.getLogger(__name__)
BOUND = 2.0
"""Seconds for which a task may be delayed if Forestay is slow or unreachable."""
TAIL = 16_000
OWN = "ForestaySubmitOperator"
"""The operator whose failures Forestay already knows."""
KINDS = {"running": "task-started", "success": "task-completed", "failed": "task-aborted"}
_places: dict[str, Place | None] = {}


def _place() -> Place | None:
    """The server, looked up once per process: later the connection may no longer be available."""
    name = conf.get("forestay", "listener_conn_id", fallback="")
    if name not in _places:
        _places[name] = Place.of(BaseHook.get_connection(name)) if name else None
    return _places[name]


def event_of(what: str, ti: Any, error: object = None) -> dict[str, Any]:
    """A task's change as an event of interface X: the run is the run, the task is the task."""
    task = ti.task_id if ti.map_index in (None, -1) else f"{ti.task_id}:{ti.map_index}"
    event: dict[str, Any] = {
        "id": f"{ti.id!s}-{ti.try_number}-{what}",
        "run": f"{ti.dag_id}/{ti.run_id}"[:200],
        "flow": ti.dag_id[:200],
        "task": task[:200],
        "kind": KINDS[what],
        "attempt": int(ti.try_number),
        "at": int(time.time() * 1000),
        "labels": {"operator": type(getattr(ti, "task", None)).__name__},
        "otherwise": "go-on",
    }
    if what == "failed":
        event["evidence"] = {"log_tail": _tail(error), "engine": "airflow"}
    return event


def _tail(error: object) -> str:
    if isinstance(error, BaseException):
        return "".join(traceback.format_exception(error))[-TAIL:]
    return str(error or "")[-TAIL:]


def _send(place: Place, event: dict[str, Any]) -> None:
    try:
        with httpx.Client(base_url=place.url, headers=place.headers, timeout=httpx.Timeout(BOUND)) as client:
            answer = client.post("/v1/engines/airflow/events", json={"events": [event]})
            if not answer.is_success:
                log.warning("Forestay did not take the event: %s", answer.status_code)
                return
            answer_data = answer.json()["answers"][0]
            if answer_data["answer"] == "wait":
                _refuse(client, answer_data)
    except Exception as error:
        log.warning("Forestay was not told: %s", type(error).__name__)


def _refuse(client: httpx.Client, fields: dict[str, Any]) -> None:
    """Refuse a rule's orders, which an observer can no longer carry out, so that a person is asked and nothing waits for ever."""
    asked = {"run": fields["run"], "incident": fields["incident"], "wait": "1"}
    orders = client.get("/v1/engines/airflow/orders", params=asked).json()["orders"]
    for order in orders:
        words = {"outcome": "refused", "detail": "the task has ended in Airflow; clear it there to run it again"}
        client.post(f"/v1/engines/airflow/orders/{order['id']}", json=words)


def tell(what: str, ti: Any, error: object = None) -> None:
    """Report a change, within the time limit and without raising errors."""
    try:
        if type(getattr(ti, "task", None)).__name__ == OWN:
            return
        place = _place()
        if place is None:
            return
        sender = threading.Thread(target=_send, args=(place, event_of(what, ti, error)), daemon=True)
        sender.start()
        if what != "running":  # the process ends soon after, and the thread with it
            sender.join(BOUND)
    except Exception as failure:
        log.warning("Forestay was not told: %s", type(failure).__name__)


class Listener:
    """The hooks that Airflow calls, in the process of the task."""

    @hookimpl
    def on_task_instance_running(self, previous_state: Any, task_instance: Any) -> None:
        tell("running", task_instance)

    @hookimpl
    def on_task_instance_success(self, previous_state: Any, task_instance: Any) -> None:
        tell("success", task_instance)

    @hookimpl
    def on_task_instance_failed(self, previous_state: Any, task_instance: Any, error: Any) -> None:
        tell("failed", task_instance, error)


class ForestayPlugin(AirflowPlugin):
    """How Airflow finds the listener."""

    name = "forestay"
    listeners = [Listener()]  # noqa: RUF012 - as Airflow reads it
