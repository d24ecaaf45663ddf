"""Runs system programs, each in a process group of its own, so that a hanging one can be removed completely."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forestay.domain.sites.pace import Pace, TokenBucket, full, take
from forestay.ports.clock import Clock
from forestay.ports.commands import CommandResult, Commands
from forestay.ports.errors import Permanent, Transient

MOST_READ = 16 * 1024 * 1024
"""The most bytes of one stream; a queue of 10⁵ jobs is smaller."""
PIPES_CLOSE = 5.0
"""Seconds that the pipes of a program that was killed may take to close."""


@dataclass(frozen=True, slots=True)
class SystemCommands:
    """Runs them as they are asked for."""

    most: int = MOST_READ

    async def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: str = "",
        seconds: float = 30.0,
    ) -> CommandResult:
        """As the port says."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
            raise Permanent(f"{command[0]}: {error.strerror}") from error
        except OSError as error:
            raise Transient(f"{command[0]} could not be started: {error.strerror}") from error
        try:
            async with asyncio.timeout(seconds):
                return await self._talk(process, stdin.encode())
        except TimeoutError as error:
            raise Transient(f"{command[0]} did not finish within {seconds:g} seconds") from error
        finally:
            await _end(process)

    async def _talk(self, process: asyncio.subprocess.Process, data: bytes) -> CommandResult:
        assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018 - both are pipes
        reading = [asyncio.create_task(_read(reader, self.most)) for reader in (process.stdout, process.stderr)]
        returned_task = asyncio.create_task(_tell(process.stdin, data))
        ended = asyncio.create_task(process.wait())
        try:
            out, err = await asyncio.gather(*reading)
            # A program that ends before it has read all is not waited for: the pipe to it may never report that it is closed.
            await asyncio.wait({returned_task, ended}, return_when=asyncio.FIRST_COMPLETED)
            return CommandResult(await ended, out.decode(errors="replace"), err.decode(errors="replace"))
        finally:
            for task in (*reading, returned_task, ended):
                task.cancel()
            await asyncio.gather(*reading, returned_task, ended, return_exceptions=True)


async def _tell(stream: asyncio.StreamWriter | None, data: bytes) -> None:
    if stream is None:
        return
    # A program that ended before it read all: asyncio says so by an error of the pipe, uvloop by a RuntimeError of its own.
    with contextlib.suppress(OSError, RuntimeError):
        stream.write(data)
        await stream.drain()
        stream.close()


async def _read(stream: asyncio.StreamReader, most: int) -> bytes:
    parts: list[bytes] = []
    left = most
    while part := await stream.read(65536):
        left -= len(part)
        if left < 0:
            raise Transient(f"a command printed more than {most:,} bytes")
        parts.append(part)
    return b"".join(parts)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process group completely, also when the caller was cancelled, or a child is left that holds the pipe."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # The remaining output is read and discarded: for asyncio a process has ended only when its pipes have. If a child in
        # another group holds them, they are not waited for.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PIPES_CLOSE):
                await asyncio.gather(
                    *(_read_away(reader) for reader in (process.stdout, process.stderr) if reader is not None)
                )
                await process.wait()


async def _read_away(stream: asyncio.StreamReader) -> None:
    while await stream.read(1 << 20):
        pass


@dataclass(slots=True)
class PacedCommands:
    """Runs them with limits on rate and concurrency."""

    commands: Commands
    clock: Clock
    pace: Pace
    beside: int = 4
    waited: float = 0.0
    """The total seconds for which callers were delayed."""
    _bucket: TokenBucket | None = None
    _room: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._room = asyncio.Semaphore(self.beside)

    async def run(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        stdin: str = "",
        seconds: float = 30.0,
    ) -> CommandResult:
        """As the port says, when it is its turn."""
        now = self.clock.monotonic()
        self._bucket, wait = take(self._bucket or full(self.pace, now=now), now=now)
        if wait > 0:
            self.waited += wait
            await asyncio.sleep(wait)
        async with self._room:
            return await self.commands.run(command, environment=environment, stdin=stdin, seconds=seconds)
