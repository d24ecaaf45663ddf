"""The messages about one job between its client, Forestay and the task servers that it is sent to: the correlator's memory (paper P0, section 5).

The client knows one id, the job's. Each attempt that is sent to a task server is one exchange: the server, and the task's id there. An
exchange is a create-only record beside the job, and the task itself carries the job's id and the attempt in its tags, so that a task whose creation
was never answered, or whose record was never written, is found again by querying its server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from forestay.domain.jobs.claim import NOT_STARTED
from forestay.domain.jobs.job_document import JobDocument, Token
from forestay.domain.jobs.job_flow_pattern import JobFlowPattern
from forestay.domain.jobs.specification import RunnerKind, Specification

JOB_TAG = "forestay.job"
ATTEMPT_TAG = "forestay.attempt"
RELAY_TAG = "forestay.relay"
"""The tag with the tenant whose relay made the task: by it all active tasks are listed in a few calls."""
CALLBACK_TAG = "forestay.callback"
"""The tag with the address to which a task server that supports it reports the end of the task."""
DOWNSTREAM_TAG = "forestay.downstream"
"""The label or tag by which a client chooses where a job is sent."""
KIND = "conversation"
"""The kind of the records."""
AWAITED = "awaited"
"""The field of a document for how the relay learns of the end of its task: `polling` or `notification`; otherwise as its task server is configured."""
SILENT = "downstream-silent"
"""The end reason of an attempt that is given up while the state of its task is unknown."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One attempt at a task server."""

    job: str
    token: Token
    downstream: str
    task: str
    """The task's id on the server."""
    adopted: bool = False
    """The task was made by an earlier attempt, and belongs to this one now."""
    registered: bool = False
    """Whether the server was asked to report its end."""

    @property
    def name(self) -> str:
        """The name of the record."""
        return f"{KIND}:{self.job}:{self.token.generation}.{self.token.attempt}"

    def as_plain(self) -> dict[str, object]:
        return {
            "attempt": self.token.attempt,
            "generation": self.token.generation,
            "downstream": self.downstream,
            "task": self.task,
            "adopted": self.adopted,
            "registered": self.registered,
        }


def exchange_from(job: str, data: Mapping[str, object]) -> Exchange:
    attempt, generation = data.get("attempt"), data.get("generation")
    return Exchange(
        job,
        Token(generation if isinstance(generation, int) else 0, attempt if isinstance(attempt, int) else 0),
        str(data.get("downstream", "")),
        str(data.get("task", "")),
        data.get("adopted") is True,
        data.get("registered") is True,
    )


def is_polled(document: JobDocument) -> bool:
    """Whether the relay polls for the end of a job's task instead of asking its server for a notification."""
    return bool(document.extra) and document.extra.get(AWAITED) == JobFlowPattern.POLLING


def is_forwardable(specification: Specification) -> bool:
    """Whether a job that was not submitted as a TES task can be sent to a task server: its command alone defines it."""
    needs_pilot = specification.inputs or specification.outputs or specification.secrets
    return not needs_pilot and specification.runner is RunnerKind.PROCESS and specification.resources.nodes == 1


def key_of(job: str, token: Token) -> str:
    """The idempotency key by which a task server that supports keys accepts an attempt once, however often it is sent."""
    return f"forestay:{job}:{token.generation}.{token.attempt}"


def tags_of(document: JobDocument) -> dict[str, str]:
    """The tags by which the task of a job's current attempt is found again."""
    token = document.token
    return {
        JOB_TAG: document.id,
        ATTEMPT_TAG: f"{token.generation}.{token.attempt}",
        RELAY_TAG: document.tenant,
    }


def token_named(tag: str) -> Token | None:
    """The attempt that a tag names."""
    generation, dot, attempt = tag.partition(".")
    if not dot or not (generation.isascii() and generation.isdigit() and attempt.isascii() and attempt.isdigit()):
        return None
    return Token(int(generation), int(attempt))


def surely_new(document: JobDocument) -> bool:
    """Whether no earlier attempt of a just claimed job can have left a task that still matters.

    If an attempt's end is known, its task has ended. The task of an attempt whose claim was lost, or that was given up because its server did not answer,
    may still run, or have succeeded: that server is queried before anything is sent again.
    """
    if document.token == Token(0, 1):
        return True
    last = document.last
    if last is None or last.token != Token(document.generation, document.attempt - 1):
        return False
    return last.reason == NOT_STARTED or (not last.reason.startswith("pilot-") and last.reason != SILENT)


def chosen(candidates: Iterable[tuple[str, bool, Token]]) -> tuple[str | None, list[str]]:
    """The task of a job that counts, of those that run or succeeded, and the surplus ones: (id, succeeded, attempt) each.

    A succeeded task before any running one; of the running ones that of the oldest attempt, which has progressed furthest.
    """
    ranked = sorted(candidates, key=lambda candidate: (not candidate[1], candidate[2], candidate[0]))
    if not ranked:
        return None, []
    return ranked[0][0], [task for task, well, _ in ranked[1:] if not well]
