"""The real processes of a campaign: started, killed, stopped, and started again when they are gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.system.chaos.faults import Fault, FaultLog

from forestay_pilot.process import libc


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def launch(words: Sequence[str], log: Path, *, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a process that dies with us; what it says goes to a file."""
    with log.open("ab") as sink:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env=environment,
            start_new_session=True,
            preexec_fn=libc.die_with_parent,
        )


@dataclass(slots=True, eq=False)
class Child:
    """One place of the campaign, filled by one process after the other."""

    what: str
    name: str
    words: Callable[[str], Sequence[str]]
    """The command for an incarnation's name."""
    environment: dict[str, str]
    logs: Path
    lives: int = 0
    process: subprocess.Popen[bytes] | None = None
    again_at: float = 0.0
    doomed: bool = False
    """We killed it, so that its end is no surprise."""
    pause: Fault | None = None

    @property
    def who(self) -> str:
        """The name of this incarnation; a pilot carries it as its host name."""
        return f"{self.name}.{self.lives}"

    @property
    def up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        self.lives += 1
        self.doomed, self.pause = False, None
        self.process = launch(self.words(self.who), self.logs / f"{self.name}.log", environment=self.environment)

    def send(self, number: signal.Signals) -> None:
        if self.process is not None and self.up:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)


@dataclass(slots=True)
class Crew:
    """All processes that may be hurt, and the watch that starts them again."""

    faults: FaultLog
    children: list[Child] = field(default_factory=list)
    restart_after: float = 1.0
    ending: bool = False

    def of(self, what: str) -> list[Child]:
        return [child for child in self.children if child.what == what]

    def ready(self, what: str) -> list[Child]:
        """Those that run and are not stopped."""
        return [child for child in self.of(what) if child.up and child.pause is None and not child.doomed]

    def kill(self, child: Child, *, restart_after: float | None = None) -> None:
        """kill -9. The fault lasts until its place is filled again, for servers and reconcilers until it may serve."""
        if not child.up:
            return
        child.doomed = True
        wait = self.restart_after if restart_after is None else restart_after
        if child.pause is not None:
            self.faults.end(child.pause)
            child.pause = None
        fault = self.faults.begin("kill", child.what, child.who)
        child.send(signal.SIGKILL)
        child.again_at = time.monotonic() + wait
        self.faults.end(fault, at=fault.began + (0.0 if child.what == "pilot" else wait + 3.0))

    def stop(self, child: Child) -> None:
        child.pause = self.faults.begin("stop", child.what, child.who)
        child.send(signal.SIGSTOP)

    def go_on(self, child: Child) -> None:
        """SIGCONT, if it is still the process that was stopped."""
        if child.pause is not None:
            child.send(signal.SIGCONT)
            self.faults.end(child.pause)
            child.pause = None

    async def pause(self, child: Child, seconds: float) -> None:
        """SIGSTOP for a while."""
        self.stop(child)
        stopped = child.pause
        await asyncio.sleep(seconds)
        if child.pause is stopped:
            self.go_on(child)

    async def watch(self) -> None:
        """Start again whatever is gone. An end that we did not cause is a crash, for the auditor to judge."""
        while not self.ending:
            for child in self.children:
                if child.up or self.ending:
                    continue
                if child.process is not None and not child.doomed:
                    code = child.process.returncode
                    self.faults.moment("crash", child.what, child.who, f"exit {code}")
                    child.doomed, child.again_at = True, time.monotonic() + 1.0
                if time.monotonic() >= child.again_at:
                    child.start()
            await asyncio.sleep(0.1)

    async def end(self, patience: float = 20.0) -> None:
        """Ask everyone to end, pilots first; kill what does not."""
        self.ending = True
        for what in ("pilot", "reconciler", "server"):
            for child in self.of(what):
                child.send(signal.SIGCONT)
                child.send(signal.SIGTERM)
            give_up = time.monotonic() + patience
            while any(child.up for child in self.of(what)) and time.monotonic() < give_up:  # noqa: ASYNC110 - processes
                await asyncio.sleep(0.05)
            for child in self.of(what):
                child.send(signal.SIGKILL)
                if child.process is not None:
                    child.process.wait()

    def abandon(self) -> None:
        """Kill everything at once."""
        self.ending = True
        for child in self.children:
            child.send(signal.SIGKILL)
