"""The connection from a flow's function to its run."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from contextvars import ContextVar
from typing import Any, Protocol

from forestay.domain.flows.definition.flow import Task
from forestay.flows.results import Ended


class PendingWork:
    """A job, or the jobs of a scatter, in progress. ``await`` it for its end, as often as needed."""

    def __init__(self, name: str, end: Awaitable[Ended]) -> None:
        self.name = name
        self.awaited = False
        self._end = end

    def __await__(self) -> Generator[Any, None, Ended]:
        self.awaited = True
        return self._end.__await__()

    def __repr__(self) -> str:
        return f"<Work {self.name}>"


class FlowContext(Protocol):
    """The operations of a run for its function."""

    def name_for(self, wanted: str) -> str:
        """A name for a task that is unique in the run: the requested one, or with a number."""
        ...

    def known(self, instance: str) -> bool:
        """Whether the run has a task with this name, whose outputs can be referred to."""
        ...

    def begin(self, task: Task, wanted: str = "") -> PendingWork:
        """Begin a task; ``wanted`` is the name that the function requested."""
        ...

    def fork(self) -> int:
        """A number for a `gather`, new in the run."""
        ...

    async def checkpoint(self, state: object) -> None: ...

    def restored(self) -> object: ...

    def now(self) -> float: ...


DESK: ContextVar[FlowContext] = ContextVar("forestay_flow_desk")
BRANCH: ContextVar[str] = ContextVar("forestay_flow_branch", default="")
"""The branch of `gather` that runs: what fails in one says nothing to the others."""


def flow_context() -> FlowContext:
    """The run that runs the calling function; `RuntimeError` outside of one."""
    try:
        return DESK.get()
    except LookupError:
        raise RuntimeError("this can only be called inside a run of a flow") from None
