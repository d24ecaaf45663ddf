"""The four ways to submit a job.

Wait for it (`run`), ask for it by its id (`client.submit`, then `client.job`), be told of it (a job's `callback`), or leave it alone
(`fire`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from forestay.client.api.answers import FINAL, WELL
from forestay.client.api.forestay_client import ForestayClient
from forestay.client.api.waiting import wait
from forestay.client.executor.results import failure_in_words
from forestay.client.transport.errors import JobFailedError

if TYPE_CHECKING:
    from forestay.client.api.schemas import Job, NewJob, SpecificationJson

FORGOTTEN = "forestay/forgotten"
"""The label of unattended jobs: an alert is raised when one fails."""
SUBMISSION = "forestay/submission"
"""The label of jobs whose submitting call returns when they have ended; its value is `SYNCHRONOUS`."""
SYNCHRONOUS = "synchronous"


def run(
    client: ForestayClient,
    specification: SpecificationJson,
    job: NewJob | None = None,
    *,
    timeout: float | None = None,
    key: str | None = None,
) -> Job:
    """Submit a job and return when it has succeeded.

    `JobFailedError` when it has not; `TimedOut` after `timeout` seconds, and then the job continues.
    """
    (accepted,) = client.submit([labelled(job, SUBMISSION, SYNCHRONOUS)], specification, key=key)
    ended = wait(client, [accepted["id"]], states=FINAL, timeout=timeout).known[accepted["id"]]
    if ended["state"] not in WELL:
        reason = (ended["last"] or {}).get("reason") or ""
        raise JobFailedError(failure_in_words(ended), job=ended["id"], state=ended["state"], reason=reason)
    return ended


def fire(
    client: ForestayClient, specification: SpecificationJson, job: NewJob | None = None, *, key: str | None = None
) -> str:
    """Submit an unattended job and return its id.

    If it fails an alert is raised, which appears in the reconciler's log and is shown to the installation's operators.
    """
    (accepted,) = client.submit([labelled(job, FORGOTTEN, "true")], specification, key=key)
    return accepted["id"]


def labelled(job: NewJob | None, label: str, value: str) -> NewJob:
    """A job with one more label."""
    new_job: NewJob = job or {}
    return cast("NewJob", {**new_job, "labels": {**new_job.get("labels", {}), label: value}})
