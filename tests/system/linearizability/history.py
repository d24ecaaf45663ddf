"""Histories: what was asked of a store and what it answered, with times.

A recorder writes two lines an operation, when it is called and when it has returned, each before anything else is done:
whatever was called is known even if the process is killed. `merged` puts the two together; an operation that never
returned has an unknown outcome.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from forestay.ports.jobs.job_store import Stored, Version

Facts = Mapping[str, Any]

VALUE = "value"
"""The parameter of a document that carries its value."""


class Recorder:
    """Writes the operations of one process. Times are those of the machine's monotonic clock, which processes share."""

    def __init__(self, path: Path) -> None:
        self.returned = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._next = 0

    def close(self) -> None:
        os.close(self._file)

    def call(self, operations: Sequence[Facts]) -> range:
        """Write down what is about to be asked, all in one request; gives the numbers of the operations."""
        numbers = range(self._next, self._next + len(operations))
        self._next += len(operations)
        now = time.monotonic_ns()
        self._write(
            {"number": number, "call": now, **operation} for number, operation in zip(numbers, operations, strict=True)
        )
        return numbers

    def done(self, numbers: range, results: Sequence[Facts]) -> None:
        """Write down the answers."""
        now = time.monotonic_ns()
        self._write(
            {"number": number, "return": now, **result} for number, result in zip(numbers, results, strict=True)
        )
        self.returned += len(results)

    def _write(self, lines: Iterable[Facts]) -> None:
        os.write(self._file, b"".join(orjson.dumps(line) + b"\n" for line in lines))


def merged(logs: Iterable[Path]) -> list[dict[str, Any]]:
    """The operations of several recorders, one entry each, in the order of their calls."""
    operations: list[dict[str, Any]] = []
    for log in logs:
        mine: dict[int, dict[str, Any]] = {}
        for line in log.read_bytes().splitlines():
            facts = orjson.loads(line)
            number = facts.pop("number")
            if "call" in facts:
                mine[number] = {**facts, "return": 0, "result": "unknown"}
            else:
                mine[number].update(facts)
        operations += mine.values()
    return sorted(operations, key=lambda operation: int(operation["call"]))


def write_history(operations: Iterable[Facts], path: Path) -> None:
    """One operation a line, for the checker."""
    path.write_bytes(b"".join(orjson.dumps(operation) + b"\n" for operation in operations))


def version_facts(version: Version) -> Facts:
    return {"number": version.number, "term": version.term}


def value_of(stored: Stored) -> str:
    return str(stored.document.parameters[VALUE])


def shown(stored: Stored | None) -> Facts:
    """What a read found."""
    if stored is None:
        return {"result": "missing"}
    return {"result": "found", "value": value_of(stored), "version": version_facts(stored.version)}
