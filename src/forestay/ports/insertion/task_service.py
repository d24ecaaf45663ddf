"""A task server behind the proxy that speaks GA4GH TES: it is not ours and does not know Forestay.

Tasks go in and come out as the specification writes them, as plain records. `Transient` means that the server did not answer, or not now: of a call that
changes something it is then unknown whether it took place. `NotFound` is said of a task that the server surely does not know; `Permanent`
means that the same call will never go through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from forestay.ports.errors import Transient

Json = dict[str, Any]


class Unreached(Transient):
    """The server was not even reached: the call surely did not take place."""


class TaskPage(NamedTuple):
    """A page of tasks, and a token for the next page; no token: this is the last."""

    tasks: Sequence[Json]
    next: str = ""


class TaskService(Protocol):
    """The port."""

    async def create(self, task: Mapping[str, Any], *, key: str) -> str:
        """The new task's id. A server that knows idempotency keys takes the same key once."""
        ...

    async def get(self, task: str, *, full: bool) -> Json:
        """All that is known of a task, or only its id and state."""
        ...

    async def listed(
        self, *, tags: Mapping[str, str], state: str = "", full: bool = False, page: str = "", size: int = 256
    ) -> TaskPage:
        """Tasks with all these tags, and in that state if one is named. A server may pass over what is asked: whoever asks looks at the answer."""
        ...

    async def cancel(self, task: str) -> None:
        """Ask for the end of a task; one that is over stays as it is."""
        ...

    async def close(self) -> None: ...
