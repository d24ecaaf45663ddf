"""Chooses the worklets of late-bound tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BoundFlow:
    """The flow to be run at a place."""

    flow: str
    """Its version."""
    params: Mapping[str, object] = field(default_factory=dict)
    """Over those that the task gives."""


class Worklets(Protocol):
    """The port."""

    async def bound(self, tenant: str, late_bound: str, *, run: str, params: Mapping[str, object]) -> BoundFlow | None:
        """What is to be run when a task of a run begins; None: nobody answers for the place. `NotFound` if the flow is not there."""
        ...
