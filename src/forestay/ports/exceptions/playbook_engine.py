"""The engine that runs playbooks of several steps. `Transient`: it did not answer; the same call can be repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from forestay.domain.playbooks.playbook_run import Event


class PlaybookEngine(Protocol):
    """The port."""

    async def start_playbook(self, incident: str, n: int, *, tenant: str, owner: str) -> bool:
        """Run the playbook of a recorded decision; False if it had been started before. The same decision is never carried out twice."""
        ...

    async def tell_playbook(self, incident: str, n: int, events: Sequence[Event]) -> None:
        """Send events to a run, such as a person's request to stop it; `NotFound` if it has ended or never existed."""
        ...
