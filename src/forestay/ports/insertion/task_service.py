"""A task server behind the proxy that speaks GA4GH TES: it is not ours and does not know Forestay.

Tasks go in and come out as plain records in the form of the specification. `Transient` means that the server did not answer, or not now: it is then
unknown whether a call that changes something took place. `NotFound` means that the server definitely does not know the task; `Permanent`
means that the same call will never succeed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from forestay.ports.errors import Transient

Json = dict[str, Any]


class Unreached(Transient):
    """The server was not even reached: the call definitely did not take place."""


class TaskPage(NamedTuple):
    """A page of tasks, and a token for the next page; no token: this is the last."""

    tasks: Sequence[Json]
    next: str = ""


class TaskService(Protocol):
    """The port."""

    async def create(self, task: Mapping[str, Any], *, key: str) -> str:
        """Create a task and return its id. A server that supports idempotency keys accepts each key once."""
        ...

    async def get(self, task: str, *, full: bool) -> Json:
        """The whole record of a task, or only its id and state."""
        ...

    async def listed(
        self, *, tags: Mapping[str, str], state: str = "", full: bool = False, page: str = "", size: int = 256
    ) -> TaskPage:
        """Tasks with all these tags, and in that state if one is given. A server may ignore the filters: the caller must check the result."""
        ...

    async def cancel(self, task: str) -> None:
        """Request cancellation of a task; a finished task does not change."""
        ...

    async def close(self) -> None: ...
