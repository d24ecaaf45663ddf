"""The messages about one job between its client, Forestay and the task servers that it is sent to: the correlator's memory (paper P0, section 5).

The client knows one id, the job's. Each attempt that goes to a task server is one exchange: where it was sent, and what the task is called there. An
exchange is a create-only record beside the job, and the task itself carries the job's id and the attempt in its tags, so that a task whose creation
was never answered, or whose record was never written, is found again by asking its server.
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
"""The tenant whose relay made the task: by it all tasks under way are listed in a few calls."""
CALLBACK_TAG = "forestay.callback"
"""Where a task server that understands it tells the end of the task."""
DOWNSTREAM_TAG = "forestay.downstream"
"""By this label or tag a client says where a job is to be sent."""
KIND = "conversation"
"""The kind of the records."""
AWAITED = "awaited"
"""Where a document keeps how the relay learns of the end of its task: `polling` or `notification`; otherwise as its task server is configured."""
SILENT = "downstream-silent"
"""The reason of an end by which an attempt is given up without knowing what became of its task."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One attempt at a task server."""

    job: str
    token: Token
    downstream: str
    task: str
    """The id there."""
    adopted: bool = False
    """The task was made by an earlier attempt, and is this one's now."""
    registered: bool = False
    """Whether the server was asked to tell its end."""

    @property
    def name(self) -> str:
        """The record's."""
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
    """Whether the relay polls for the end of a job's task, and asks its server for no notification."""
    return bool(document.extra) and document.extra.get(AWAITED) == JobFlowPattern.POLLING


def is_forwardable(specification: Specification) -> bool:
    """Whether a job that did not come as a TES task can be sent to a task server: its command alone says what it does."""
    return not specification.inputs and not specification.outputs and specification.runner is RunnerKind.PROCESS


def key_of(job: str, token: Token) -> str:
    """By this a task server that knows keys takes the same attempt once, however often it is sent."""
    return f"forestay:{job}:{token.generation}.{token.attempt}"


def tags_of(document: JobDocument) -> dict[str, str]:
    """The tags by which the task of a job's present attempt is found again."""
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
    """Whether no earlier attempt of a job that was just claimed can have left a task behind that still counts.

    Of an attempt whose end is known its task is over. One whose claim was lost, or that was given up because its server was silent,
    may still run, or have ended well: before anything is sent again that server is asked.
    """
    if document.token == Token(0, 1):
        return True
    last = document.last
    if last is None or last.token != Token(document.generation, document.attempt - 1):
        return False
    return last.reason == NOT_STARTED or (not last.reason.startswith("pilot-") and last.reason != SILENT)


def chosen(candidates: Iterable[tuple[str, bool, Token]]) -> tuple[str | None, list[str]]:
    """Which task of a job counts, of those that run or ended well, and which are surplus: (id, ended well, attempt) each.

    One that ended well before any that runs; of those that run the one of the oldest attempt, which has come the furthest.
    """
    ranked = sorted(candidates, key=lambda candidate: (not candidate[1], candidate[2], candidate[0]))
    if not ranked:
        return None, []
    return ranked[0][0], [task for task, well, _ in ranked[1:] if not well]
