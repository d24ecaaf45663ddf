"""The first level: clients that read documents and write them over the version they know.

A document is a register: it carries one value, and every write a value of its own, so that a value names its write.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tests.system.linearizability.history import VALUE, Facts, Recorder, shown, value_of, version_facts

from forestay.domain.jobs.job_document import JobDocument
from forestay.domain.jobs.specification import Specification
from forestay.domain.jobs.submission import Submission, new_job
from forestay.ports.errors import PortError
from forestay.ports.jobs.job_store import Conflicted, DocumentChange, Stored, WriteResult, Written

SPECIFICATION = Specification(id="linearizability", tenant="alpha", name="register", command=("true",))
NOW = 1_700_000_000_000
LEVEL = "store"
_HOT_SHARE = 0.3
_READ_SHARE = 0.2
_MOST_AT_ONCE = 8


@dataclass(slots=True)
class Rest:
    """Waits after calls that said nothing, longer each time: a client whose only host is dead must not do little else."""

    dice: random.Random
    _failed: int = 0

    async def after(self, *, success: bool) -> None:
        self._failed = 0 if success else min(self._failed + 1, 6)
        if not success:
            await asyncio.sleep(self.dice.random() * 0.02 * 2**self._failed)


class Registers(Protocol):
    """As much of a job store as these clients use."""

    async def write(self, changes: Sequence[DocumentChange]) -> Sequence[WriteResult]: ...

    async def get(self, jobs: Sequence[str]) -> Mapping[str, Stored]: ...


@dataclass(slots=True)
class RegisterClient:
    """One client with a store instance of its own."""

    name: str
    arm: str
    store: Registers
    recorder: Recorder
    documents: int
    dice: random.Random
    progress: Callable[[], float]
    """How much of the run is done, from 0 to 1: documents come into use along with it, so that creates meet faults too."""
    known: dict[str, Stored] = field(default_factory=dict)
    """What this client last saw of a document; by now it may be stale, and then the write should fail."""
    _written: int = 0
    _rest: Rest = field(init=False)

    def __post_init__(self) -> None:
        self._rest = Rest(self.dice)

    async def step(self) -> None:
        """Writes over what is known of a few documents, in one request; what is not known is read first."""
        names = self._pick()
        unknown = [name for name in names if name not in self.known]
        if unknown or self.dice.random() < _READ_SHARE:
            # Now and then all of them, to see how old the answers are.
            await self.read(unknown or names)
        known = [name for name in names if name in self.known]
        if known:
            await self.write(known)

    def _pick(self) -> list[str]:
        active = min(self.documents, 16 + int(self.documents * self.progress()))
        hot = max(1, self.documents // 40)
        names = set()
        for _ in range(self.dice.randint(1, _MOST_AT_ONCE)):
            among = hot if self.dice.random() < _HOT_SHARE else active
            names.add(f"{self.arm}-d{self.dice.randrange(among):04}")
        return sorted(names)

    async def read(self, names: Sequence[str]) -> None:
        """A realtime get, recorded; what is missing is created next time."""
        operations = [_facts(self, name, "read") for name in names]
        numbers = self.recorder.call(operations)
        try:
            stored_jobs = await self.store.get(names)
        except PortError:
            self.recorder.done(numbers, [{"result": "unknown"} for _ in names])
            await self._rest.after(success=False)
            return
        self.recorder.done(numbers, [shown(stored_jobs.get(name)) for name in names])
        missing = []
        for name in names:
            if name in stored_jobs:
                self.known[name] = stored_jobs[name]
            else:
                missing.append(name)
        if missing:
            await self.write(missing)

    async def write(self, names: Sequence[str]) -> list[bool]:
        """Version-checked writes, recorded; which of them were acknowledged. What was refused is read again first."""
        changes = [self._change(name) for name in names]
        operations = [
            _facts(self, change.document.id, "create" if change.expected is None else "cas")
            | self._expected(change)
            | {"value": change.document.parameters[VALUE]}
            for change in changes
        ]
        numbers = self.recorder.call(operations)
        results = await self.store.write(changes)
        self.recorder.done(numbers, [_result(result) for result in results])
        acknowledged = []
        for change, result in zip(changes, results, strict=True):
            acknowledged.append(isinstance(result, Written))
            if isinstance(result, Written):
                self.known[change.document.id] = Stored(change.document, result.version)
            else:
                self.known.pop(change.document.id, None)
        await self._rest.after(success=any(isinstance(result, Written | Conflicted) for result in results))
        return acknowledged

    def _change(self, name: str) -> DocumentChange:
        self._written += 1
        parameters = {VALUE: f"{self.name}.{self._written}"}
        known = self.known.get(name)
        if known is None:
            return DocumentChange(_new(name).having(parameters=parameters), None)
        return DocumentChange(known.document.having(parameters=parameters), known.version)

    def _expected(self, change: DocumentChange) -> dict[str, object]:
        if change.expected is None:
            return {}
        value = value_of(self.known[change.document.id])
        return {"expected": {**version_facts(change.expected), "value": value}}


def _new(name: str) -> JobDocument:
    return new_job(Submission(SPECIFICATION, owner="ada"), job=name, now=NOW, by="ada")


def _facts(client: RegisterClient, document: str, kind: str) -> dict[str, object]:
    return {"level": LEVEL, "arm": client.arm, "client": client.name, "document": document, "kind": kind}


def _result(result: WriteResult) -> Facts:
    if isinstance(result, Written):
        return {"result": "written", "version": version_facts(result.version)}
    return {"result": "conflicted" if isinstance(result, Conflicted) else "unknown", "detail": result.detail}
