"""External sources on the server's own machine: a file, and a command."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from forestay.adapters.system.commands import SystemCommands
from forestay.ports.errors import Transient
from forestay.ports.exceptions.external_source import MAX_BYTES, ExternalSource

SECONDS = 10.0
"""Seconds after which a hanging command is killed, also when no caller waits for it any more."""


class FileSource(ExternalSource):
    """A file written by another program."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def read(self) -> bytes:
        return await asyncio.to_thread(self._read)

    def _read(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                text = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise Transient(f"{self._path}: {error.strerror}") from error
        if len(text) > MAX_BYTES:
            raise Transient(f"{self._path} is longer than {MAX_BYTES:,} bytes")
        return text


class CommandSource(ExternalSource):
    """A program that prints the values. Of the server's environment it gets only PATH."""

    def __init__(self, command: Sequence[str], path: str) -> None:
        self._command = tuple(command)
        self._environment = {"PATH": path}
        self._commands = SystemCommands(MAX_BYTES)

    async def read(self) -> bytes:
        result = await self._commands.run(self._command, environment=self._environment, seconds=SECONDS)
        if result.code != 0:
            raise Transient(f"{self._command[0]} ended with exit code {result.code}")
        return result.out.encode()
