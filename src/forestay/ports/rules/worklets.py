"""Chooses the worklets of late-bound tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BoundFlow:
    """The flow that a late-bound task runs."""

    flow: str
    """The flow's version."""
    params: Mapping[str, object] = field(default_factory=dict)
    """Parameters that override those of the task."""


class Worklets(Protocol):
    """The port."""

    async def bound(self, tenant: str, late_bound: str, *, run: str, params: Mapping[str, object]) -> BoundFlow | None:
        """The flow that a late-bound task of a run executes; None: nobody binds it. `NotFound` if the flow does not exist."""
        ...
