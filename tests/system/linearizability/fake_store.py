"""A store in memory that answers as the real ones do on a bad day, or breaks the law on purpose.

It shows that the recorder and the checker can fail: a proof that cannot is none.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from forestay.ports.errors import Transient
from forestay.ports.jobs.job_store import (
    Conflicted,
    DocumentChange,
    Record,
    Stored,
    Unknown,
    Version,
    WriteResult,
    Written,
)


class Sin(Enum):
    """How a store can break the law."""

    NONE = "none"
    IGNORES_VERSIONS = "ignores versions"
    """Every write is taken, whatever version it expected: updates are lost."""
    FORGETS = "forgets"
    """Now and then an acknowledged write is gone, as after a commit that was never on disk."""
    ANSWERS_EARLY = "answers early"
    """Now and then a write is acknowledged that did not take place."""
    USES_VERSIONS_AGAIN = "uses versions again"
    """After it forgot a write, the next one gets the same version: whoever holds it writes over what they never saw."""


@dataclass(slots=True)
class FakeStore:
    """As much of a job store as the recorder and the checked writer use. Everything takes a while, so clients overlap."""

    dice: random.Random
    sin: Sin = Sin.NONE
    trouble: float = 0.15
    """The share of calls whose answer is not clear; some of those writes take place all the same, some later, and some
    are seen without ever having taken place."""
    _documents: dict[str, Stored] = field(default_factory=dict)
    _before: dict[str, Stored] = field(default_factory=dict)
    _dirty: dict[str, Stored] = field(default_factory=dict)
    _number: int = 0
    _late: set[asyncio.Task[None]] = field(default_factory=set)

    async def write(self, changes: Sequence[DocumentChange]) -> Sequence[WriteResult]:
        await self._pause()
        results = [self._write(change) for change in changes]
        await self._pause()
        return results

    async def get(self, jobs: Sequence[str]) -> Mapping[str, Stored]:
        await self._pause()
        if self.dice.random() < self.trouble / 4:
            raise Transient("no answer")
        # A copy that lags shows what stood before; by the law a read is a hint.
        shown = self._before if self.dice.random() < self.trouble / 4 else self._documents
        stored_jobs = {name: shown[name] for name in jobs if name in shown}
        if self.trouble and self.dice.random() < 0.5:
            stored_jobs |= {name: self._dirty[name] for name in jobs if name in self._dirty}
        await self._pause()
        return stored_jobs

    async def add_records(self, records: Sequence[Record]) -> Sequence[bool]:
        return [True for _ in records]

    async def settle(self) -> None:
        """Wait for what comes late, and answer clearly from now on."""
        while self._late:
            await asyncio.gather(*self._late)
        self.trouble = 0.0
        self.sin = Sin.NONE

    def _write(self, change: DocumentChange) -> WriteResult:
        draw = self.dice.random() / self.trouble if self.trouble else 1.0
        if draw < 0.3:
            self._apply(change)
            return Unknown("executed, then no answer")
        if draw < 0.5:
            self._apply(change)
            return Conflicted("executed, and conflicted with its own repetition")
        if draw < 0.7:
            task = asyncio.get_running_loop().create_task(self._apply_late(change))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            return Unknown("no answer, and executed later")
        if draw < 0.9:
            # On one copy alone, which is overruled by the others: it was never written, and yet some can see it.
            self._number += 1
            self._dirty[change.document.id] = Stored(change.document, Version(self._number, 1))
            return Unknown("written by a primary that was none any more")
        if draw < 1.0:
            return Unknown("never arrived")
        if self.sin is Sin.ANSWERS_EARLY and self.dice.random() < 0.02:
            self._number += 1
            return Written(Version(self._number, 1))
        version = self._apply(change)
        return Conflicted("another version stands") if version is None else Written(version)

    def _apply(self, change: DocumentChange) -> Version | None:
        name = change.document.id
        status = self._documents.get(name)
        if (status.version if status else None) != change.expected and self.sin is not Sin.IGNORES_VERSIONS:
            return None
        if self.sin in (Sin.FORGETS, Sin.USES_VERSIONS_AGAIN) and status and self.dice.random() < 0.02:
            return self._forget(name, status)
        if status is not None:
            self._before[name] = status
        self._number += 1
        self._documents[name] = Stored(change.document, Version(self._number, 1))
        self._dirty.pop(name, None)
        return self._documents[name].version

    def _forget(self, name: str, status: Stored) -> Version | None:
        before = self._before.get(name)
        if before is None:
            return None
        version = status.version if self.sin is Sin.USES_VERSIONS_AGAIN else before.version
        self._documents[name] = Stored(before.document, version)
        return None

    async def _apply_late(self, change: DocumentChange) -> None:
        await asyncio.sleep(0.02 * self.dice.random())
        self._apply(change)

    async def _pause(self) -> None:
        await asyncio.sleep(0.002 * self.dice.random())
