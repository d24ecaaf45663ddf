"""Temporal's development server as a child process: found or downloaded, on loopback, with its runs in a file.

It is restarted when it dies, and dies with this process in any case: a second one on the same file would corrupt it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from forestay.ports.errors import Permanent, Transient

NAME = "temporal"
FETCH_SECONDS = 600.0
START_SECONDS = 120.0
HOW_TO_GET_TEMPORAL = (
    "To run flows, put the program `temporal` (https://docs.temporal.io/cli) on the PATH, or set FORESTAY_TEMPORAL_PROGRAM to it, "
    "or set FORESTAY_TEMPORAL=HOST:PORT to a running Temporal server. Then start again; nothing is lost."
)
DIE_WITH_PARENT = (
    "import ctypes, os, sys; parent, number = map(int, sys.argv[1:3]);"
    "ctypes.CDLL(None).prctl(1, number);"  # PR_SET_PDEATHSIG
    "os.getppid() == parent or sys.exit(1);"
    "os.execv(sys.argv[3], sys.argv[3:])"
)


def tied(arguments: list[str], number: signal.Signals = signal.SIGTERM) -> list[str]:
    """A command that gets this signal from the kernel when this process is gone, even by kill -9."""
    return [sys.executable, "-I", "-S", "-c", DIE_WITH_PARENT, str(os.getpid()), str(int(number)), *arguments]


class Program(NamedTuple):
    """The program, and how it was found."""

    path: Path
    source: str


def find_program(setting: str, environment: Mapping[str, str], cache: Path) -> Program | None:
    """The program by setting, on the path, or downloaded earlier; None if there is none. Nothing is downloaded here."""
    if setting:
        path = Path(setting).expanduser()
        if not _runs(path):
            raise Permanent(
                f"{path} is not a program; FORESTAY_TEMPORAL_PROGRAM must be the path of Temporal's command line program"
            )
        return Program(path, "FORESTAY_TEMPORAL_PROGRAM")
    if program := shutil.which(NAME, path=environment.get("PATH", "")):
        return Program(Path(program), "the path")
    for path in sorted(_fetched(cache), key=lambda other_path: other_path.stat().st_mtime, reverse=True):
        return Program(path, "fetched earlier")
    return None


def _fetched(cache: Path) -> Iterator[Path]:
    """As the SDK names what it fetches, and as `scripts/servers` of a checkout does."""
    for path in cache.glob(f"{NAME}-*"):
        inside = path / NAME if path.is_dir() else path
        if inside.suffix != ".downloading" and _runs(inside):
            yield inside


def _runs(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


async def fetch_program(cache: Path) -> Program:
    """Have the SDK download its matching version, once; `Transient` says why it could not."""
    from temporalio.testing import WorkflowEnvironment

    cache.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - nothing else is under way
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            # The SDK can only download it by starting it; the server that we use is started by ourselves.
            started = await WorkflowEnvironment.start_local(download_dest_dir=str(cache))
        await started.shutdown()
    except (RuntimeError, TimeoutError) as error:
        raise Transient(f"Temporal could not be downloaded: {error or 'it took too long'}") from error
    program = find_program("", {}, cache)
    if program is None:
        raise Transient(f"Temporal was downloaded, but is not in {cache}")
    return Program(program.path, "fetched now")


class DevServer:
    """One development server with its file."""

    def __init__(
        self,
        program: Path,
        folder: Path,
        *,
        namespaces: Sequence[str] = ("default",),
        on_line: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.program = program
        self.folder = folder
        self.namespaces = namespaces
        self.told = on_line
        self.port = _free_port()
        self._process: asyncio.subprocess.Process | None = None
        self._reconciler: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start it, and restart it when it dies; it answers some seconds later."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(stat.S_IRWXU)  # runs have their parameters in it
        await self._launch()
        self._reconciler = asyncio.create_task(self._keep())

    async def ready(self) -> None:
        """Wait until it answers; `Transient` if it does not."""
        try:
            async with asyncio.timeout(START_SECONDS):
                while not await self._answers():  # noqa: ASYNC110 - nobody tells us
                    await asyncio.sleep(0.1)
        except TimeoutError as error:
            raise Transient(f"Temporal does not respond; its log is in {self.folder / 'log'}") from error

    async def stop(self) -> None:
        if self._reconciler is not None:
            self._reconciler.cancel()
            with suppress(asyncio.CancelledError):
                await self._reconciler
        process = self._process
        if process is None:
            return
        for number, patience in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
            with suppress(ProcessLookupError):
                process.send_signal(number)
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await process.wait()
                    return

    async def _launch(self) -> None:
        arguments = [
            str(self.program.absolute()), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(self.port),
            "--db-filename", str(self.folder / "temporal.db"), "--log-level", "error",
            *(word for name in self.namespaces for word in ("--namespace", name)),
        ]  # fmt: skip
        # Neither settings of the user's own Temporal nor secrets of ours.
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder), "LANG": "C.UTF-8"}
        with (self.folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *tied(arguments, signal.SIGKILL),  # at once: the next one opens the same file
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    async def _keep(self) -> None:
        while True:
            assert self._process is not None  # noqa: S101 - it was launched
            code = await self._process.wait()
            self.told(f"Temporal ended ({code}) and is restarted; its log is in {self.folder / 'log'}")
            await asyncio.sleep(1.0)
            await self._launch()

    async def _answers(self) -> bool:
        from temporalio.client import Client

        try:
            await Client.connect(self.address)
        except RuntimeError:
            return False
        return True


def _free_port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        port: int = own.getsockname()[1]
    return port
