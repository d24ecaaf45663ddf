"""The four ways to submit a job (paper P0, section 3A), each as its submitter sees the outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import cast
from uuid import uuid4

from tests.system.matrix.site import PATIENCE, CallbackDesk, until

from forestay.client import ForestayClient, JobFailedError, fire, run
from forestay.client.api.answers import FINAL
from forestay.client.api.schemas import NewJob, SpecificationJson


class Submission(StrEnum):
    """The submission pattern."""

    SYNCHRONOUS = "synchronous"
    POLLING = "polling"
    NOTIFICATION = "notification"
    FIRE_AND_FORGET = "fire and forget"


@dataclass(frozen=True)
class Seen:
    """What the submitter saw."""

    state: str
    wall: float
    """Seconds from the call to the outcome."""


Submit = Callable[[ForestayClient, ForestayClient, CallbackDesk, SpecificationJson, NewJob], str]
"""Given are the submitter's client, an operator's, where notifications go, and the job; the answer is the state that was seen."""


def _synchronous(
    client: ForestayClient, _operator: ForestayClient, _desk: CallbackDesk, spec: SpecificationJson, job: NewJob
) -> str:
    try:
        return run(client, spec, job, timeout=PATIENCE)["state"]
    except JobFailedError as failure:
        return failure.state


def _polling(
    client: ForestayClient, _operator: ForestayClient, _desk: CallbackDesk, spec: SpecificationJson, job: NewJob
) -> str:
    (accepted,) = client.submit([job], spec)
    give_up = time.monotonic() + PATIENCE
    while (state := client.job(accepted["id"])["state"]) not in FINAL:
        assert time.monotonic() < give_up, f"the job is {state} still"
        time.sleep(0.02)
    return state


def _notification(
    client: ForestayClient, _operator: ForestayClient, desk: CallbackDesk, spec: SpecificationJson, job: NewJob
) -> str:
    path = f"/{uuid4().hex}"
    desk.refusals[path] = desk.refusals.pop("next", 0)
    (accepted,) = client.submit([cast(NewJob, {**job, "callback": desk.url(path)})], spec)
    until(lambda: desk.seen.get(path), "the notification")
    (fields,) = desk.seen[path]
    assert fields["job"] == accepted["id"]
    return str(fields["state"])


def _fire_and_forget(
    client: ForestayClient, operator: ForestayClient, _desk: CallbackDesk, spec: SpecificationJson, job: NewJob
) -> str:
    """Whoever fires sees nothing; whoever looks after the domain sees an alert, and only when the job failed."""
    name = fire(client, spec, job)
    until(lambda: operator.job(name)["state"] in FINAL, "the end")
    state = operator.job(name)["state"]

    def alerts() -> list[Mapping[str, object]]:
        return [
            alert for alert in operator.alerts() if alert["job"] == name and alert["alert"] == "forgotten-job-failed"
        ]

    if state == "completed":
        assert not alerts()
    else:
        until(alerts, "the alert")
    return state


WAYS: dict[Submission, Submit] = {
    Submission.SYNCHRONOUS: _synchronous,
    Submission.POLLING: _polling,
    Submission.NOTIFICATION: _notification,
    Submission.FIRE_AND_FORGET: _fire_and_forget,
}


def submit(
    way: Submission,
    client: ForestayClient,
    operator: ForestayClient,
    desk: CallbackDesk,
    spec: SpecificationJson,
    job: NewJob,
) -> Seen:
    """Submit a job in one of the four ways and wait for the outcome as its submitter does."""
    began = time.monotonic()
    if way is not Submission.NOTIFICATION:
        desk.refusals.pop("next", None)
    state = WAYS[way](client, operator, desk, spec, job)
    return Seen(state, time.monotonic() - began)
