"""What is answered about conversations with other servers of tasks."""

from __future__ import annotations

from forestay.apps.server.http.answers import Out


class ExchangeOut(Out):
    """One attempt of a job at a task server."""

    attempt: int
    generation: int
    downstream: str
    task: str
    """Its id there."""
    adopted: bool
    """The task was made by an earlier attempt, and found again."""
    registered: bool
    """Whether that server was asked to tell the end."""


class RegisteredCallbackOut(Out):
    url: str
    told: bool


class ConversationOut(Out):
    """The messages about a job between its client and task servers."""

    job: str
    downstream: str
    """Where it is meant to go; empty: to pilots."""
    state: str
    attempt: int
    exchanges: list[ExchangeOut]
    callback: RegisteredCallbackOut | None
